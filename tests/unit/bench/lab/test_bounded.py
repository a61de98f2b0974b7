"""The signals' experiment with a fleet of eight."""

import pytest

from bench.lab.bounded import ALONE, EFFECTIVE, MIXED, RUNS, SHAPE, THROUGHPUT, TIGHT, Outcome, outcome_of, report


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    arms = (ALONE, TIGHT, THROUGHPUT, EFFECTIVE)
    return {arm.name: outcome_of(MIXED, arm, SHAPE.scaled(0.5), 0.5, seed=1) for arm in arms}


def test_effective_load_evens_out_what_in_flight_and_throughput_cannot_see(outcomes: dict[str, Outcome]) -> None:
    ours = outcomes[EFFECTIVE.name]
    for other, part in ((ALONE, 0.7), (TIGHT, 0.5), (THROUGHPUT, 0.5)):
        assert ours.spread < part * outcomes[other.name].spread, other.name


def test_the_ring_alone_passes_over_no_upstream_and_keeps_most_hits(outcomes: dict[str, Outcome]) -> None:
    alone = outcomes[ALONE.name]
    assert set(alone.distances) == {0}
    assert alone.hit_rate == max(outcome.hit_rate for outcome in outcomes.values())


def test_the_figures_agree_with_each_other(outcomes: dict[str, Outcome]) -> None:
    for outcome in outcomes.values():
        assert outcome.low <= outcome.average <= outcome.high
        assert outcome.spread == pytest.approx(outcome.high - outcome.low)
        requests = outcome.distances.total() / 10
        assert outcome.reads == pytest.approx(requests * (1 - outcome.hit_rate), rel=0.05)


def test_the_report_has_a_row_for_each_run_and_names_its_goal(outcomes: dict[str, Outcome]) -> None:
    table, goals = report(dict.fromkeys(RUNS, outcomes[EFFECTIVE.name]), SHAPE)
    assert len(table.rows) == len(RUNS)
    assert not goals.figures[0].met, "the spread under in-flight is made as small here"
