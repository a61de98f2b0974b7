"""The fade-in experiment with a twentieth of its fleet."""

import re

import pytest

from slb.simulate.fade_in import ARMS, OURS_NAME, FadeInExperiment
from slb.simulate.report import Report


@pytest.fixture(scope="module")
def report() -> Report:
    return FadeInExperiment(seed=1, scale=0.05).run(lambda passed: None)


def cell(report: Report, name: str, column: str) -> float:
    row = next(row for row in report.rows if row[0] == name)
    return float(re.sub(r"[ %]", "", row[list(report.columns).index(column)]))


def test_a_fading_ring_warms_only_what_its_upstreams_own(report: Report) -> None:
    assert cell(report, OURS_NAME, "strays") == 0
    assert cell(report, "pre-filter, same curve", "strays") > 5


def test_the_pre_filter_reads_more_cold_keys_than_n_ring_fade_in(report: Report) -> None:
    assert cell(report, "pre-filter, same curve", "cold reads") > cell(report, OURS_NAME, "cold reads")


def test_without_a_fade_in_all_is_cold_at_once(report: Report) -> None:
    assert cell(report, "no fade-in", "of before") < 0.92 < 0.95 < cell(report, OURS_NAME, "of before")


def test_progress_comes_to_what_was_announced() -> None:
    passed: list[float] = []
    experiment = FadeInExperiment(seed=1, scale=0.02)
    experiment.run(passed.append)
    assert sum(passed) == pytest.approx(experiment.seconds())
    assert len(passed) >= 50 * len(ARMS)
