"""What GPUs run on their own and nobody follows: it waits for a follower, and for no slot."""

from redis.asyncio import Redis

from slb.control import keys
from slb.control.job_news import read_move
from slb.control.jobs import JobLane
from slb.job import Claimed, JobShown
from tests.redis.jobs_rig import AT, Begin, Here
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon

ELSEWHERE = "10.0.0.9:80"


async def adrift(begin: Begin, id_: str = "long") -> Here:
    """An instance; another began a job at AT, and has died."""
    dead, here = begin("dead"), begin("here")
    await here.submit(id_, deadline=3_600_000)
    assert await dead.lane.note_remote(await dead.claim(), "remote-1")
    dead.task.cancel()
    await here.lane.bury("dead")
    return here


async def adopted(lane: JobLane) -> Claimed:
    job = await lane.adopt("")
    assert job is not None
    return job


async def shown(here: Here, id_: str = "long") -> JobShown:
    job = await here.lane.show(id_)
    assert job is not None
    return job


async def test_it_is_no_slots_to_take_and_each_reply_says_that_it_waits(begin: Begin) -> None:
    here = await adrift(begin)
    await here.submit("next")
    await eventually(lambda: here.pulses[-1].adrift == {"": 1})
    assert here.pulses[-1].queued == {"": 1}
    assert (await here.claim()).id == "next"
    assert await here.lane.claim(ELSEWHERE) is None
    assert (await here.lane.ids("queued", 0, 9), (await here.lane.stats()).queued) == (["long"], 1)


async def test_one_adopts_it_and_it_is_shown_where_it_runs(begin: Begin) -> None:
    here, other = await adrift(begin), begin("other")
    job = await adopted(here.lane)
    assert (job.id, job.remote, job.at, job.attempts, job.on) == ("long", "remote-1", AT, 2, "")
    assert await other.lane.adopt("") is None
    now = await shown(here)
    assert (now.state, now.member, now.priority) == ("processing", AT, "normal")
    assert await here.lane.finish(job, "complete", b"1")
    assert (await shown(here)).state == "completed"


async def test_of_several_each_is_adopted_once_those_submitted_first_first(begin: Begin) -> None:
    dead, here = begin("dead"), begin("here")
    for number in range(5):
        await here.submit(f"job-{number}", priority="high" if number % 2 else "normal")
    for _ in range(5):
        assert await dead.lane.note_remote(await dead.claim(), "remote")
    dead.task.cancel()
    await here.lane.bury("dead")
    found = [(await adopted(here.lane)).id for _ in range(5)]
    assert found == [f"job-{number}" for number in range(5)]
    assert await here.lane.adopt("") is None


async def test_given_back_it_waits_for_another_follower_and_costs_no_attempt(begin: Begin) -> None:
    here = await adrift(begin)
    for _ in range(2):
        job = await adopted(here.lane)
        assert (job.attempts, job.remote) == (2, "remote-1")
        assert await here.lane.finish(job, "back")


async def test_what_its_gpu_does_not_know_any_more_begins_anew_with_a_slot_at_its_old_place(begin: Begin) -> None:
    here = await adrift(begin)
    await here.submit("later")
    job = await adopted(here.lane)
    assert await here.lane.note_remote(job, "")
    assert await here.lane.finish(job, "back")
    assert await here.lane.adopt("") is None
    again = await here.claim()
    assert (again.id, again.remote) == ("long", "")


async def test_no_time_of_its_end_is_told_and_a_dead_one_that_is_revived_waits_for_a_slot(begin: Begin) -> None:
    here = await adrift(begin)
    assert await here.lane.line("long") is None
    assert await here.lane.finish(await adopted(here.lane), "give_up", b"it failed")
    assert await here.lane.revive("long")
    assert await here.lane.adopt("") is None
    assert (await here.claim()).id == "long"


async def test_its_gpu_reports_with_the_number_that_it_was_begun_with(begin: Begin) -> None:
    here = await adrift(begin)
    job = await adopted(here.lane)
    first, other = "1." + job.token.partition(".")[2], "7." + job.token.partition(".")[2]
    assert await here.lane.report("long", first, b'"it ended"', b"")
    assert await here.lane.reported("long") == '"it ended"'
    assert not await here.lane.report("long", other, b'"stale"', b"")
    assert await here.lane.note_remote(job, "")
    assert not await here.lane.report("long", first, b'"stale"', b"")


async def test_what_a_gpu_reports_of_an_attempt_says_nothing_of_the_next_one(begin: Begin) -> None:
    dead, here = begin("dead"), begin("here")
    await here.submit("job")
    first = await dead.claim()
    assert await here.lane.report("job", first.token, b'{"status": "error"}', b"")
    dead.task.cancel()
    await here.lane.bury("dead")  # before it has noted where its GPU runs it
    assert not await here.lane.report("job", first.token, b'{"status": "error"}', b"")  # nobody follows it
    again = await here.claim()
    assert await here.lane.note_remote(again, "remote-2")
    assert await here.lane.reported("job") is None
    assert await here.lane.report("job", again.token, b'{"status": "success"}', b"")
    assert await here.lane.reported("job") == '{"status": "success"}'


async def test_how_far_it_has_come_is_shown_until_another_attempt_begins_from_nothing(begin: Begin) -> None:
    here, other = begin("here"), begin("other")
    await here.submit("job")
    job = await here.claim()
    assert await here.lane.note_remote(job, "remote-1")
    await here.lane.note_progress(job, b'{"progress":0.4}')
    before = await shown(here, "job")
    await here.lane.note_progress(job, b'{"progress":0.4}')
    assert await shown(here, "job") == before
    assert await other.lane.report("job", job.token, b"", b'{"progress":0.5}')
    now = await shown(here, "job")
    assert (now.progress, now.moves) == ('{"progress":0.5}', before.moves + 1)
    assert await here.lane.reported("job") is None
    await here.lane.note_progress(job._replace(token="7.1"), b'{"progress":0.9}')
    assert (await shown(here, "job")) == now
    assert await here.lane.finish(job, "retry", b"it failed", 0.0)
    await eventually(lambda: here.pulses[-1].queued == {"": 1})
    again = await here.claim()
    assert (await shown(here, "job")).progress == ""
    await here.lane.note_progress(again, b'{"progress":0.1}')
    assert await here.lane.finish(again, "give_up", b"it failed")
    assert (await shown(here, "job")).progress == '{"progress":0.1}'


async def test_an_end_that_its_gpu_has_reported_is_not_lost_to_progress_that_comes_late(begin: Begin) -> None:
    here = begin("here")
    await here.submit("job")
    job = await here.claim()
    assert await here.lane.report("job", job.token, b'{"status":"success"}', b"")
    assert await here.lane.report("job", job.token, b"", b'{"progress":0.9}')
    assert await here.lane.reported("job") == '{"status":"success"}'


async def test_progress_is_published_to_those_who_follow_the_job(begin: Begin, valkey: Valkey) -> None:
    here = begin("here")
    await here.submit("job")
    job = await here.claim()
    await here.lane.watch(60.0)
    async with Redis.from_url(valkey.url).pubsub() as news:
        await news.subscribe(keys.JOBS_CHANNEL)
        await soon(news.get_message(timeout=None))
        await here.lane.note_progress(job, b'{"progress":0.4}')
        message = await soon(news.get_message(timeout=None))
    moved = read_move(message["data"].decode())
    assert moved is not None
    assert (moved.state, moved.progress) == ("processing", '{"progress":0.4}')
