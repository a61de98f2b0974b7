"""A short run of what `make bench-jobs-chaos` does, and what judges it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.jobs.history import Callback, Cut, Entry, History, entry
from tests.chaos.jobs.judge import drain, judge
from tests.chaos.jobs.run import Run

ENDED = {"job_id": "job1", "status": "completed", "completed_at": 1.0, "result": "job1-2"}
BOOK = (
    Entry("gpu-0", "begin", "job1-1", 10.0),
    Entry("gpu-1", "begin", "job1-2", 13.0),
    Entry("gpu-1", "end", "job1-2", 14.0),
    Entry("gpu-1", "answer", "job1-2", 14.0),
)
KILL = Cut("gpu-0", "killed", 11.0, 11.2)
WELL = History(
    acknowledged=["job1"],
    answers={"job1": ENDED},
    book=BOOK,
    cuts=[KILL],
    seen=[ENDED],
    calls_back=["job1"],
    callbacks=[Callback("job1", ENDED)],
    logged={"job1-1": ["slb-0"], "job1-2": ["slb-1"]},
    slots_left={"a": 0},
)


def broken(**changed: Any) -> list[str]:
    """Of a history that is well but for what is changed in it."""
    return judge(WELL._replace(**changed)).broken


def test_no_promise_is_broken_whatever_dies(tmp_path: Path) -> None:
    run = Run(tmp_path, jobs=150, seed=7)
    try:
        asyncio.run(run.run())
        asyncio.run(run.settled())
        history = run.history()
    finally:
        run.close()
    assert len(history.acknowledged) == 150
    assert len(history.calls_back) == 30
    assert history.seen
    assert judge(history).broken == []


def test_a_history_that_is_well_breaks_nothing() -> None:
    verdict = judge(WELL._replace(callbacks=2 * [Callback("job1", ENDED)]))
    assert verdict.broken == []
    assert (verdict.begun, verdict.twice, verdict.delivered, verdict.again) == (2, {"gpu killed": 1}, 2, 1)


def test_what_is_lost_has_no_end_or_failed_is_found() -> None:
    assert broken(answers={}) == ["job1 was acknowledged and is not known"]
    waits = {"job_id": "job1", "status": "queued"}
    assert "no end" in broken(answers={"job1": waits}, seen=(), callbacks=[Callback("job1", waits)])[0]
    dead = {**ENDED, "status": "dead_lettered", "error": "status 500"}
    told = {"seen": (), "callbacks": [Callback("job1", dead)]}
    assert broken(answers={"job1": dead}, **told) == ["job1 ended as dead_lettered: status 500"]


def test_a_result_is_of_the_job_and_of_an_attempt_that_its_gpu_answered() -> None:
    other = {**ENDED, "result": "job2-1"}
    told = {"seen": (), "callbacks": [Callback("job1", other)]}
    assert broken(answers={"job1": other}, **told) == ["job1 has another's result: 'job2-1'"]
    assert "no GPU answered" in broken(book=BOOK[:3])[0]


def test_a_job_with_two_outcomes_is_found() -> None:
    first = {**ENDED, "result": "job1-1"}
    assert broken(seen=[first]) == ["job1 has result 'job1-2', and an earlier answer has 'job1-1'"]
    assert broken(callbacks=[Callback("job1", ENDED), Callback("job1", first)]) == [
        "job1 has result 'job1-2', and a callback has 'job1-1'"
    ]
    failed = {**ENDED, "status": "failed"}
    assert "a callback has 'failed'" in broken(callbacks=[Callback("job1", failed)])[0]
    other = {**ENDED, "job_id": "job2"}
    assert "has job_id" in broken(callbacks=[Callback("job1", other)])[0]


def test_a_callback_that_is_missing_or_was_not_asked_for_is_found() -> None:
    assert broken(callbacks=()) == ["job1 had no callback"]
    assert broken(calls_back=()) == ["job1 had a callback, and wanted none"]


@pytest.mark.parametrize(
    "cut",
    [
        KILL,
        Cut("redis", "frozen", 5.0, 10.5),
        Cut("slb-0", "killed", 12.0, 12.5),
        Cut("slb-1", "frozen", 2.0, 9.5),  # it began what it had before, once it went on
    ],
)
def test_a_run_that_a_cut_explains_is_no_broken_promise(cut: Cut) -> None:
    assert broken(cuts=[cut]) == []


@pytest.mark.parametrize(
    "cuts",
    [
        [],
        [Cut("gpu-2", "killed", 11.0, 11.2)],  # another GPU
        [Cut("slb-2", "killed", 11.0, 11.2)],  # another dispatcher
        [Cut("gpu-0", "killed", 5.0, 8.0)],  # long before
        [Cut("redis", "killed", 13.1, 13.4)],  # after it had begun
    ],
)
def test_a_second_run_that_nothing_explains_is_found(cuts: list[Cut]) -> None:
    assert broken(cuts=cuts) == ["job1 ran again as job1-2 at gpu-1, and nothing cut off job1-1"]


def test_an_attempt_that_no_dispatcher_logged_may_have_been_any_ones() -> None:
    cut = Cut("slb-2", "killed", 11.0, 11.2)
    assert broken(cuts=[cut], logged={"job1-2": ["slb-1"]}) == []


def test_runs_of_what_was_never_submitted_and_slots_that_stay_held_are_found() -> None:
    made_up = Entry("gpu-0", "begin", "job9-1", 1.0)
    assert broken(book=(*BOOK, made_up)) == ["job9 was run and never submitted"]
    assert broken(slots_left={"a": 1}) == ["a has 1 slots held"]


def test_a_line_that_a_kill_cut_off_is_no_entry() -> None:
    assert entry("gpu-0", "begin job1-1 10.5") == Entry("gpu-0", "begin", "job1-1", 10.5)
    assert entry("gpu-0", "begin job1") is None


def test_a_drain_is_measured_by_the_service_of_what_was_left() -> None:
    ends = [("sync", 9.0), ("sync", 11.0), ("sync", 12.0), ("async", 13.0)]
    drained = drain(10.0, ends, {"sync": 4.0, "async": 2.0}, slots=4)
    assert (drained.seconds, drained.bound, drained.left, drained.ratio) == (3.0, 2.0, 3, 1.5)
    assert drain(20.0, ends, {"sync": 4.0, "async": 2.0}, slots=4).ratio == 0.0
