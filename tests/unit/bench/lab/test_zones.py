"""The zones' experiment with a twentieth of its time."""

import pytest

from bench.lab.zones import ARMS, NAIVE, PLAIN, RIGHT, UNBRAKED, Outcome, Times, outcome_of, report

TIMES = Times().scaled(0.05)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {arm.name: outcome_of(arm, TIMES, seed=1) for arm in ARMS}


def test_the_zone_takes_over_along_the_ramp(outcomes: dict[str, Outcome]) -> None:
    shares = [moment.share for moment in outcomes[UNBRAKED.name].moments]
    assert shares[0] < 0.05
    assert shares == sorted(shares)
    assert shares[-1] > 0.98
    assert all(moment.share == 0 for moment in outcomes[PLAIN.name].moments)


def test_the_naive_mean_spills_and_the_expected_load_does_not(outcomes: dict[str, Outcome]) -> None:
    plain, right, naive = (outcomes[arm.name].mean(lambda each: each.walked) for arm in (PLAIN, UNBRAKED, NAIVE))
    assert right < plain < 0.2 < 0.8 < naive
    reads = [outcomes[arm.name].mean(lambda each: each.reads) for arm in (UNBRAKED, NAIVE)]
    assert reads[1] > 1.3 * reads[0]


def test_the_brake_shows_in_health_and_only_where_it_is_on(outcomes: dict[str, Outcome]) -> None:
    assert min(moment.health for moment in outcomes[RIGHT.name].moments) < 1
    assert min(moment.health for moment in outcomes[UNBRAKED.name].moments) == 1


def test_the_report_has_a_row_for_each_run(outcomes: dict[str, Outcome]) -> None:
    table, goals = report({arm: outcomes[arm.name] for arm in ARMS}, TIMES)
    assert len(table.rows) == len(ARMS)
    assert goals.figures[0].met
