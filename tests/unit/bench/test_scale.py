"""Many instances on one pool: what is shown of it, and a run that is as small as can be."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from rich.progress import Progress

from bench.command import Bench
from bench.figures.scale import POLICIES, Row, alone_words, growth, scale
from bench.processes import Processes
from bench.progress import Steps

ROW = Row(2, 0.01, 100.0, 0.001, 0.005, 0.0, 500.0, 300.0, 0, 1000.0, True, False)


def test_many_may_cost_redis_half_as_much_again_as_two() -> None:
    for cpu, met in ((150.0, True), (151.0, False)):
        (section,) = growth([ROW, replace(ROW, instances=100, cpu_us=cpu)], 1000)
        assert [figure.met for figure in section.figures] == [met]


def test_other_numbers_have_no_goal_and_one_alone_is_beside_nothing() -> None:
    (section,) = growth([ROW, replace(ROW, instances=50)], 1000)
    assert [figure.met for figure in section.figures] == [None]
    assert growth([ROW], 1000) == []


def test_a_limit_of_the_bench_itself_is_not_shown_as_one_of_slb() -> None:
    assert alone_words(ROW) == "an instance decides alone at"
    assert "this process" in alone_words(replace(ROW, late=True))
    assert "no more than" in alone_words(replace(ROW, reached=False, late=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_run_has_a_figure_for_each_number_of_instances(tmp_path: Path, policy: str) -> None:
    with Progress(disable=True) as progress, Processes() as processes:
        bench = Bench(processes, tmp_path, Steps(progress))
        outcome = scale(bench, "1,2", pods=10, rate=50, seconds=0.2, most=50, policy=policy, seed=1)
    assert [section.title.split(",")[0] for section in outcome.sections[:2]] == ["1 instances", "2 instances"]
    rows = outcome.raw["rows"]
    assert isinstance(rows, list)
    assert all(row["read"] > 0 and row["grant_p50"] > 0 for row in rows)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()  # none was left behind
