"""Many asks of one batch, in a real Valkey: what they change is written together, as if each had been alone."""

import asyncio
from typing import Any

import pytest

from slb.control import keys
from slb.errors import ScriptFailed
from tests.redis.jobs_rig import AT, MODEL, Begin
from tests.support.valkey import Valkey

KEYS = dict(zip(("job", "run", "result", "queue"), keys.job_keys(MODEL), strict=False))
RUNNING, ENDED = keys.job_keys(MODEL)[10], keys.job_keys(MODEL)[12]


async def test_each_ask_of_a_batch_sees_what_those_before_it_did(begin: Begin) -> None:
    here = begin()
    asked: asyncio.Future[list[Any]] = asyncio.gather(
        *(here.submit(id_) for id_ in "abcdef"),
        here.lane.claim(AT),
        here.lane.cancel("b"),
        here.lane.claim(AT),
        here.submit("g"),
        here.lane.show("c"),
        here.lane.ids("queued", 0, 10),
        here.lane.claim(AT),
        here.submit("a"),
        here.lane.ids("processing", 0, 10),
    )
    *taken, one, cancelled, two, last, shown, queued, three, again, running = await asked
    assert taken == ["new"] * 6
    assert here.lane.batches <= 2
    assert (one.id, cancelled, two.id, last) == ("a", "queued", "c", "new")
    assert (shown.state, queued) == ("processing", list("defg"))
    assert (three.id, again, sorted(running)) == ("d", "processing", ["a", "c", "d"])


async def test_what_is_asked_upon_an_answer_goes_with_what_was_asked_meanwhile(begin: Begin) -> None:
    here, rounds, callers = begin(), 20, list[asyncio.Task[None]]()

    async def asks() -> None:
        for _ in range(rounds):
            await here.lane.show("none")

    await here.lane.show("none")
    before = here.lane.batches
    for _ in range(4):
        callers.append(asyncio.create_task(asks()))
        for _ in range(3):  # turns of the loop: the ask before is on its way
            await asyncio.sleep(0)
    await asyncio.gather(*callers)
    assert here.lane.batches - before < 1.5 * rounds  # each its own: twice as many; a few have no ask


async def test_jobs_that_go_back_in_a_batch_are_claimed_before_those_behind_them(begin: Begin) -> None:
    here = begin()
    for id_ in "abcd":
        await here.submit(id_)
    first, second = [await here.claim() for _ in range(2)]
    answers: list[Any] = await asyncio.gather(
        here.lane.finish(second, "back"),
        here.lane.claim(AT),
        here.lane.finish(first, "back"),
        *(here.lane.claim(AT) for _ in range(4)),
    )
    _, claimed, _, *others = answers
    assert [claimed.id, *(job and job.id for job in others)] == ["b", "a", "c", "d", None]
    assert (await here.lane.stats()).queued == 0


async def test_the_sets_are_what_they_are_job_by_job(begin: Begin, valkey: Valkey) -> None:
    here, admin = begin(), valkey.admin
    await asyncio.gather(*(here.submit(f"{number:03}") for number in range(100)))
    jobs = await asyncio.gather(*(here.claim() for _ in range(100)))
    assert [job.id for job in jobs] == [f"{number:03}" for number in range(100)]
    assert admin.zcard(RUNNING) == 100
    assert not admin.exists(f"{KEYS['queue']}normal")
    await asyncio.gather(*(here.lane.finish(job, "complete", b"1") for job in jobs[:60]))
    assert (admin.zcard(RUNNING), admin.zcard(ENDED)) == (40, 60)
    stats = await here.lane.stats()
    assert (stats.queued, stats.processing, stats.counts["completed"]) == (0, 40, 60)


async def test_what_is_no_set_fails_those_that_change_it_and_no_other(begin: Begin, valkey: Valkey) -> None:
    here, admin = begin(), valkey.admin
    await here.submit("one")
    await here.submit("two")
    admin.set(RUNNING, "damaged")
    claimed, shown = await asyncio.gather(here.lane.claim(AT), here.lane.show("two"), return_exceptions=True)
    assert isinstance(claimed, ScriptFailed)
    assert "WRONGTYPE" in str(claimed)
    assert not isinstance(shown, BaseException)
    admin.delete(RUNNING)
    assert (await here.claim()).id in ("one", "two")


@pytest.mark.parametrize("count", [1, 7])
async def test_numbers_grow_from_batch_to_batch(begin: Begin, count: int, valkey: Valkey) -> None:
    here, seen = begin(), list[int]()
    for batch in range(3):
        ids = [f"{batch}-{number}" for number in range(count)]
        await asyncio.gather(*(here.submit(id_) for id_ in ids), here.lane.show("none"))
        jobs = await asyncio.gather(*(here.claim() for _ in ids))
        assert [job.id for job in jobs] == ids
        seen += [int(job.token.partition(".")[2]) for job in jobs]
    assert seen == sorted(set(seen))


async def test_claims_whose_jobs_are_long_go_in_several_batches(begin: Begin) -> None:
    """A reply has a bound, and all of it is made in Redis's one thread."""
    here, count, length = begin(), 12, 700_000
    for number in range(count):
        await here.submit(f"{number:02}", length=length)
    before = here.lane.batches
    jobs = await asyncio.gather(*(here.claim() for _ in range(count)))
    assert sorted(job.id for job in jobs) == [f"{number:02}" for number in range(count)]
    assert here.lane.batches - before >= 3
    short = [await here.submit(f"s{number}") for number in range(100)]
    before = here.lane.batches
    await asyncio.gather(*(here.claim() for _ in short))
    assert here.lane.batches - before <= 2
