"""The jobs of one model in a real Valkey: what a job goes through, and what cannot happen to it."""

import asyncio

import pytest

from slb.control import keys
from slb.control.ask_lane import AskTiming
from slb.errors import RedisUnavailable
from slb.job import ModelConfig, Submission
from tests.redis.jobs_rig import AT, MODEL, Begin
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within


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


async def test_jobs_of_a_class_run_in_the_order_they_came_and_a_retry_keeps_its_place(begin: Begin) -> None:
    here = begin()
    for id_ in "abcd":
        await here.submit(id_, priority="high")
    first = await here.claim()
    assert await here.lane.finish(first, "retry", b"it failed", 0.0)
    second = await here.claim()
    await here.lane.finish(second, "back")
    assert [(await here.claim()).id for _ in range(4)] == list("abcd")


async def test_classes_take_turns_by_their_weights(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig.model_validate({"priorities": "high=3,low=1"})
    for number in range(12):
        await here.submit(f"h{number}", priority="high")
        await here.submit(f"l{number}", priority="low")
    taken = [(await here.claim()).id[0] for _ in range(12)]
    assert taken.count("h") == 9
    assert taken.count("l") == 3


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


async def test_an_outcome_that_is_written_twice_counts_once(begin: Begin) -> None:
    here = begin()
    await here.submit("one")
    job = await here.claim()
    assert await here.lane.finish(job, "complete", b"1")
    assert await here.lane.finish(job, "complete", b"1")
    assert (await here.lane.stats()).counts["completed"] == 1


async def test_the_jobs_of_a_dead_instance_begin_elsewhere_when_its_lease_is_over(begin: Begin) -> None:
    one, other = begin("one", lease=0.2), begin("other", lease=10.0)
    await one.submit("job")
    job = await one.claim()
    one.task.cancel()
    await eventually(lambda: bool(other.pulses) and other.pulses[-1].queued == {"": 1})
    again = await other.claim()
    assert (again.id, again.token, again.attempts, again.failures) == ("job", "2.1", 2, 0)
    assert not await other.lane.finish(job, "complete", b"1")


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


async def test_what_has_ended_goes_when_its_time_is_over_and_leaves_nothing(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    left = {"classes", "number", "holders", "counts", "batches", "times"}
    prefix = keys.job_keys(MODEL)[4].removesuffix("classes")
    await eventually(lambda: {str(name).removeprefix(prefix) for name in valkey.admin.keys(prefix + "*")} == left)


async def test_of_more_jobs_than_may_be_kept_those_go_that_ended_first(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    here.lane.config = ModelConfig(finished_limit=3, max_retries=0)
    for id_ in "abcdefg":
        await here.submit(id_, calls_back=int(id_ == "b"))
    await here.lane.finish(await here.claim(), "give_up", b"out of memory")
    for _ in "bcdefg":
        await here.lane.finish(await here.claim(), "complete", b"1")
    assert await here.lane.ids("ended", 0, 10) == ["e", "f", "g"]
    states = [await here.state(id_) for id_ in "abcdefg"]
    assert states == ["dead_lettered", "completed", "none", "none", "completed", "completed", "completed"]
    prefix = keys.job_keys(MODEL)[0].removesuffix("job:")
    assert [name for name in valkey.admin.keys(prefix + "*") if str(name).endswith((":c", ":d"))] == []
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.id, due.result) == ("b", "1")
    assert await here.lane.callback_sent(due)
    assert await here.lane.ids("ended", 0, 10) == ["f", "g", "b"]
    assert await here.state("e") == "none"
    assert await here.submit("c") == "new"


async def test_a_limit_that_is_lowered_holds_for_what_has_ended_before(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    for number in range(300):
        await here.submit(f"job{number}")
    jobs = await asyncio.gather(*(here.claim() for _ in range(300)))
    await asyncio.gather(*(here.lane.finish(job, "complete", b"1") for job in jobs))
    here.lane.config = ModelConfig(finished_limit=7)
    ended = keys.job_keys(MODEL)[12]
    await eventually(lambda: valkey.admin.zcard(ended) == 7)
    prefix = keys.job_keys(MODEL)[0]
    assert len(valkey.admin.keys(prefix + "*")) == 7


async def test_a_job_that_came_anew_under_the_id_of_one_that_has_gone_is_not_removed_with_it(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    here.lane.config = ModelConfig(finished_limit=1)
    async with within(10):
        while await here.state("one") != "none":
            await asyncio.sleep(0.05)
    assert await here.lane.ids("ended", 0, 10) == ["one"]  # since what is kept longer now was kept so long
    assert await here.submit("one") == "new"
    await here.submit("two", priority="high")
    await here.lane.finish(await here.claim(), "complete", b"1")
    assert [await here.state(each) for each in ("one", "two")] == ["queued", "completed"]


async def test_a_callback_is_due_until_it_is_answered(begin: Begin) -> None:
    here = begin()
    await here.submit("one", calls_back=1)
    assert await here.lane.due_callbacks(60, 10) == []
    await here.lane.finish(await here.claim(), "complete", b'"r"')
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.id, due.state, due.result) == ("one", "completed", '"r"')
    assert await here.lane.due_callbacks(60, 10) == []
    assert await here.lane.callback_sent(due, "status 500", again=0.0)
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.callback_attempts, due.callback_error) == (1, "status 500")
    assert await here.lane.callback_sent(due)
    assert not await here.lane.callback_sent(due)
    assert (await here.lane.stats()).callbacks == 0


async def test_a_callback_of_an_earlier_end_says_nothing_of_the_next_one(begin: Begin) -> None:
    here = begin()
    await here.submit("one", calls_back=1)
    await here.lane.finish(await here.claim(), "give_up", b"out of memory")
    (before,) = await here.lane.due_callbacks(60, 10)
    assert await here.lane.callback_sent(before, "status 500", again=60)
    await here.lane.revive("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    assert not await here.lane.callback_sent(before)
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.state, due.callback_attempts, due.callback_error) == ("completed", 0, "")


async def test_a_job_whose_callback_took_longer_than_its_result_is_kept_goes_after_it(
    begin: Begin, valkey: Valkey
) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one", calls_back=1)
    await here.lane.finish(await here.claim(), "complete", b"1")
    (due,) = await here.lane.due_callbacks(60, 10)
    ended = keys.job_keys(MODEL)[12]
    await eventually(lambda: valkey.admin.zcard(ended) == 0)
    assert await here.state("one") == "completed"
    assert await here.lane.callback_sent(due, "status 500")
    prefix = keys.job_keys(MODEL)[0]
    await eventually(lambda: valkey.admin.exists(prefix + "one") == 0)
    assert (await here.lane.stats()).counts["undelivered"] == 1


async def test_a_waiting_job_takes_little_more_memory_than_its_payload(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    await here.submit("warm")
    before = valkey.admin.info("memory")["used_memory"]
    await asyncio.gather(*(here.submit(f"{number:032}") for number in range(2000)))
    assert (valkey.admin.info("memory")["used_memory"] - before) / 2000 < 600


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


async def test_a_class_that_is_new_has_its_share_and_not_all_that_it_never_asked_for(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig.model_validate({"priorities": "high=1,normal=1"})
    for number in range(20):
        await here.submit(f"n{number}")
    for _ in range(10):
        await here.claim()
    for number in range(10):
        await here.submit(f"h{number}", priority="high")
    taken = [(await here.claim()).id[0] for _ in range(8)]
    assert taken.count("h") == 4


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


async def test_what_a_job_waits_for_is_told_by_class_and_by_what_runs(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig.model_validate({"priorities": "high=4,low=1"})
    for id_ in ("a", "b", "c", "d"):
        await here.submit(id_, priority="low")
    job = await here.claim()
    await here.submit("e", priority="high")
    line = await here.lane.line("d")
    assert line is not None
    assert (line.name, line.position, line.each, line.running) == ("low", 2, None, 1)
    assert [(each.name, each.size) for each in sorted(line.classes)] == [("high", 1), ("low", 3)]
    assert len(line.since) == 1
    assert await here.lane.line(job.id) is None
    assert await here.lane.line("none") is None


async def test_the_time_of_slots_that_a_job_takes_is_a_moving_mean_with_its_failed_attempts(
    begin: Begin, valkey: Valkey
) -> None:
    here, runs = begin(), keys.job_keys(MODEL)[1]

    async def end(id_: str, move: str, seconds: float) -> None:
        """As if its attempt had taken so long."""
        job = await here.claim()
        assert job.id == id_
        begun = int(str(valkey.admin.hget(runs + id_, "begun")))
        valkey.admin.hset(runs + id_, "begun", begun - round(seconds * 1000))
        assert await here.lane.finish(job, move, b"1", 0.0)

    for id_ in ("one", "two", "waits"):
        await here.submit(id_)
    await end("one", "retry", 100)
    await end("one", "back", 7000)  # the GPU was busy: it ran nothing
    await end("one", "complete", 200)
    line = await here.lane.line("waits")
    assert line is not None
    assert line.each == pytest.approx(300, abs=10)
    await end("two", "fail", 100)
    line = await here.lane.line("waits")
    assert line is not None
    assert line.each == pytest.approx(200, abs=10)


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
