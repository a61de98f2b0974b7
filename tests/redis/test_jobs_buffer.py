"""Jobs that wait for their tasks, in a real Valkey."""

import pytest

from slb.job import Buffered
from tests.redis.jobs_rig import Begin, Here
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

HOUR = 3600.0


@pytest.fixture
async def here(begin: Begin) -> Here:
    """One instance."""
    made = begin()
    assert isinstance(made, Here)
    return made


async def buffer(here: Here, *ids: str, **more: int) -> None:
    for id_ in ids:
        assert await here.submit(id_, "normal", "", is_buffered=1, **more) == "new"


async def test_a_job_that_waits_for_its_task_is_claimed_once_that_was_sent(here: Here) -> None:
    await buffer(here, "one")
    await here.submit("plain")
    assert (await here.state("one"), (await here.claim()).id) == ("buffered", "plain")
    assert await here.lane.claim("10.0.0.1:80") is None
    stats = await here.lane.stats()
    assert (stats.buffered, stats.queued, stats.processing) == (1, 0, 1)
    assert await here.lane.ids("buffered", 0, 10) == ["one"]
    assert await here.lane.release("one", 3) == "queued"
    shown = await here.lane.show("one")
    assert shown is not None
    assert (shown.task_retries, shown.position) == (3, 0)
    job = await here.claim()
    assert (job.id, await here.lane.release("one", 4)) == ("one", "processing")
    assert await here.lane.finish(job, "complete", b"1")
    assert await here.lane.release("one", 5) == "completed"
    assert await here.lane.release("none", 0) is None
    assert await here.submit("one", is_buffered=1) == "completed"


async def test_jobs_keep_the_order_of_their_submission_whichever_task_comes_first(here: Here) -> None:
    await buffer(here, "a", "b", "c")
    for id_ in "cab":
        await here.lane.release(id_, 0)
    assert [(await here.claim()).id for _ in "abc"] == ["a", "b", "c"]


async def test_only_a_job_that_was_never_begun_waits_for_its_task_again(here: Here) -> None:
    await buffer(here, "one")
    assert not await here.lane.withhold("one", HOUR)
    await here.lane.release("one", 0)
    assert await here.lane.withhold("one", HOUR)
    assert (await here.state("one"), await here.lane.claim("10.0.0.1:80")) == ("buffered", None)
    await here.lane.release("one", 1)
    job = await here.claim()
    assert not await here.lane.withhold("one", HOUR)
    await here.lane.finish(job, "retry", b"it failed", 0.0)
    await eventually(lambda: sum(here.pulses[-1].queued.values()) == 1)
    assert not await here.lane.withhold("one", HOUR)
    assert not await here.lane.withhold("none", HOUR)
    assert (await here.claim()).id == "one"


async def test_a_job_is_due_until_its_task_was_made_and_again_where_that_may_be_lost(begin: Begin) -> None:
    here, other = begin("a"), begin("b")
    await buffer(here, "one", "two")
    assert await here.lane.buffered(HOUR, 1) == [Buffered("one", "1", 0)]
    assert await other.lane.buffered(0.0, 10) == [Buffered("two", "2", 0)]  # the first is being made
    assert await here.lane.note_task(Buffered("one", "1", 0), 1, 0.0)
    taken = sorted(await other.lane.buffered(HOUR, 10))
    assert taken == [Buffered("one", "1", 1), Buffered("two", "2", 0)]
    await here.lane.release("two", 0)
    assert not await here.lane.note_task(taken[1], 1, HOUR)


async def test_a_job_ends_while_it_waits_for_its_task(here: Here, valkey: Valkey) -> None:
    await buffer(here, "one")
    await buffer(here, "late", deadline=1)
    assert await here.lane.cancel("one") == "buffered"
    await eventually(lambda: here.lane.batches > 3)
    assert [await here.state(each) for each in ("one", "late")] == ["cancelled", "failed"]
    assert await here.lane.buffered(HOUR, 10) == []
    assert await here.lane.release("one", 0) == "cancelled"


async def test_a_job_with_a_callback_has_one_too(here: Here) -> None:
    await buffer(here, "one", calls_back=1)
    await here.lane.cancel("one")
    assert [each.id for each in await here.lane.due_callbacks(HOUR, 10)] == ["one"]
    await buffer(here, "two")
    await here.lane.cancel("two")
    assert await here.lane.due_callbacks(HOUR, 10) == []
