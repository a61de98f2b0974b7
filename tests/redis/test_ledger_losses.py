"""Redis that comes back without all it had, or as another server: all is sent anew, and capped pools settle."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from slb.balance.asking import Turn
from slb.control import ledger
from tests.redis.ledger_rig import SHORT, Books, Instance, upstreams
from tests.support.acl import acl_rules
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

LASTING = replace(SHORT, settle=60.0, lease=10.0)
"""No holder is reaped, and settling ends by what is sent alone."""
ONE = upstreams(1, 1)


async def both_known(*fleet: Instance) -> None:
    await eventually(lambda: all(each.lane.epochs.holders == len(fleet) for each in fleet), what="all known")


@contextmanager
def silent(*fleet: Instance) -> Iterator[None]:
    """Meanwhile they send nothing."""
    for each in fleet:
        each.freeze()
    yield
    for each in fleet:
        each.thaw()


async def test_a_redis_that_is_emptied_is_rebuilt_from_what_is_held(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        for turn in range(6):
            await (one, other)[turn % 2].get(upstreams(2))
        valkey.admin.flushall()
        await books.score({"u0": 3, "u1": 3})
        assert sum(books.held("a-1").values()) == 3
        assert sum(books.held("b-1").values()) == 3


async def test_a_redis_that_restarts_empty_is_rebuilt_from_what_is_held(valkey: Valkey) -> None:
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        for turn in range(6):
            await (one, other)[turn % 2].get(upstreams(2))
        valkey.kill()
        await eventually(lambda: not one.lane.state.ready and not other.lane.state.ready, what="local")
        valkey.lose_data()
        valkey.start()
        await Books(valkey).score({"u0": 3, "u1": 3})


async def test_a_redis_restored_with_old_data_is_put_right_by_what_is_held(valkey: Valkey) -> None:
    books = Books(valkey)
    valkey.admin.config_set("appendfsync", "always")
    saved = valkey.directory.with_name(valkey.directory.name + "-saved")
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        old = [await (one, other)[turn % 2].get(upstreams(2)) for turn in range(8)]
        shutil.copytree(valkey.directory / "appendonlydir", saved)
        for turn, member in enumerate(old):
            (one, other)[turn % 2].lane.release(member)
        assert {await one.get(upstreams(1)) for _ in range(2)} == {"u0"}
        await books.score({"u0": 2})
        valkey.kill()
        await eventually(lambda: not one.lane.state.ready and not other.lane.state.ready, what="local")
        valkey.lose_data()
        shutil.move(saved, valkey.directory / "appendonlydir")
        valkey.start()
        await Books(valkey).score({"u0": 2})


async def test_after_a_loss_capped_pools_settle_until_every_known_holder_has_pushed(valkey: Valkey) -> None:
    patient = replace(SHORT, settle=60.0)
    async with Instance(valkey, "a", patient) as one, Instance(valkey, "b", patient) as other:
        await eventually(
            lambda: one.lane.epochs.holders == 2 and other.lane.epochs.holders == 2, what="two holders known"
        )
        await other.get(upstreams(1))
        other.freeze()
        valkey.admin.flushall()
        await eventually(lambda: one.changes[-1:] == [(True, True)], what="settling")
        looks = len(one.connection.sent)
        await eventually(lambda: len(one.connection.sent) > looks + 5, what="looks")
        assert one.lane.settling
        other.thaw()
        await eventually(lambda: one.changes[-1] == (True, False), what="settled")
        assert Books(valkey).scores() == {"u0": 1}


async def test_a_holder_that_does_not_come_back_is_awaited_no_longer_than_the_settling_time(valkey: Valkey) -> None:
    brief = replace(SHORT, settle=0.3)
    async with Instance(valkey, "a", brief) as one:
        async with Instance(valkey, "b", brief):
            await eventually(lambda: one.lane.epochs.holders == 2, what="two holders known")
        valkey.admin.flushall()
        await eventually(lambda: one.changes[-2:] == [(True, True), (True, False)], what="settled")


async def test_settling_ends_as_soon_as_all_have_pushed_even_without_beats(valkey: Valkey) -> None:
    """Who came back first has pushed before the others knew of the loss, and does so once."""
    timing = replace(LASTING, beat=60.0)
    async with Instance(valkey, "a", timing) as one, Instance(valkey, "b", timing) as other:
        one.lane.send_all()
        await both_known(one, other)
        with silent(other):
            valkey.admin.flushall()
            one.lane.send_all()
            await eventually(lambda: one.changes[-1:] == [(True, True)], what="settling")
        other.lane.send_all()
        await eventually(lambda: one.changes[-1:] == [(True, False)], what="settled")
        await other.sent_all()
        assert other.changes == []


async def test_the_last_holder_that_comes_back_has_nothing_to_settle(valkey: Valkey) -> None:
    async with Instance(valkey, "a", LASTING) as one:
        await one.get(ONE)
        await one.sent_all()
        valkey.admin.flushall()
        await Books(valkey).score({"u0": 1})
        assert one.changes == []


async def test_a_loss_that_a_beat_is_the_first_to_meet_is_noticed_too(valkey: Valkey) -> None:
    """A beat carries all that is held: it must not pass for the first batch of a new instance."""
    timing = replace(LASTING, look=60.0)
    async with Instance(valkey, "a", timing) as one, Instance(valkey, "b", timing) as other:
        await one.get(upstreams(1))
        await both_known(one, other)
        await one.sent_all()
        with silent(other):
            valkey.admin.flushall()
            one.lane.send_all()
            await eventually(lambda: (True, True) in one.changes, what="settling")
            await Books(valkey).score({"u0": 1})


async def test_another_server_with_all_that_one_holder_counts_may_lack_what_others_count(valkey: Valkey) -> None:
    """A replica that was promoted, or a restart from the disk: the others' last grants may be missing."""
    valkey.admin.config_set("appendfsync", "always")
    async with Instance(valkey, "a", LASTING) as one, Instance(valkey, "b", LASTING) as other:
        await one.get(ONE)
        await both_known(one, other)
        await one.sent_all()
        with silent(other):
            valkey.kill()
            await eventually(lambda: not one.lane.state.ready, what="local")
            valkey.start()
            await eventually(lambda: one.changes[-1] == (True, True), what="settling")
            assert Books(valkey).scores() == {"u0": 1}
        await eventually(lambda: one.changes[-1:] == other.changes[-1:] == [(True, False)], what="settled")


async def test_a_new_instance_decides_nothing_while_others_settle_by_what_redis_lacks(
    valkey: Valkey,
) -> None:
    valkey.admin.config_set("appendfsync", "always")
    async with Instance(valkey, "a", LASTING) as one, Instance(valkey, "b", LASTING) as other:
        await both_known(one, other)
        with silent(other):
            valkey.kill()
            valkey.start()
            third = Instance(valkey, "c", LASTING)
            asked = third.ask(ONE)
            async with third:
                await eventually(lambda: third.undecided == [asked], what="handed back")
                assert third.changes == [(True, True)]


async def test_a_server_that_only_paused_has_lost_nothing(valkey: Valkey) -> None:
    hasty = replace(LASTING, budget=0.1, deadline=0.5)
    async with Instance(valkey, "a", hasty) as one, Instance(valkey, "b", hasty) as other:
        await both_known(one, other)
        with silent(other):
            valkey.freeze()
            one.ask(ONE)
            await eventually(lambda: not one.lane.state.ready, what="local")
            valkey.thaw()
            await eventually(lambda: one.lane.state.ready, what="back")
            assert (True, True) not in one.changes


async def test_a_thawed_instance_whose_first_batch_fails_too_has_lost_nothing_but_its_lease(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REAP_PERIOD", 0.1)
    timing = replace(SHORT, lease=0.6, budget=0.2, deadline=0.2, settle=60.0)
    books = Books(valkey)
    async with Instance(valkey, "a", replace(timing, deadline=5.0)) as one, Instance(valkey, "b", timing) as frozen:
        assert await frozen.get(ONE) == "u0"
        await both_known(one, frozen)
        with silent(frozen):
            await eventually(lambda: not frozen.lane.state.ready and books.holders() == ["a-1"], what="reaped")
        await eventually(lambda: frozen.lane.state.ready and books.holders() == ["a-1", "b-2"], what="back")
        assert (True, True) not in frozen.changes
        await books.score({"u0": 1})


async def test_a_holder_that_slept_through_a_loss_is_not_taken_for_one_that_has_only_slept(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REAP_PERIOD", 0.1)
    timing = replace(SHORT, lease=0.6, settle=60.0)
    async with Instance(valkey, "a", timing) as one, Instance(valkey, "b", timing) as other:
        await both_known(one, other)
        with silent(one, other):
            since = asyncio.get_running_loop().time()
            await eventually(lambda: asyncio.get_running_loop().time() > since + 1.0, what="more than a lease")
            valkey.admin.flushall()
            asked = one.ask(ONE)
            one.thaw()
            await eventually(lambda: (True, True) in one.changes, what="settling")
            assert one.undecided == [asked]


async def test_where_an_acl_forbids_info_all_else_works(valkey: Valkey) -> None:
    rules = [rule for rule in acl_rules() if rule != "+info"]
    command: Any = valkey.admin.execute_command
    command("ACL", "SETUSER", "slb", "reset", "on", ">secret", *rules)
    async with Instance(valkey, "a", LASTING, url=f"{valkey.url}?username=slb&password=secret") as one:
        assert await one.get(ONE) == "u0"
        valkey.admin.flushall()
        await Books(valkey).score({"u0": 1})
        waits = await one.queue(ONE, Turn("", 1, 9))
        one.lane.release("u0")
        assert await waits.answer == "u0"


async def test_a_redis_that_was_replaced_while_nothing_was_under_way_is_asked_which_it_is(valkey: Valkey) -> None:
    """Else what another instance holds, and Redis has lost, would be given out once more."""
    calm = replace(LASTING, beat=60.0, lease=60.0)
    saved = valkey.directory.with_name(valkey.directory.name + "-saved")
    async with (
        Instance(valkey, "a", calm, reaping=False) as one,
        Instance(valkey, "b", calm, reaping=False) as other,
    ):
        one.lane.release(await one.get(ONE))
        await one.sent_all()
        other.lane.release(await other.get(ONE))
        await other.sent_all()
        shutil.copytree(valkey.directory / "appendonlydir", saved)
        assert await one.get(ONE) == "u0"
        await one.sent_all()
        valkey.kill()
        valkey.lose_data()
        shutil.move(saved, valkey.directory / "appendonlydir")
        valkey.start()
        await eventually(lambda: other.lane._line.is_cut, what="its connection has ended")
        request = other.ask(ONE, Turn("", 1, 5), patient=True)
        await eventually(lambda: other.lane.settling or request.answer.done(), what="the other is awaited")
        assert not request.answer.done()
        one.lane.send_all()
        await request.waits()
        assert Books(valkey).held("a-1") == {"u0": 1}
        one.lane.release("u0")
        assert await request.answer == "u0"
