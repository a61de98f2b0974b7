"""Whether an upstream is sick: exact sums, and how often a healthy one is taken for sick."""

import math
from dataclasses import dataclass
from random import Random

import pytest

from slb.balance.judge import ANSWERED, Judge, Pace, gain, is_failure
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

ENOUGH = 5.0
"""The default of `eject_after`."""


@dataclass
class Judged:
    path: str
    upstreams: tuple[LiveUpstream, ...]


class Bench:
    """A judge of `count` upstreams, whose clock the test moves."""

    def __init__(self, count: int, instances: int = 1) -> None:
        self.now = 0.0
        self.judge = Judge(lambda: self.now, lambda: instances)
        self.upstreams = tuple(LiveUpstream(Upstream.of(f"u{number}:80")) for number in range(count))
        self.route = Judged("/", self.upstreams)

    def fails(self, number: int, times: int = 1) -> float:
        for _ in range(times):
            self.judge.failed(self.route, self.upstreams[number])
        return self.score(number)

    def serves(self, number: int, times: int = 1) -> float:
        for _ in range(times):
            self.judge.answered(self.route, self.upstreams[number])
        return self.score(number)

    def score(self, number: int) -> float:
        return self.judge.score(self.upstreams[number], (self.route,))


def test_a_failure_adds_one_and_an_answer_takes_a_fifth_off_and_never_below_zero() -> None:
    bench = Bench(4)
    assert bench.fails(0, 3) == pytest.approx(3.0)
    assert bench.serves(0) == pytest.approx(3.0 - ANSWERED)
    assert pytest.approx(0.214, abs=0.001) == ANSWERED
    assert bench.serves(0, 30) == 0.0
    assert bench.fails(0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("others", "added"), [(0.0, 1.0), (0.05, 0.54), (0.2, 0.22), (0.5, 0.04), (0.6, 0.0), (1.0, 0.0)]
)
def test_a_failure_adds_less_the_more_the_others_fail(others: float, added: float) -> None:
    assert gain(others) == pytest.approx(added, abs=0.01)


def test_of_the_others_the_one_in_the_middle_counts_and_the_better_one_of_two() -> None:
    bench = Bench(5)
    for number in (1, 2):
        bench.fails(number, 50)
    assert bench.fails(0) == pytest.approx(1.0), "two of four others do not fail"
    bench.fails(3, 50)
    assert bench.fails(0, 20) == 0.0, "three do"


def test_evidence_is_kept_of_those_in_trouble_alone() -> None:
    bench = Bench(1000)
    for number in range(1000):
        bench.serves(number)
    assert list(bench.judge.telling()) == []
    bench.fails(3)
    bench.serves(3, 40)
    assert bench.score(3) == 0.0
    assert bench.judge._of("/").troubled == {}


def test_the_evidence_of_an_upstream_ends_with_it_and_that_of_a_route_with_the_route() -> None:
    bench = Bench(3)
    bench.fails(0, 4)
    bench.judge.forget({"u0:80"}, {"/"})
    assert bench.score(0) == 0.0
    bench.fails(0, 4)
    bench.judge.forget((), ())
    assert bench.score(0) == 0.0


def test_what_others_tell_is_added_up_fades_and_is_answered_for_all() -> None:
    bench = Bench(3, instances=10)
    for _ in range(4):
        bench.judge.heard(bench.route, bench.upstreams[0], 1.0)
    assert bench.score(0) == pytest.approx(4.0)
    bench.now += 30.0
    assert bench.score(0) == pytest.approx(4.0 / math.e)
    assert bench.serves(0) == 0.0, "an answer here stands for one in each of ten"


@pytest.mark.parametrize(
    ("status", "fails"),
    [(200, False), (404, False), (500, True), (501, False), (503, True), (505, False), (529, True)],
)
def test_which_statuses_speak_against_an_upstream(status: int, fails: bool) -> None:
    assert is_failure(status) is fails


# -- how soon, and how often without cause


def alarm_after(share: float, seed: int, most: int, upstreams: int = 8, healthy: float = 0.0) -> int | None:
    """After how many requests of its own an upstream that fails in `share` of them is found sick; `healthy`: the
    share of the others. Requests go round. None: not within `most`."""
    rng, bench = Random(seed), Bench(upstreams)
    for number in range(1, most + 1):
        for each in range(upstreams):
            if rng.random() < (share if each == 0 else healthy):
                bench.judge.failed(bench.route, bench.upstreams[each])
                if each == 0 and bench.score(0) >= ENOUGH:
                    return number
            else:
                bench.judge.answered(bench.route, bench.upstreams[each])
    return None


@pytest.mark.parametrize(("share", "within"), [(1.0, 5), (0.8, 12), (0.5, 40), (0.3, 150)])
@pytest.mark.parametrize("healthy", [0.0, 0.005])
def test_a_sick_one_is_found_within_so_many_requests(share: float, within: int, healthy: float) -> None:
    found = [alarm_after(share, seed, 10 * within, healthy=healthy) for seed in range(20)]
    assert all(each is not None for each in found)
    assert sorted(each for each in found if each is not None)[10] <= within


@pytest.mark.parametrize("upstreams", [2, 8])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.02])
def test_a_healthy_one_is_not_found_sick_in_twenty_thousand_requests(share: float, upstreams: int) -> None:
    """The bound is n * 25.5 ** -5: 2 in a thousand for n = 20,000, with a share of 2 %."""
    assert alarm_after(share, 7, 20_000, upstreams, healthy=share) is None


def test_where_the_application_itself_fails_now_and_then_nobody_is_found_sick() -> None:
    for seed in range(5):
        assert alarm_after(0.2, seed, 2_000, healthy=0.2) is None


# -- how long answers take


def paced(seconds: list[float], upstreams: int = 8) -> tuple[Pace, int]:
    """The pace after these answers, and how many of them were slow."""
    pace = Pace()
    return pace, sum(pace.took(each, upstreams) for each in seconds)


@pytest.mark.parametrize("spread", [0.25, 0.8, 1.2])
def test_the_usual_time_is_near_the_median_and_the_longest_near_the_99th_percentile(spread: float) -> None:
    rng = Random(5)
    times = [rng.lognormvariate(0.0, spread) for _ in range(5000)]
    pace, _ = paced(times, upstreams=1000)
    assert pace.usual == pytest.approx(1.0, rel=0.35)
    assert pace.longest == pytest.approx(sorted(times)[4950], rel=0.6)


def test_an_answer_is_slow_that_takes_over_four_times_as_long_as_usual_and_a_quarter_of_a_second() -> None:
    pace, _ = paced([0.2] * 50)
    assert not pace.took(0.7, 8)
    assert pace.took(0.9, 8)
    pace, _ = paced([0.01] * 50)
    assert not pace.took(0.2, 8)
    assert pace.took(0.3, 8)


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
