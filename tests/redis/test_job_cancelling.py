"""What GPUs run on their own for jobs that were cancelled: somebody is told, who can cancel it there."""

import asyncio

from slb.control.job_replies import Left
from tests.redis.jobs_rig import AT, Begin
from tests.support.waiting import eventually


async def test_what_a_gpu_runs_for_a_job_that_waits_is_told_to_one_that_dispatches(begin: Begin) -> None:
    dead, here, face = begin("dead"), begin("here"), begin("face", dispatches=False)
    for id_ in ("followed", "new"):
        await here.submit(id_)
    job = await dead.claim()
    await dead.lane.finish(job, "fall", b"it failed", on="small")
    assert await dead.lane.note_remote(await dead.claim("small"), "its own id")
    dead.task.cancel()
    await asyncio.wait([dead.task])
    await here.lane.bury("dead")
    assert await face.lane.cancel("followed") == "queued"
    assert await face.lane.cancel("new") == "queued"
    await eventually(lambda: here.left == [Left("followed", AT, "small", "its own id")])
    assert face.left == []


async def test_what_waits_past_its_deadline_is_told_too(begin: Begin) -> None:
    dead, here = begin("dead"), begin("here")
    await here.submit("late", deadline=300)
    assert await dead.lane.note_remote(await dead.claim(), "remote-1")
    dead.task.cancel()
    await asyncio.wait([dead.task])
    await here.lane.bury("dead")
    await eventually(lambda: here.left == [Left("late", AT, "", "remote-1")])
    assert await here.state("late") == "failed"


async def test_what_was_told_to_one_that_had_died_is_told_to_another_once_that_is_known(begin: Begin) -> None:
    dead, here = begin("dead"), begin("here")
    await here.submit("one")
    assert await dead.lane.note_remote(await dead.claim(), "remote-1")
    dead.task.cancel()
    await asyncio.wait([dead.task])
    assert await here.lane.cancel("one") == "processing"
    assert here.left == []
    await here.lane.bury("dead")
    await eventually(lambda: here.left == [Left("one", AT, "", "remote-1")])


async def test_a_job_that_was_tried_again_left_nothing_behind(begin: Begin) -> None:
    here = begin()
    await here.submit("one")
    job = await here.claim()
    assert await here.lane.note_remote(job, "remote-1")
    await here.lane.finish(job, "retry", b"it failed", 60.0)
    assert await here.lane.cancel("one") == "retrying"
    await here.lane.stats()
    assert (here.left, here.dropped) == ([], [])
