"""Callers that wait for the ends of jobs."""

import asyncio
import gc

import pytest

from slb.errors import UNKNOWN_JOB, Refused
from slb.job import JobShown, JobState
from slb.jobs import waits
from slb.jobs.ends import Ends
from slb.jobs.waits import Waits
from tests.support.waiting import eventually, soon


class Job:
    """One job, and how often it was looked at."""

    def __init__(self) -> None:
        self.state: JobState = "queued"
        self.looks = 0
        self.is_known = True
        self.ends = Ends()
        self.waits = Waits(self.look, self.ends)

    async def look(self, id_: str, model: str) -> JobShown:
        self.looks += 1
        state = self.state
        await asyncio.sleep(0)
        if not self.is_known:
            raise Refused(UNKNOWN_JOB, "it is no job")
        return JobShown(id_, model, state, "normal", 0, 0, 0.0, 0.0, "", "", "", 0, "", -1, 1.0, -1, "", "", 0)

    def tell(self) -> None:
        self.ends.tell("flux", "one")


def everyone() -> bool:
    return True


async def waiting(job: Job, callers: int) -> list[asyncio.Task[JobShown]]:
    """So many callers that have looked for the first time."""
    tasks = [asyncio.create_task(job.waits.until_ended("one", "flux", 600, everyone)) for _ in range(callers)]
    await eventually(lambda: job.looks >= callers)
    return tasks


async def test_all_that_wait_for_one_job_share_a_look_and_see_its_end() -> None:
    job = Job()
    tasks = await waiting(job, 100)
    await asyncio.sleep(0)
    before = job.looks
    job.state = "completed"
    job.tell()
    ended = await asyncio.gather(*tasks)
    assert [each.state for each in ended] == ["completed"] * 100
    assert job.looks - before <= 2


async def test_the_ends_of_other_jobs_cost_it_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_LOOK", 600.0)
    job = Job()
    (task,) = await waiting(job, 1)
    for number in range(100):
        job.ends.tell("flux", f"other-{number}")
        job.ends.tell("other", "one")
        await asyncio.sleep(0)
    assert job.looks == 1
    job.state = "completed"
    job.tell()
    assert (await soon(task)).state == "completed"
    assert not job.ends._waiting


async def test_without_word_of_its_end_it_is_looked_at_again_and_again() -> None:
    job = Job()
    (task,) = await waiting(job, 1)
    await eventually(lambda: job.looks >= 3)
    job.state = "failed"
    assert (await task).state == "failed"


async def test_a_job_that_is_gone_is_refused_for_all() -> None:
    job = Job()
    tasks = await waiting(job, 3)
    job.is_known = False
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results] == [Refused] * 3


async def test_a_look_that_is_refused_once_nobody_waits_any_more_is_no_fault_of_the_program() -> None:
    job, faults = Job(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    (task,) = await waiting(job, 1)
    task.cancel()
    await asyncio.wait((task,))
    del task  # it knows the look
    job.is_known = False
    job.tell()
    await eventually(lambda: not job.waits._looking)
    await asyncio.sleep(0)
    gc.collect()  # asyncio tells of an exception that nobody has asked for when its task goes
    assert job.looks == 2
    assert faults == []


async def test_a_wait_that_is_not_wanted_ends_and_so_do_the_looks() -> None:
    job = Job()
    is_wanted = True
    task = asyncio.create_task(job.waits.until_ended("one", "flux", 600, lambda: is_wanted))
    await eventually(lambda: job.looks == 2)
    is_wanted = False
    assert (await task).state == "queued"
    await eventually(lambda: not job.waits._turns and not job.waits._looking)


@pytest.mark.parametrize("seconds", [0.0, 0.01])
async def test_a_wait_is_no_longer_than_it_was_asked_for(seconds: float) -> None:
    job = Job()
    assert (await job.waits.until_ended("one", "flux", seconds, everyone)).state == "queued"
