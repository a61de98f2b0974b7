"""A short run of what `make bench-jobs-chaos` does, and what judges it."""

import asyncio
from pathlib import Path

from tests.chaos.jobs.judge import judge
from tests.chaos.jobs.run import Run

WELL = {"status": "completed", "completed_at": 1.0, "result": "job1"}


def test_no_promise_is_broken_whatever_dies(tmp_path: Path) -> None:
    run = Run(tmp_path, jobs=150, seed=7)
    try:
        asyncio.run(run.run())
        answers = asyncio.run(run.settled())
        verdict = judge(run.acknowledged, answers, run.book(), run.slots_left())
    finally:
        run.close()
    assert len(run.acknowledged) == 150
    assert verdict.broken == []


def test_a_history_that_is_well_breaks_nothing() -> None:
    book = ["begin job1-1", "begin job1-2", "end job1-2"]
    verdict = judge(["job1"], {"job1": WELL}, book, {"a": 0})
    assert (verdict.broken, verdict.begun, verdict.twice, verdict.cut) == ([], 2, 1, 1)


def test_whatever_is_lost_or_made_up_is_found() -> None:
    book = ["begin job1-1", "end job1-1"]
    assert judge(["job1"], {}, book, {}).broken == ["job1 was acknowledged and is not known"]
    assert "no end" in judge(["job1"], {"job1": {"status": "queued"}}, book, {}).broken[0]
    assert "another's" in judge(["job1"], {"job1": {**WELL, "result": "x"}}, book, {}).broken[0]
    assert "no GPU" in judge(["job1"], {"job1": WELL}, book[:1], {}).broken[0]
    assert "never submitted" in judge([], {}, book, {}).broken[0]
    assert "slots held" in judge(["job1"], {"job1": WELL}, book, {"a": 1}).broken[0]
