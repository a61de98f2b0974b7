"""Jobs that GPUs have no time for, in a real Valkey: others go on, and it is known whose fault it was."""

import asyncio

import pytest

from slb.job import Claimed
from tests.redis.jobs_rig import AT, Begin, Here
from tests.support.waiting import eventually, within

BUSY = b"status 503: no"


async def until_claimed(here: Here, id_: str) -> Claimed:
    """The job, once it may begin; no other waits."""
    async with within(20):
        while (job := await here.lane.claim(AT)) is None:
            await asyncio.sleep(0.01)
    assert job.id == id_
    return job


async def set_aside(here: Here, *others: str) -> None:
    """A job for which a GPU was busy, before these others."""
    for id_ in ("busy", *others):
        await here.submit(id_)
    job = await here.claim()
    assert await here.lane.finish(job, "busy", BUSY, 0.01)
    assert await here.lane.finish(job, "busy", BUSY, 0.01)  # the reply was lost


async def busy_of(here: Here, id_: str = "busy") -> tuple[str, int, int, str]:
    shown = await here.lane.show(id_)
    assert shown is not None
    return shown.state, shown.attempts, shown.busy, shown.error


async def until_queued(here: Here) -> None:
    async with within(20):
        while await here.state("busy") != "queued":
            await asyncio.sleep(0.01)


async def test_others_go_first_and_it_counts_once_one_of_them_was_taken(begin: Begin) -> None:
    here = begin()
    await set_aside(here, "one", "two", "three")
    assert await busy_of(here) == ("retrying", 0, 0, BUSY.decode())
    await here.lane.finish(await here.claim(), "complete", b"1")
    await until_queued(here)
    assert await busy_of(here) == ("queued", 0, 1, BUSY.decode())
    job = await here.claim()
    assert (job.id, job.token, job.attempts, job.busy) == ("busy", "2.1", 1, 1)
    assert await here.lane.finish(job, "complete", b"1")
    assert await busy_of(here) == ("completed", 1, 1, "")
    assert (await here.lane.stats()).counts == {"submitted": 4, "busy": 1, "completed": 2}


async def test_where_gpus_take_none_it_is_not_the_job(begin: Begin) -> None:
    here = begin()
    await set_aside(here, "one")
    seen = len(here.pulses)
    await eventually(lambda: any(each.due for each in here.pulses[seen:]))
    assert await busy_of(here) == ("retrying", 0, 0, BUSY.decode())  # it has been due, and another waits
    assert (await here.claim()).id == "one"
    await here.lane.finish(Claimed("flux", "one", "1.2", 1, 0, "", "", ""), "busy", BUSY, 2.0)
    job = await until_claimed(here, "busy")
    assert job.busy == 0
    assert await here.lane.finish(job, "complete", b"1")
    assert (await until_claimed(here, "one")).busy == 1  # now one was taken


async def test_one_that_runs_for_longer_than_the_refusal_took_was_taken(begin: Begin) -> None:
    here = begin()
    await set_aside(here, "one", "two")
    assert (await here.claim()).id == "one"  # it runs
    async with within(20):
        while (await busy_of(here))[2] == 0:
            await asyncio.sleep(0.01)
    assert (await here.claim()).id == "busy"


async def test_alone_it_is_back_at_once_unless_its_gpu_asked_for_time(begin: Begin) -> None:
    here = begin()
    await set_aside(here)
    assert await busy_of(here) == ("queued", 0, 0, BUSY.decode())
    assert await here.lane.finish(await here.claim(), "put_off", BUSY, 60.0)
    assert await busy_of(here) == ("retrying", 0, 0, BUSY.decode())
    assert await here.lane.claim(AT) is None


@pytest.mark.parametrize("end", ["fall", "revive"])
async def test_elsewhere_and_after_a_revival_it_begins_anew(begin: Begin, end: str) -> None:
    here = begin()
    await set_aside(here, "one", "two")
    await here.lane.finish(await here.claim(), "complete", b"1")
    await until_queued(here)
    job = await here.claim()
    assert (job.id, job.busy) == ("busy", 1)
    if end == "fall":
        assert await here.lane.finish(job, "fall", BUSY, on="small")
        assert (await here.claim("small")).busy == 0
    else:
        assert await here.lane.finish(job, "give_up", BUSY)
        assert await here.lane.revive("busy")
        job = await here.claim()
        assert (job.id, job.busy) == ("busy", 0)
