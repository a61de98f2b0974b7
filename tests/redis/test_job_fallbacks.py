"""Jobs that go on at another model, in a real Valkey: they stay where they are, and are the same jobs."""

import asyncio

from slb.job import ModelConfig
from tests.redis.jobs_rig import AT, Begin
from tests.support.waiting import eventually

SMALL = "flux-small"


async def test_a_job_that_goes_on_elsewhere_is_claimed_there_alone_with_attempts_anew(begin: Begin) -> None:
    here = begin()
    for id_ in ("one", "two"):
        await here.submit(id_)
    job = await here.claim()
    await here.lane.finish(job, "retry", b"it failed")
    job = await here.claim()
    assert (job.id, job.failures) == ("one", 1)
    assert await here.lane.finish(job, "fall", b"it failed", on=SMALL)
    assert here.pulses[-1].queued == {"": 1, SMALL: 1}
    assert (await here.claim()).id == "two"
    assert await here.lane.claim(AT) is None
    again = await here.claim(SMALL)
    assert (again.id, again.token, again.attempts, again.failures, again.on) == ("one", "3.1", 3, 0, SMALL)
    shown = await here.lane.show("one")
    assert shown is not None
    assert (shown.on, shown.state, shown.error) == (SMALL, "processing", "it failed")
    assert await here.lane.finish(again, "complete", b"1")
    assert (await here.lane.stats()).counts == {"submitted": 2, "retried": 1, "fallen": 1, "completed": 1}


async def test_a_move_that_is_written_twice_moves_once(begin: Begin) -> None:
    here = begin()
    await here.submit("one")
    job = await here.claim()
    assert await here.lane.finish(job, "fall", b"it failed", on=SMALL)
    assert await here.lane.finish(job, "fall", b"it failed", on=SMALL)
    assert (await here.lane.stats()).counts["fallen"] == 1
    await here.claim(SMALL)
    assert not await here.lane.finish(job, "fall", b"it failed", on=SMALL)


async def test_what_waits_at_a_model_that_has_no_gpu_is_taken_by_another(begin: Begin) -> None:
    here = begin()
    await here.submit("first")
    job = await here.claim()
    here.running.clear()
    await here.lane.finish(job, "back")
    await here.submit("second")
    taken = [await here.claim(SMALL, "", SMALL) for _ in range(2)]
    assert [(each.id, each.on, each.remote) for each in taken] == [("first", SMALL, ""), ("second", SMALL, "")]
    assert await here.lane.finish(taken[0], "retry", b"it failed")
    await eventually(lambda: here.pulses[-1].queued.get(SMALL) == 1)
    assert await here.lane.claim(AT) is None
    assert (await here.claim(SMALL)).failures == 1


async def test_a_job_in_the_other_line_keeps_its_place_can_be_cancelled_and_is_listed(begin: Begin) -> None:
    here = begin()
    jobs = []
    for id_ in "abc":
        await here.submit(id_)
        jobs.append(await here.claim())
    for job in reversed(jobs):
        await here.lane.finish(job, "fall", b"it failed", on=SMALL)
    assert await here.lane.ids("queued", 0, 10) == ["a", "b", "c"]
    shown = await here.lane.show("b")
    assert shown is not None
    assert shown.position == 1
    assert await here.lane.cancel("a") == "queued"
    assert (await here.claim(SMALL)).id == "b"
    assert (await here.lane.stats()).queued == 1


async def test_classes_take_turns_at_the_other_model_too(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig.model_validate({"priorities": "high=3,low=1"})
    for number in range(8):
        for priority in ("high", "low"):
            await here.submit(f"{priority[0]}{number}", priority=priority)
    jobs = [await here.claim() for _ in range(16)]
    await asyncio.gather(*(here.lane.finish(job, "fall", b"it failed", on=SMALL) for job in jobs))
    taken = [(await here.claim(SMALL)).id[0] for _ in range(8)]
    assert (taken.count("h"), taken.count("l")) == (6, 2)


async def test_a_dead_job_that_begins_again_begins_at_its_own_model(begin: Begin) -> None:
    here = begin()
    await here.submit("one")
    await here.lane.finish(await here.claim(), "fall", b"it failed", on=SMALL)
    await here.lane.finish(await here.claim(SMALL), "give_up", b"it failed")
    assert await here.lane.revive("one")
    again = await here.claim()
    assert (again.id, again.on, again.failures) == ("one", "", 0)


async def test_what_a_dead_instance_ran_at_another_model_begins_again_there(begin: Begin) -> None:
    one, other = begin("one"), begin("other")
    await one.submit("job")
    await one.lane.finish(await one.claim(), "fall", b"it failed", on=SMALL)
    job = await one.claim(SMALL)
    assert await one.lane.note_remote(job, "remote-1")
    one.task.cancel()
    await asyncio.wait([one.task])
    await other.lane.bury("one")
    assert await other.lane.claim(AT) is None
    assert await other.lane.claim(AT, SMALL, (SMALL,)) is None
    again = await other.lane.adopt(SMALL)
    assert again is not None
    assert (again.id, again.on, again.remote, again.at) == ("job", SMALL, "remote-1", AT)
