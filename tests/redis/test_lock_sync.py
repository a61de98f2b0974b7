"""What a GPU says that it runs: one instance asks it, and what dead ones had at an idle one is free."""

import asyncio
from dataclasses import replace

from slb.balance.asking import Turn
from tests.redis.jobs_rig import AT, Begin
from tests.redis.ledger_rig import POOL, SHORT, Books, Instance, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon, until

ELSEWHERE = "10.0.0.2:80"
SILENCE = 0.5


async def test_one_instance_at_a_time_asks_a_gpu(begin: Begin) -> None:
    one, other = begin("one"), begin("other")
    assert await one.lane.may_look(AT, 60.0)
    assert not await other.lane.may_look(AT, 60.0)
    assert not await one.lane.may_look(AT, 60.0)
    assert await other.lane.may_look(ELSEWHERE, 0.05)

    async def may() -> bool:
        return await one.lane.may_look(ELSEWHERE, 60.0)

    await until(may, bool)


async def test_what_a_dead_instance_ran_at_an_idle_gpu_begins_again_before_its_lease_ends(begin: Begin) -> None:
    one, other = begin("one", lease=60.0), begin("other", lease=60.0)
    for id_ in ("there", "elsewhere"):
        await one.submit(id_)
    for member, id_ in ((AT, "there"), (ELSEWHERE, "elsewhere")):
        claimed = await one.lane.claim(member)
        assert claimed is not None
        assert claimed.id == id_
    one.task.cancel()
    found = await until(lambda: other.lane.silent(SILENCE), bool)
    assert sorted(found) == [AT, ELSEWHERE]
    assert await other.lane.idle(AT, SILENCE) == 1
    again = await other.claim()
    assert (again.id, again.token, again.failures) == ("there", "2.1", 0)
    assert await other.state("elsewhere") == "processing"


async def test_an_instance_that_calls_keeps_its_attempts_whatever_the_gpu_says(begin: Begin) -> None:
    one, other = begin("one"), begin("other")
    await one.submit("job")
    job = await one.claim()
    await asyncio.sleep(2 * SILENCE)  # that is what is tested: it has gone on calling
    assert await other.lane.silent(SILENCE) == []
    assert await other.lane.idle(AT, SILENCE) == 0
    assert await one.lane.finish(job, "complete", b"1")


async def test_a_slot_that_a_dead_instance_holds_of_an_idle_gpu_goes_to_the_next_that_waits(valkey: Valkey) -> None:
    """Its lease has long to run."""
    long, books = replace(SHORT, lease=60.0), Books(valkey)
    async with Instance(valkey, "dead", long) as dead, Instance(valkey, "alive", long) as alive:
        one = upstreams(1, capacity=1)
        assert await dead.get(one) == "u0"
        waits = await alive.queue(one, Turn("", 1, 10))
        await dead.die()
        member = "u0"
        freed = await until(lambda: alive.ledger.idle(POOL, member, SILENCE), bool)
        assert freed == 1
        assert await soon(waits.answer) == "u0"
        await books.score({"u0": 1})


async def test_a_slot_of_an_instance_that_calls_is_its_own_whatever_the_gpu_says(valkey: Valkey) -> None:
    async with Instance(valkey, "one") as one, Instance(valkey, "other") as other:
        assert await one.get(upstreams(1, capacity=1)) == "u0"
        await asyncio.sleep(SILENCE)  # that is what is tested: it has gone on calling
        assert await other.ledger.idle(POOL, "u0", SILENCE) == 0
        assert await other.ledger.in_flight(POOL, "u0") == 1


async def test_one_that_was_only_frozen_counts_its_slot_again(valkey: Valkey) -> None:
    books = Books(valkey)
    long = replace(SHORT, lease=60.0)
    async with Instance(valkey, "frozen", long) as frozen, Instance(valkey, "other", long) as other:
        assert await frozen.get(upstreams(1)) == "u0"
        await frozen.sent_all()
        frozen.freeze()
        await until(lambda: other.ledger.idle(POOL, "u0", SILENCE), bool)
        assert books.scores() == {}
        frozen.thaw()
        await books.score({"u0": 1})
        frozen.lane.release("u0")
        await eventually(lambda: books.scores() == {})
