"""Instances that die, replies that are lost, a Redis that is silent: whose an attempt is then."""

import asyncio
import time

import pytest

from slb.control import keys
from slb.control.ask_lane import AskTiming
from slb.errors import RedisUnavailable
from tests.redis.jobs_rig import AT, MODEL, Begin
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until_found


async def test_the_jobs_of_a_dead_instance_begin_elsewhere_when_its_lease_is_over(begin: Begin) -> None:
    one, other = begin("one", lease=0.2), begin("other", lease=10.0)
    await one.submit("job")
    job = await one.claim()
    one.task.cancel()
    again = await until_found(lambda: other.lane.claim(AT))
    assert again is not None
    assert (again.id, again.token, again.attempts, again.failures) == ("job", "2.1", 2, 0)
    assert not await other.lane.finish(job, "complete", b"1")


async def test_the_jobs_of_an_instance_that_died_before_the_clock_was_set_back_begin_elsewhere(
    begin: Begin, valkey: Valkey
) -> None:
    one, other = begin("one", lease=0.2), begin("other", lease=0.2)
    await one.submit("job")
    await one.claim()
    one.task.cancel()
    await asyncio.wait([one.task])
    an_hour_ahead = (time.time() + 3600) * 1000
    valkey.admin.zadd(keys.job_keys(MODEL)[7], {"one": an_hour_ahead})
    again = await until_found(lambda: other.lane.claim(AT))
    assert again is not None
    assert again.id == "job"


async def test_an_attempt_that_began_before_the_clock_was_set_back_took_no_negative_time(
    begin: Begin, valkey: Valkey
) -> None:
    here = begin()
    await here.submit("job")
    job = await here.claim()
    an_hour_ahead = (time.time() + 3600) * 1000
    valkey.admin.hset(f"{keys.job_keys(MODEL)[1]}job", "begun", f"{an_hour_ahead:.0f}")
    assert await here.lane.finish(job, "complete", b"1")
    assert float(valkey.admin.hget(keys.job_keys(MODEL)[20], "mean") or "none") == 0


async def test_an_outcome_counts_though_its_instance_was_taken_for_dead_while_nobody_has_begun_the_job_again(
    begin: Begin,
) -> None:
    one, other = begin("one"), begin("other")
    for id_ in ("done", "again", "failed"):
        await one.submit(id_)
    jobs = [await one.claim() for _ in range(3)]
    await other.lane.bury("one")
    assert await other.lane.ids("queued", 0, 10) == ["done", "again", "failed"]
    assert not await one.lane.note_remote(jobs[0], "remote-1")
    for _ in range(2):  # the second time as one whose reply was lost
        assert await one.lane.finish(jobs[0], "complete", b"1")
    assert (await other.claim()).id == "again"
    assert not await one.lane.finish(jobs[1], "complete", b"1")
    assert await one.lane.finish(jobs[2], "retry", b"it failed", 0.0)
    await eventually(lambda: other.pulses[-1].queued == {"": 1})
    assert not await one.lane.finish(jobs[2], "retry", b"it failed", 0.0)
    last = await other.claim()
    assert (last.id, last.failures) == ("failed", 1)
    assert (await other.lane.stats()).counts["completed"] == 1


@pytest.mark.parametrize(("ago", "ends"), [(4.0, 96.0), (1000.0, 90.0), (0.0, 100.0), (-5.0, 100.0)])
async def test_an_outcome_that_comes_late_is_of_when_it_ended_never_before_it_began_nor_in_the_future(
    begin: Begin, valkey: Valkey, ago: float, ends: float
) -> None:
    """Seconds on a clock by which the attempt began at 90 and Redis is told at 100."""
    here = begin()
    await here.submit("job", calls_back=1)
    job = await here.claim()
    shown = await here.lane.show("job")
    assert shown is not None
    begun = round(shown.begun * 1000) - 10_000
    valkey.admin.hset("slb:{jobs:flux}:run:job", "begun", begun)
    assert await here.lane.finish(job, "complete", b"1", ago=ago)
    shown = await here.lane.show("job")
    assert shown is not None
    if ends == 90.0:
        assert shown.ended == shown.begun
    else:  # and for as long as this took so far
        assert shown.ended - shown.begun >= ends - 90.0
    took = float(valkey.admin.hget("slb:{jobs:flux}:times", "mean") or 0)
    assert took == round((shown.ended - shown.begun) * 1000)
    now = valkey.admin.time()
    assert shown.ended <= now[0] + now[1] / 1e6 - max(0.0, min(ago, 10.0))
    (due,) = await here.lane.due_callbacks(60.0, 1)
    assert await here.lane.callback_sent(due)


async def test_an_instance_that_is_known_to_be_dead_is_not_waited_for(begin: Begin) -> None:
    one, other = begin("one"), begin("other")
    await one.submit("job")
    await one.claim()
    one.task.cancel()
    await asyncio.wait([one.task])
    await other.lane.bury("one")
    assert (await other.claim()).id == "job"


async def test_what_was_claimed_in_a_batch_whose_reply_never_came_begins_again(
    begin: Begin, valkey: Valkey
) -> None:
    here = begin(timing=AskTiming(beat=0.05, deadline=0.3, backoff=0.02))
    await here.submit("kept")
    await here.claim()
    await here.submit("lost")
    valkey.freeze()
    with pytest.raises(RedisUnavailable):
        await here.lane.claim(AT)
    valkey.thaw()  # it runs the claim now
    await eventually(lambda: here.lane.up and here.pulses[-1].queued == {"": 1})
    again = await here.claim()
    assert (again.id, again.attempts) == ("lost", 1)
    assert await here.state("kept") == "processing"


async def test_nothing_is_taken_for_dead_that_redis_could_not_answer(begin: Begin, valkey: Valkey) -> None:
    timing = AskTiming(beat=0.05, deadline=0.3, backoff=0.02)
    one, other = begin("one", lease=1.0, timing=timing), begin("other", lease=1.0, timing=timing)
    await one.submit("job")
    job = await one.claim()
    valkey.freeze()
    await eventually(lambda: not one.lane.up and not other.lane.up)
    await asyncio.sleep(1.2)  # that is what is tested: longer than a lease
    valkey.thaw()
    await eventually(lambda: one.lane.up and other.lane.up)
    assert await one.lane.finish(job, "complete", b"1")


async def test_an_attempt_that_is_not_its_any_more_is_dropped_after_a_lost_reply(
    begin: Begin, valkey: Valkey
) -> None:
    here, other = begin("here", timing=AskTiming(beat=0.05, deadline=0.3, backoff=0.02)), begin("other")
    await here.submit("job")
    job = await here.claim()
    await other.lane.bury("here")
    assert (await other.claim()).token == "2.1"
    valkey.freeze()
    await eventually(lambda: not here.lane.up)
    valkey.thaw()
    await eventually(lambda: (job.id, job.token) in here.dropped)


async def test_a_late_fall_of_one_that_was_taken_for_dead_leaves_its_line_and_is_begun_once(begin: Begin) -> None:
    here, other = begin("a"), begin("b")
    await here.submit("one")
    job = await here.claim()
    await other.lane.bury("a")
    assert await here.state("one") == "queued"
    assert await here.lane.finish(job, "fall", b"it failed", on="small")
    assert await other.lane.claim(AT) is None
    again = await other.claim("small")
    assert await other.lane.finish(again, "complete", b"1")
    assert await other.lane.claim(AT, "small", ("small",)) is None
    assert await other.lane.claim(AT) is None


async def test_a_cut_between_two_batches_makes_redis_say_what_it_has(begin: Begin, valkey: Valkey) -> None:
    """It may have older data: an attempt that nobody runs begins again."""
    here = begin("a", timing=AskTiming(beat=60.0, deadline=5.0, backoff=0.02))
    await here.submit("one")
    job = await here.claim()
    here.running.clear()
    for client in valkey.admin.client_list():
        if client["id"] != str(valkey.admin.client_id()):
            valkey.admin.client_kill_filter(_id=client["id"])
    await eventually(lambda: here.lane._line.is_cut, what="the cut is noticed while nothing is under way")
    await here.lane.show("one")
    assert (await here.claim()).token != job.token
