"""The fade-in experiment with a twentieth of its fleet."""

import pytest

from bench.lab.fade_in import OURS_NAME, fade_in
from bench.table import Section


@pytest.fixture(scope="module")
def report() -> Section:
    return fade_in(1, 0.05)[0]


def cell(report: Section, name: str, column: str) -> float:
    row = next(row for row in report.rows if row[0] == name)
    return float(row[list(report.columns).index(column)].removesuffix("%"))


def test_a_fading_ring_warms_only_what_its_upstreams_own(report: Section) -> None:
    assert cell(report, OURS_NAME, "strays") == 0
    assert cell(report, "pre-filter, same curve", "strays") > 5


def test_the_pre_filter_reads_more_cold_keys_than_n_ring_fade_in(report: Section) -> None:
    assert cell(report, "pre-filter, same curve", "cold reads") > cell(report, OURS_NAME, "cold reads")


def test_without_a_fade_in_all_is_cold_at_once(report: Section) -> None:
    assert cell(report, "no fade-in", "of before") < 0.92 < 0.95 < cell(report, OURS_NAME, "of before")
