"""Many instances on one pool: what is told of it, and a run that is as small as can be."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from rich.progress import Progress

from bench.figures.fleet import Fleet
from bench.figures.scale import POLICIES, Plan, Row, Spent, alone_words, growth, measure
from bench.processes import Processes
from bench.progress import Steps

PLAN = Plan([2, 100], 1000, 300, 10, 10_000, "least_inflight", 1)
ROW = Row(2, 0.01, 100.0, 0.001, 0.005, 0.0, 500.0, 300.0, 0, 1000.0, True, False)


def test_many_may_cost_redis_half_as_much_again_as_two() -> None:
    for cpu, met in ((150.0, True), (151.0, False)):
        (section,) = growth([ROW, replace(ROW, instances=100, cpu_us=cpu)], PLAN)
        assert [figure.met for figure in section.figures] == [met]


def test_other_numbers_have_no_goal_and_one_alone_is_beside_nothing() -> None:
    (section,) = growth([ROW, replace(ROW, instances=50)], PLAN)
    assert [figure.met for figure in section.figures] == [None]
    assert growth([ROW], PLAN) == []


def test_a_limit_of_the_bench_itself_is_not_told_as_one_of_slb() -> None:
    assert alone_words(ROW) == "somebody decides alone at"
    assert "this process" in alone_words(replace(ROW, late=True))
    assert "no more than" in alone_words(replace(ROW, reached=False, late=True))


def test_what_redis_spent_is_a_difference() -> None:
    assert Spent(2.5, 30, 20).since(Spent(1.0, 10, 5)) == Spent(1.5, 20, 15)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_run_has_a_figure_for_each_number_of_instances(tmp_path: Path, policy: str) -> None:
    plan = replace(PLAN, instances=[1, 2], pods=10, rate=50, seconds=0.2, most=50, policy=policy)
    with Progress(disable=True) as progress, Processes() as processes:
        outcome = measure(Fleet(processes, tmp_path), Steps(progress, 2), plan)
    assert [section.title.split(",")[0] for section in outcome.sections[:2]] == ["1 instances", "2 instances"]
    rows = outcome.raw["rows"]
    assert isinstance(rows, list)
    assert all(row["read"] > 0 and row["grant_p50"] > 0 for row in rows)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()  # none was left behind
