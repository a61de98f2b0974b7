"""How long a route's answers take, and what a slow one says beside the others."""

import math
from random import Random

import pytest

from slb.balance.pace import Pace, rank_gain
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

SOME = LiveUpstream(Upstream.of("u0:80"))


@pytest.mark.parametrize("compared", [16, 49, 50, 100, 101, 256])
def test_whoever_bets_on_the_ranks_of_one_like_the_others_wins_nothing_on_average(compared: int) -> None:
    ranks = range(compared + 1)
    gains = [rank_gain(longer, compared) for longer in ranks]
    assert sum(math.exp(each) if each else 0.5 for each in gains) == pytest.approx(len(ranks))
    slow = max(1, int(0.02 * len(ranks)))
    assert gains[:slow] == sorted(gains[:slow], reverse=True)
    assert min(gains[:slow]) > 0
    assert gains[slow:] == [0.0] * (len(ranks) - slow)


def test_of_fewer_than_sixteen_none_is_slow() -> None:
    assert (rank_gain(0, 15), rank_gain(0, 16) > 2) == (0.0, True)


def paced(seconds: list[float], upstreams: int = 8) -> tuple[Pace, int]:
    """The pace after these answers, and how many of them may be slow."""
    pace = Pace()
    return pace, sum(pace.took(each, SOME, upstreams) for each in seconds)


@pytest.mark.parametrize("spread", [0.25, 0.8, 1.2])
def test_the_usual_time_is_near_the_median_and_the_longest_near_the_99th_percentile(spread: float) -> None:
    rng = Random(5)
    times = [rng.lognormvariate(0.0, spread) for _ in range(5000)]
    pace, _ = paced(times, upstreams=1000)
    assert pace.usual == pytest.approx(1.0, rel=0.35)
    assert pace.longest == pytest.approx(sorted(times)[4950], rel=0.6)


def test_an_answer_may_be_slow_that_takes_over_four_times_as_long_as_usual_and_a_quarter_of_a_second() -> None:
    pace, _ = paced([0.2] * 50)
    assert not pace.took(0.75, SOME, 8)
    assert pace.took(0.9, SOME, 8)
    pace, _ = paced([0.01] * 50)
    assert not pace.took(0.2, SOME, 8)
    assert pace.took(0.3, SOME, 8)


def test_the_first_answers_are_never_slow() -> None:
    assert paced([0.001, *[60.0] * 10])[1] == 0


def test_of_two_one_slow_one_does_not_set_the_pace() -> None:
    pace, slow = paced([0.1, 2.0] * 200, upstreams=2)
    assert pace.usual < 0.4
    assert slow > 150


def test_the_limits_follow_the_pace() -> None:
    pace, _ = paced([0.2] * 50)
    assert (pace.stuck_after, pace.gives_up_after) == (30.0, 10.0)
    pace, _ = paced([20.0] * 50)
    assert pace.stuck_after == pace.gives_up_after == pytest.approx(200.0, rel=0.3)
    assert pace.holds_for == 5.0


@pytest.mark.parametrize(("rate", "looked_at"), [(10, 1.7), (100, 17), (1_000, 23), (20_000, 198)])
def test_of_many_answers_a_second_few_are_looked_at(rate: int, looked_at: float) -> None:
    pace, looks = Pace(), 0
    for number in range(60 * rate):
        if number >= 40 * rate:
            looks += not pace.skip
        pace.took(0.1, SOME, 8, number / rate)
    assert looks / 20 == pytest.approx(looked_at, rel=0.1)
