"""In which order jobs begin, and what is known of those that wait."""

import pytest

from slb.control import keys
from slb.job import ModelConfig
from tests.redis.jobs_rig import MODEL, Begin
from tests.support.valkey import Valkey


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
