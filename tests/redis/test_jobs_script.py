"""The jobs of one model in a real Valkey: what a job goes through, and what cannot happen to it."""

import asyncio

import pytest

from slb.control import keys
from slb.errors import RedisUnavailable
from slb.job import Submission
from tests.redis.jobs_rig import AT, MODEL, Begin
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def test_a_job_is_submitted_claimed_and_completed(begin: Begin) -> None:
    here = begin()
    assert await here.submit("one") == "new"
    job = await here.claim()
    assert (job.id, job.token, job.attempts, job.failures, job.written) == ("one", "1.1", 1, 0, '{"payload":1}')
    assert await here.state("one") == "processing"
    assert await here.lane.finish(job, "complete", b'{"url":"x"}')
    shown = await here.lane.show("one")
    assert shown is not None
    assert job.waited == pytest.approx(shown.begun - shown.submitted, abs=0.0015)
    assert (shown.state, shown.result, shown.member, shown.attempts) == ("completed", '{"url":"x"}', AT, 1)
    assert 0 < shown.submitted <= shown.begun <= shown.ended
    assert await here.lane.claim(AT) is None


async def test_the_same_job_again_is_no_second_one_and_another_under_its_id_is_refused(begin: Begin) -> None:
    here = begin()
    assert await here.submit("one") == "new"
    assert await here.submit("one") == "queued"
    assert await here.submit("one", digest="other") == "mismatch"
    job = await here.claim()
    assert await here.submit("one") == "processing"
    await here.lane.finish(job, "complete", b"1")
    assert await here.submit("one") == "completed"
    assert (await here.lane.stats()).counts["submitted"] == 1


async def test_an_outcome_of_an_older_attempt_changes_nothing(begin: Begin) -> None:
    here = begin()
    await here.submit("one")
    old = await here.claim()
    await here.lane.finish(old, "retry", b"it failed", 0.0)
    new = await here.claim()
    assert new.token == "2.1"
    assert not await here.lane.finish(old, "complete", b'"late"')
    assert await here.state("one") == "processing"
    assert await here.lane.finish(new, "complete", b'"right"')
    shown = await here.lane.show("one")
    assert shown is not None
    assert shown.result == '"right"'
    assert (await here.lane.stats()).counts["stale"] == 1


async def test_since_when_jobs_are_dead_is_when_the_first_of_them_was_given_up(begin: Begin) -> None:
    here = begin()
    assert (await here.lane.stats()).dead_since == 0.0
    ended: list[float] = []
    for id_ in ("one", "two"):
        await here.submit(id_)
        await here.lane.finish(await here.claim(), "give_up", b"out of memory")
        shown = await here.lane.show(id_)
        assert shown is not None
        ended.append(shown.ended)
    stats = await here.lane.stats()
    assert (stats.dead, stats.dead_since) == (2, ended[0])
    assert await here.lane.revive("one")
    assert (await here.lane.stats()).dead_since == ended[1]


async def test_an_outcome_that_is_written_twice_counts_once(begin: Begin) -> None:
    here = begin()
    await here.submit("one")
    job = await here.claim()
    assert await here.lane.finish(job, "complete", b"1")
    assert await here.lane.finish(job, "complete", b"1")
    assert (await here.lane.stats()).counts["completed"] == 1


async def test_a_cancelled_job_never_runs_and_one_that_runs_is_dropped(begin: Begin) -> None:
    here = begin()
    await here.submit("waits")
    await here.submit("runs")
    assert await here.lane.cancel("waits") == "queued"
    job = await here.claim()
    assert job.id == "runs"
    assert await here.lane.cancel("runs") == "processing"
    await eventually(lambda: here.dropped == [("runs", job.token)])
    assert not await here.lane.finish(job, "complete", b"1")
    assert [await here.state(each) for each in ("waits", "runs")] == ["cancelled", "cancelled"]
    assert await here.lane.cancel("runs") == "cancelled"
    assert await here.lane.cancel("none") is None


async def test_a_deadline_ends_what_waits_and_what_runs(begin: Begin) -> None:
    here = begin()
    await here.submit("runs", deadline=50)
    job = await here.claim()
    await here.submit("waits", deadline=50)
    await eventually(lambda: here.dropped == [("runs", job.token)])
    assert [await here.state(each) for each in ("waits", "runs")] == ["failed", "failed"]


async def test_a_dead_job_stays_and_can_begin_again(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    await here.submit("one")
    job = await here.claim()
    await here.lane.finish(job, "give_up", b"out of memory")
    assert await here.lane.ids("dead", 0, 10) == ["one"]
    assert valkey.admin.ttl(keys.job_keys(MODEL)[0] + "one") == -1
    assert await here.lane.revive("one")
    again = await here.claim()
    assert (again.id, again.failures) == ("one", 0)
    await here.lane.finish(again, "give_up", b"out of memory")
    assert await here.lane.remove("one")
    assert await here.state("one") == "none"
    assert not await here.lane.revive("one")


async def test_jobs_as_large_as_may_be_are_claimed_many_at_once(begin: Begin) -> None:
    here = begin()
    large = b'{"payload":"%b"}' % (b"x" * (1 << 20))
    jobs = [Submission(MODEL, f"job{number}", "normal", "d" * 32, large, 0, False) for number in range(24)]
    await asyncio.gather(*(here.lane.submit(job) for job in jobs))
    claimed = await asyncio.gather(*(here.lane.claim(AT) for _ in jobs))
    assert {job.id for job in claimed if job is not None} == {job.id for job in jobs}
    assert here.lane.up


async def test_a_lane_that_has_ended_answers_all_that_is_asked(begin: Begin) -> None:
    here = begin()
    await here.submit("job")
    here.task.cancel()
    asked = [asyncio.create_task(here.lane.show("job")) for _ in range(600)]
    await asyncio.wait(asked)
    assert all(isinstance(each.exception(), RedisUnavailable) for each in asked if each.exception() is not None)
    with pytest.raises(RedisUnavailable):
        await here.lane.stats()


async def test_what_waits_in_a_line_and_has_ended_is_not_begun(begin: Begin, valkey: Valkey) -> None:
    here = begin("a")
    await here.submit("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    valkey.admin.zadd(f"slb:{{jobs:{MODEL}}}:queue:normal", {"one": 1})
    await here.submit("two")
    assert (await here.claim()).id == "two"
    assert await here.lane.claim(AT) is None
    assert await here.state("one") == "completed"


async def test_an_attempt_at_what_an_id_was_before_ends_no_other_job(begin: Begin, valkey: Valkey) -> None:
    here = begin("a")
    await here.submit("one")
    old = await here.claim()
    await here.lane.cancel("one")
    valkey.admin.delete(*(f"slb:{{jobs:{MODEL}}}:{each}:one" for each in ("job", "run")))
    assert await here.submit("one", digest="other") == "new"
    new = await here.claim()
    assert not await here.lane.finish(old, "complete", b"1")
    assert await here.state("one") == "processing"
    assert await here.lane.finish(new, "complete", b"2")
