"""What the dead held is given back once; what the frozen hold counts again."""

import asyncio
import time
from dataclasses import replace

import orjson
import pytest
from structlog.testing import capture_logs

from slb.balance.asking import Turn
from slb.control import keys, ledger
from slb.control.scripts import Reap, ledger_source
from tests.redis.ledger_rig import PATIENT, POOL, SHORT, Books, Instance, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon

pytestmark = pytest.mark.usefixtures("often_reaping")


def reaped(*fleet: Instance) -> int:
    return sum(each.metrics.ledger.reaped for each in fleet)


async def may_reap(*fleet: Instance) -> None:
    """Until each of them has seen Redis answer for a whole lease."""
    loop = asyncio.get_running_loop()

    def seen() -> bool:
        since = [
            moment for each in fleet for moment in (each.lane.epochs.steady_since, each.ledger.answering_since)
        ]
        return all(since) and loop.time() - max(since) > fleet[0].lane.timing.lease

    await eventually(seen, what="a lease")


async def test_what_a_dead_instance_held_is_taken_off_once(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other, Instance(valkey, "c") as third:
        for turn in range(9):
            await (one, other, third)[turn % 3].get(upstreams(1))
        await may_reap(one, other)
        await third.die()
        await books.score({"u0": 6})
        assert books.holders() == ["a-1", "b-1"]
        await eventually(lambda: reaped(one, other) == 1, what="counted")
        runs = books.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
        await eventually(lambda: books.redis.info("commandstats")["cmdstat_evalsha"]["calls"] > runs + 20)
        assert books.scores() == {"u0": 6}
        assert (reaped(one, other), one.metrics.ledger.drift + other.metrics.ledger.drift) == (1, 0)


async def test_only_an_instance_that_redis_answered_for_a_whole_lease_reaps(valkey: Valkey) -> None:
    """For a thawed or restored Redis every lease has ended."""
    books = Books(valkey)
    async with Instance(valkey, "b", replace(SHORT, beat=60.0, lease=60.0)) as other:
        await other.get(upstreams(1))
        books.redis.zadd(books.key["holders"], {"b-1": 1})
        runs = books.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
        await eventually(lambda: books.redis.info("commandstats")["cmdstat_evalsha"]["calls"] > runs + 5)
        assert books.scores() == {"u0": 1}
    async with Instance(valkey, "c") as third:
        await books.score({})
        await eventually(lambda: reaped(third) == 1, what="counted")


async def test_a_reap_that_runs_later_than_it_was_meant_to_reaps_nothing(valkey: Valkey) -> None:
    """A Redis that was frozen runs it when it is thawed, before any instance could renew a lease."""
    books = Books(valkey)
    async with Instance(valkey, "b", replace(SHORT, beat=60.0, lease=60.0), reaping=False) as other:
        await other.get(upstreams(1))
        books.redis.zadd(books.key["holders"], {"b-1": 1})
        now = other.lane.epochs.redis_time(asyncio.get_running_loop().time())
        late = await other.ledger._reap(POOL, 60_000, reap_until=now - 1000, patience=1000, period=1)
        assert (late.reaped, books.scores()) == (0, {"u0": 1})
        books.redis.delete(books.key["reaped"])
        assert (await other.ledger._reap(POOL, 60_000, now + 60_000, patience=1000, period=1)).reaped == 1
        assert books.scores() == {}


async def test_a_redis_that_was_frozen_for_longer_than_a_lease_reaps_nothing(valkey: Valkey) -> None:
    books = Books(valkey)
    brief = replace(SHORT, budget=0.2, deadline=0.2, beat=0.1, lease=0.5)
    async with Instance(valkey, "a", brief) as one, Instance(valkey, "b", brief) as other:
        await one.get(upstreams(1))
        await other.get(upstreams(1))
        await may_reap(one, other)
        valkey.freeze()
        since = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > since + 1.0, what="two leases")
        valkey.thaw()
        await eventually(lambda: one.lane.state.ready and other.lane.state.ready, what="both back")
        await may_reap(one, other)
        assert books.scores() == {"u0": 2}
        assert reaped(one, other) == 0
        assert books.holders() == ["a-1", "b-1"]


async def test_an_instance_that_was_frozen_waits_for_a_whole_lease_again_before_it_reaps(valkey: Valkey) -> None:
    """Whatever stopped it may have stopped the others too."""
    async with Instance(valkey, "a") as one:
        await may_reap(one)
        before = one.ledger.answering_since
        time.sleep(SHORT.lease)  # noqa: ASYNC251  nothing of this process runs, as under SIGSTOP
        await eventually(lambda: one.ledger.answering_since > before + SHORT.lease, what="reckoned anew")


async def test_an_instance_frozen_past_its_lease_counts_again_under_another_name_even_above_the_cap(
    valkey: Valkey,
) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as frozen:
        assert [await frozen.get(upstreams(1, 2)) for _ in range(2)] == ["u0", "u0"]
        await may_reap(one)
        frozen.freeze()
        await books.score({})
        assert [await one.get(upstreams(1, 2)) for _ in range(2)] == ["u0", "u0"]
        with capture_logs() as logs:
            frozen.thaw()
            await books.score({"u0": 4})
        assert books.holders() == ["a-1", "b-2"]
        assert [line["held"] for line in logs if line["event"] == "ledger_lease_ended"] == [2]
        frozen.lane.release("u0")
        await books.score({"u0": 3})
        assert await frozen.get(upstreams(1, 2)) == "refused: pool_saturated"


async def test_asks_of_a_frozen_instance_are_answered_once_it_goes_on(valkey: Valkey) -> None:
    async with Instance(valkey, "a") as one, Instance(valkey, "b", replace(SHORT, budget=60.0)) as frozen:
        await may_reap(one)
        frozen.freeze()
        asked = [frozen.ask(upstreams(2)) for _ in range(3)]
        await eventually(lambda: Books(valkey).holders() == ["a-1"], what="reaped")
        frozen.thaw()
        assert {await each.answer for each in asked} == {"u0", "u1"}
        assert frozen.undecided == []


async def test_releases_under_the_old_name_do_nothing(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as frozen:
        await frozen.get(upstreams(1))
        last = orjson.loads(frozen.connection.sent[-1][-3])
        await may_reap(one)
        frozen.freeze()
        await books.score({})
        frozen.thaw()
        await books.score({"u0": 1})
        late = {
            **last,
            "seq": 10_000,
            "full": False,
            "beat": False,
            "join": False,
            "release": {"u0": 1},
            "asks": [],
        }
        pool_keys = keys.pool_keys(POOL)
        arguments = orjson.dumps(late), "slb:granted:", POOL
        reply = books.redis.eval(ledger_source(), len(pool_keys), *pool_keys, *arguments)
        assert orjson.loads(reply)["gone"]
        assert books.scores() == {"u0": 1}


async def test_drift_is_counted_and_repaired(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert {await one.get(upstreams(3)) for _ in range(3)} == {"u0", "u1", "u2"}
        with books.redis.pipeline() as pipe:
            pipe.zadd(books.key["inflight"], {"u0": 5, "stranger": 2})
            pipe.zrem(books.key["inflight"], "u1")
            pipe.execute()
        await books.score({"u0": 1, "u1": 1, "u2": 1})
        await eventually(lambda: one.metrics.ledger.drift == 4 + 2 + 1, what="counted")


async def test_a_lease_that_ends_later_than_any_may_is_cut(valkey: Valkey) -> None:
    """By a wrong clock, or a hand: that holder's lease ends a lease from now."""
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        await may_reap(one)
        books.redis.zadd(books.key["holders"], {"unknown-1": "inf"})
        books.redis.hset(books.key["held:"] + "unknown-1", "u0", 3)
        await eventually(lambda: books.holders() == ["a-1"], what="reaped")
        assert one.metrics.ledger.repaired == 1
        await books.score({})


async def test_all_keys_of_a_pool_go_some_time_after_its_last_holder(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", replace(SHORT, life=1.0)) as one:
        await one.get(upstreams(1))
    await eventually(lambda: not books.redis.keys("slb:{*"), what="nothing left")


async def test_an_instance_that_may_not_reap_takes_no_turn_of_one_that_may(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", reaping=False) as one:
        await one.get(upstreams(1))
        reap = Reap(one.connection)
        newcomer = await reap(POOL, lease=1000, reap_until=0, patience=1000, period=60_000)
        assert newcomer.was_due
        books.redis.zadd(books.key["holders"], {"dead-1": 1})
        books.redis.hset(books.key["held:"] + "dead-1", "u0", 5)
        found = await reap(POOL, lease=1000, reap_until=1 << 52, patience=1000, period=60_000)
        assert found.reaped == 1
        assert not (await reap(POOL, lease=1000, reap_until=0, patience=1000, period=60_000)).was_due


async def test_in_one_period_one_that_may_not_reap_mends_and_the_others_leave_at_once(
    valkey: Valkey,
) -> None:
    """After a stall of Redis none of a large fleet may reap for a lease."""
    books = Books(valkey)
    async with Instance(valkey, "a", reaping=False) as one:
        await one.get(upstreams(1))
        reap = Reap(one.connection)
        books.redis.config_resetstat()
        due = [(await reap(POOL, 1000, reap_until=0, patience=1000, period=60_000)).was_due for _ in range(10)]
        assert due == [True] + [False] * 9
        types = books.redis.info("commandstats")["cmdstat_type"]["calls"]
        books.redis.config_resetstat()
        await reap(POOL, 1000, reap_until=0, patience=1000, period=60_000)
        assert books.redis.info("commandstats")["cmdstat_type"]["calls"] == 1 < types


async def test_a_turn_that_a_hand_wrote_and_that_never_ends_is_nobodys(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", reaping=False) as one:
        await one.get(upstreams(1))
        for words in (["SET", books.key["reaped"], "reaped 9999999999999"], ["RPUSH", books.key["reaped"], "x"]):
            books.redis.delete(books.key["reaped"])
            books.redis.execute_command(*words)
            assert (await Reap(one.connection)(POOL, 1000, 1 << 52, patience=1000, period=60_000)).was_due


async def test_damage_that_was_met_is_mended_whoevers_turn_it_is(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", reaping=False) as one:
        await one.get(upstreams(1))
        reap = Reap(one.connection)
        assert (await reap(POOL, 60_000, 1 << 52, patience=1000, period=60_000)).was_due
        books.redis.set(books.key["grants"], "x")
        assert (await reap(POOL, 60_000, 1 << 52, patience=1000, period=60_000)).repaired == 0
        assert (await reap(POOL, 60_000, 1 << 52, patience=1000, period=60_000, damaged="a-1")).repaired == 1


async def test_a_fleet_looks_no_oftener_than_a_few_times_a_second_whatever_its_size(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two holders and one call in 1,000 s each has looked once when it began, and looks again for damage."""
    monkeypatch.setattr(ledger, "_REAPS_A_SECOND", 0.001)
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        await one.get(upstreams(1))
        await other.get(upstreams(1))
        await eventually(lambda: one.ledger.scores != {} and other.ledger.scores != {}, what="a first look")
        one.ledger.scores.clear()
        other.ledger.scores.clear()
        calls = books.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
        await eventually(
            lambda: books.redis.info("commandstats")["cmdstat_evalsha"]["calls"] > calls + 6, what="beats"
        )
        assert (one.ledger.scores, other.ledger.scores) == ({}, {})
        one.ledger.bury(["gone"])
        await eventually(lambda: one.ledger.scores != {}, what="a look for the dead")


async def test_an_instance_that_stops_in_order_gives_all_back_and_is_no_holder_any_more(
    valkey: Valkey,
) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b", reaping=False) as other:
        await one.get(upstreams(1))
        await other.get(upstreams(1))
        await other.get(upstreams(1))
        await books.score({"u0": 3})
        await other.ledger.leave()
        assert books.scores() == {"u0": 1}
        assert books.holders() == ["a-1"]
        assert reaped(one) == 0


async def test_what_one_held_that_is_known_to_have_died_is_free_before_its_lease_ends(valkey: Valkey) -> None:
    books = Books(valkey)
    timing = replace(SHORT, beat=60.0, lease=60.0)
    async with Instance(valkey, "a", timing) as one, Instance(valkey, "b", timing) as other:
        assert await other.get(upstreams(1)) == "u0"
        assert await other.get(upstreams(1)) == "u0"
        await other.die()
        one.ledger.bury(["b"])
        await books.score({})
        await eventually(lambda: reaped(one) == 1, what="counted")
        assert books.holders() == ["a-1"]


async def test_a_lane_that_is_made_after_a_death_frees_what_was_held_in_its_pool(valkey: Valkey) -> None:
    timing = replace(SHORT, beat=60.0, lease=60.0)
    async with Instance(valkey, "b", timing) as other:
        await other.get(upstreams(1))
        await other.die()
    one = Instance(valkey, "a", timing)
    one.ledger.bury(["b"])
    async with one:
        await Books(valkey).score({})


async def test_a_request_that_waits_behind_the_dead_gets_the_slot_with_the_reap_whenever_its_view_was_last_named(
    valkey: Valkey,
) -> None:
    """The dead one named the same candidates long ago, and the one that asks beats later."""
    books = Books(valkey)
    async with Instance(valkey, "b", PATIENT) as other:
        assert await other.get(upstreams(1, 1)) == "u0"
    async with Instance(valkey, "a", replace(PATIENT, beat=6000.0, lease=6000.0)) as one:
        waits = await one.queue(upstreams(1, 1), Turn("", 1, 100))
        (view,) = books.redis.zrange(books.key["live"], 0, -1)
        books.redis.zadd(books.key["live"], {view: 1})
        one.ledger.bury(["b"])
        assert await soon(waits.answer) == "u0"
