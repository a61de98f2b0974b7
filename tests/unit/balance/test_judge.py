"""Whether an upstream is sick: exact sums, and how often a healthy one is taken for sick."""

import math
from dataclasses import dataclass
from random import Random

import pytest

from bench.figures.judge import Drawn
from slb.balance.judge import ANSWERED, Judge, Told, gain, is_failure
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

    def takes(self, number: int, took: float, sent_at: float | None = None) -> float:
        """An answer after so many seconds, now; returns what it adds as a slow one."""
        sent_at = self.now - took if sent_at is None else sent_at
        return self.judge.answered(self.route, self.upstreams[number], took, sent_at)

    def goes_round(self, took: float, times: int = 40) -> None:
        for _ in range(times):
            self.now += took
            for number in range(len(self.upstreams)):
                self.takes(number, took)

    def slowness(self, number: int) -> float:
        return self.judge.slowness(self.upstreams[number], self.route)


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
    bench.judge.forget({"/": Judged("/", bench.upstreams[1:])})
    assert bench.score(0) == 0.0
    bench.fails(0, 4)
    bench.judge.forget({})
    assert bench.upstreams[0].troubles == 0
    assert bench.score(0) == 0.0


def test_what_others_tell_is_added_up_and_an_answer_takes_off_for_all_and_so_does_time_if_there_is_none() -> None:
    bench = Bench(3, instances=10)
    for _ in range(4):
        bench.judge.heard(bench.route, bench.upstreams[0], 1.0)
    bench.now += 240.0
    assert bench.score(0) == pytest.approx(4.0, abs=0.3), "a request a minute is enough"
    assert bench.serves(0) == pytest.approx(4.0 - 10 * ANSWERED, abs=0.3), "it stands for one in each of ten"
    assert bench.serves(0) == 0.0
    bench.judge.heard(bench.route, bench.upstreams[1], 4.0)
    bench.now += 3600.0
    assert bench.score(1) == pytest.approx(4.0 / math.e), "of one that has died, and of which nobody has an answer"


def test_of_what_others_tell_no_more_is_kept_than_is_enough() -> None:
    bench = Bench(3)
    for _ in range(1000):
        bench.judge.heard(bench.route, bench.upstreams[0], 1.0, most=ENOUGH)
    assert bench.score(0) == ENOUGH
    assert bench.serves(0, 24) == 0.0


def test_whoever_tells_of_failures_tells_of_its_answers_until_they_are_taken_off() -> None:
    telling, hearing = Bench(3, instances=10), Bench(3, instances=10)
    upstream = telling.upstreams[0]
    telling.serves(0, 50)
    telling.fails(0)
    telling.serves(1)
    assert [told[2:] for told in telling.judge.telling()] == [(1.0, 0, 1.0)], "not of answers when all was well"
    assert not telling.judge.has_answers(telling.route, upstream)
    telling.serves(0, 2)
    assert telling.judge.has_answers(telling.route, upstream)
    ((path, told, added, answers, left),) = telling.judge.telling()
    assert (path, told, added, answers) == ("/", upstream, 0.0, 2)
    assert left == pytest.approx(1.0 - 2 * ANSWERED)
    telling.serves(0)
    telling.fails(0)
    assert [told.answers for told in telling.judge.telling()] == [1], "with its failures, of those before them"
    telling.serves(0, 50)
    assert [(told.answers, told.left) for told in telling.judge.telling()] == [(50, 0.0)]
    telling.serves(0, 50)
    assert list(telling.judge.telling()) == []
    assert telling.judge.routes["/"].troubled == {}

    heard = hearing.upstreams[0]
    hearing.judge.heard(hearing.route, heard, 5.0)
    hearing.judge.heard_answers(hearing.route, heard, 1, "one", goes_on=True)
    assert hearing.score(0) == pytest.approx(5.0 - 5 * ANSWERED), "for half of ten, not all"
    assert hearing.serves(0) == pytest.approx(5.0 - 10 * ANSWERED)
    hearing.judge.heard(hearing.route, heard, 3.0)
    hearing.judge.heard_answers(hearing.route, heard, 1, "one", goes_on=False)
    before = hearing.score(0)
    assert hearing.serves(0) == pytest.approx(before - 10 * ANSWERED), "now this one stands for it"


def test_an_answer_takes_off_what_failed_here_before_what_others_tell() -> None:
    bench = Bench(3)
    bench.fails(0)
    bench.judge.heard(bench.route, bench.upstreams[0], 1.0)
    assert bench.serves(0) == pytest.approx(2.0 - ANSWERED)
    assert bench.serves(0, 4) == pytest.approx(2.0 - 5 * ANSWERED)


def test_where_the_others_fail_at_other_instances_a_failure_adds_less_and_this_instance_is_not_to_blame() -> None:
    bench = Bench(4)
    for _ in range(10):
        for number in (1, 2, 3):
            bench.judge.heard(bench.route, bench.upstreams[number], 1.0)
    assert bench.fails(0, 20) == 0.0
    assert not bench.judge.fails_as_a_whole(bench.route)
    for number in (1, 2, 3):
        bench.judge.heard_answers(bench.route, bench.upstreams[number], 60, "one", goes_on=False)
    assert bench.fails(0) == pytest.approx(1.0)


def test_answers_of_others_say_nothing_of_one_that_is_not_in_trouble() -> None:
    bench = Bench(3)
    bench.judge.heard_answers(bench.route, bench.upstreams[0], 5, "one", goes_on=True)
    assert bench.judge.routes["/"].troubled == {}


class Instances:
    """So many judges of a route of four upstreams that have `rate` requests a minute each, all instances together.
    What one tells is heard 0.1 s later, but for a share `lost`; the first `older` ones tell of answers only with
    their failures."""

    def __init__(self, count: int, rate: float, seed: int = 1, lost: float = 0.0, older: int = 0) -> None:
        self.rng, self.lost, self.older = Random(seed), lost, older
        self.benches = [Bench(4, count) for _ in range(count)]
        self.apart = 60 / rate / 4
        self.number = 0
        self.untold: dict[int, float] = {}

    def request(self, share_of_first: float, share: float = 0.0) -> bool:
        """One more; whether its upstream is found sick by any instance."""
        number, now = self.number % 4, self.number * self.apart
        self.number += 1
        for each in self.benches:
            each.now = now
        self.tell(now)
        which = self.rng.randrange(len(self.benches))
        bench = self.benches[which]
        fails = self.rng.random() < (share if number else share_of_first)
        (bench.fails if fails else bench.serves)(number)
        if fails or bench.judge.has_answers(bench.route, bench.upstreams[number]):
            self.untold.setdefault(which, now + 0.1)
        if found := any(each.score(number) >= ENOUGH - 0.2 for each in self.benches):
            for each in self.benches:
                each.judge.clear(each.upstreams[number], (each.route,))
        return found

    def tell(self, now: float) -> None:
        for which in [which for which, due in self.untold.items() if due <= now]:
            del self.untold[which]
            for told in self.benches[which].judge.telling():
                number = self.benches[which].upstreams.index(told.upstream)
                for other in self.benches:
                    if other is not self.benches[which] and self.rng.random() >= self.lost:
                        self.hear(other, other.upstreams[number], told, which)

    def hear(self, other: Bench, upstream: LiveUpstream, told: Told, which: int) -> None:
        if told.added:
            other.judge.heard(other.route, upstream, told.added, told.answers, ENOUGH)
        elif which >= self.older:
            other.judge.heard_answers(other.route, upstream, told.answers, str(which), told.left > 0)

    def until_found(self) -> int:
        """Failures of the first, which is dead, until it is found, after 50 requests each that were served."""
        for _ in range(200):
            self.request(0.0)
        failures = 0
        for number in range(800):
            failures += number % 4 == 0
            if self.request(1.0):
                return failures
        raise AssertionError


RATES = (1, 10, 60)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_dead_one_is_found_after_five_failures_of_the_fleet_at_any_rate(count: int, rate: float) -> None:
    assert [Instances(count, rate, seed).until_found() for seed in range(5)] == [5] * 5


@pytest.mark.parametrize("rate", RATES)
def test_older_instances_that_tell_of_answers_with_failures_alone_change_nothing_of_that(rate: float) -> None:
    assert Instances(10, rate, older=5).until_found() == 5


@pytest.mark.parametrize("rate", RATES)
def test_a_dead_one_is_found_where_one_message_of_three_is_lost(rate: float) -> None:
    assert sorted(Instances(10, rate, seed, lost=1 / 3).until_found() for seed in range(9))[4] <= 7


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(("lost", "older"), [(0.0, 0), (1 / 3, 0), (0.9, 0), (0.0, 5), (0.0, 9)])
@pytest.mark.parametrize("share", [0.01, 0.02])
def test_where_all_fail_alike_nobody_is_found_sick_whatever_is_lost_and_at_any_rate(
    share: float, lost: float, older: int, rate: float
) -> None:
    fleet = Instances(10, rate, 3, lost, older)
    assert sum(fleet.request(share, share) for _ in range(5000)) == 0


@pytest.mark.parametrize("instances", [1, 3, 10])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_where_all_fail_alike_nobody_is_found_sick_by_adding_up(share: float, instances: int) -> None:
    """As `make bench-judge` has it, of 8 upstreams."""
    assert Drawn(8, 2, instances).alarms(20_000, share) <= 1


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


# -- slow


def test_an_answer_longer_than_all_of_the_others_adds_more_than_a_failure() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    for times in (1, 2, 3, 4):
        bench.now += 2.0
        assert bench.takes(0, 2.0) == pytest.approx(1.23, abs=0.01)
        assert bench.slowness(0) == pytest.approx(1.227 * times, abs=0.01)


def test_an_answer_as_usual_takes_a_fifth_off_also_of_what_was_heard() -> None:
    bench = Bench(4, instances=2)
    bench.goes_round(0.2)
    bench.now += 2.0
    slow = bench.takes(0, 2.0)
    bench.judge.heard_slow(bench.route, bench.upstreams[0], 1.0, 0.0, is_open=False)
    assert bench.slowness(0) == pytest.approx(slow + 1.0)
    bench.now += 0.2
    bench.takes(0, 0.2)
    assert bench.slowness(0) == pytest.approx(slow + 1.0 - 2 * ANSWERED, abs=0.01), "one here, one there"


def test_slow_answers_that_overlap_are_one_and_of_the_next_only_what_is_left_counts() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    sent = bench.now
    bench.now += 5.0
    assert bench.takes(0, 5.0, sent) > 1
    for _ in range(20):  # they waited behind the long one, and are quick themselves
        bench.now += 0.2
        assert bench.takes(0, bench.now - sent, sent) == 0.0
    assert bench.slowness(0) < 2
    bench.now += 0.5
    assert bench.takes(0, 4.0) == pytest.approx(1.227 * 0.8**2, abs=0.01), "as of a line that is worked off"
    bench.now += 4.0
    assert bench.takes(0, 4.0) > 1, "since that one ended it took long by itself"


def line_after(seconds: float, load: float, bench: Bench) -> None:
    """A server of one slot, with one request of so many seconds, and others of 0.2 s that come at this load, until
    the line behind it is worked off."""
    begin, free_at = bench.now, bench.now + seconds
    bench.now = free_at
    bench.takes(0, seconds, begin)
    for number in range(1, 1000):
        sent = begin + number * 0.2 / load
        free_at = max(sent, free_at) + 0.2
        bench.now = free_at
        bench.takes(0, free_at - sent, sent)


def test_a_long_line_that_is_worked_off_is_not_a_slow_server() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    worst = 0.0
    takes = bench.takes

    def watched(number: int, took: float, sent_at: float | None = None) -> float:
        nonlocal worst
        added = takes(number, took, sent_at)
        worst = max(worst, bench.slowness(0))
        return added

    bench.takes = watched  # type: ignore[method-assign]
    line_after(40.0, 0.8, bench)
    assert worst < ENOUGH - 1


def test_a_server_of_many_slots_that_is_slow_is_found_though_its_answers_overlap() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    begin = bench.now
    for number in range(100):
        bench.now = begin + 2.0 + number * 0.25
        bench.takes(0, 2.0)
        for other in range(1, 8):
            bench.takes(other, 0.2)
        if bench.slowness(0) >= ENOUGH:
            break
    assert number <= 40, "five that were sent one after another"


def test_a_request_of_a_line_without_an_answer_counts_once_it_has_waited_as_long_as_the_one_before() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    sent = bench.now
    bench.now += 5.0
    bench.takes(0, 5.0, sent)
    since = bench.now
    for _ in range(20):
        bench.now += 0.2
        bench.takes(0, bench.now - sent, sent)
    assert bench.judge.unanswered(bench.route, bench.upstreams[0], since) == 0.0
    bench.now = since + 5.01
    bench.takes(0, bench.now - sent, sent)
    assert bench.judge.unanswered(bench.route, bench.upstreams[0], since) > 1


def test_a_request_without_an_answer_counts_once_and_those_behind_it_not_until_one_is_answered() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    slow, route = bench.upstreams[0], bench.route
    sent = bench.now
    bench.now += 0.4
    assert bench.judge.unanswered(route, slow, sent) == 0.0, "within three times as long as usual"
    bench.now += 0.6
    assert bench.judge.unanswered(route, slow, sent) > 1
    behind = bench.now
    bench.now += 1.0
    assert bench.judge.unanswered(route, slow, sent) == 0.0
    assert bench.judge.unanswered(route, slow, behind) == 0.0
    assert bench.takes(0, 2.0, sent) == 0.0
    bench.now += 1.0
    assert bench.judge.unanswered(route, slow, behind) > 1


def test_where_there_are_few_to_compare_with_nothing_is_slow() -> None:
    bench = Bench(4)
    bench.goes_round(0.2, 5)  # 15 answers of the others
    bench.now += 60.0
    assert bench.takes(0, 60.0) == 0.0
    bench.takes(1, 0.2)
    bench.now += 60.0
    assert bench.takes(0, 60.0) > 0


def test_an_answer_is_not_slow_within_four_times_the_usual_or_a_quarter_of_a_second() -> None:
    for usual, never, slow in ((0.2, 0.75, 0.9), (0.01, 0.25, 0.26)):
        bench = Bench(4)
        bench.goes_round(usual)
        bench.now += 1.0
        assert bench.takes(0, never) == 0.0
        bench.now += 1.0
        assert bench.takes(0, slow) > 1


@pytest.mark.parametrize("upstreams", [2, 8, 100])
def test_where_all_get_slow_at_once_nobody_is(upstreams: int) -> None:
    bench = Bench(upstreams)
    bench.goes_round(0.2)
    for _ in range(300):
        bench.now += 3.0
        for number in range(upstreams):
            bench.takes(number, 3.0)
            assert bench.slowness(number) < ENOUGH / 2


def test_a_second_slow_upstream_does_not_hide_the_first() -> None:
    bench = Bench(8)
    bench.goes_round(0.2)
    for _ in range(40):
        bench.now += 2.0
        for number in range(8):
            bench.takes(number, 2.0 if number < 2 else 0.2)
    assert min(bench.slowness(0), bench.slowness(1)) >= ENOUGH
    assert max(map(bench.slowness, range(2, 8))) <= 0


def test_the_evidence_of_slow_answers_is_told_with_when_they_began_and_that_they_are_over() -> None:
    told, hearing = Bench(8), Bench(8)
    told.goes_round(0.2)
    slow = told.upstreams[0]

    def tell() -> list[tuple[float, bool]]:
        found = list(told.judge.telling_slow())
        for each in found:
            upstream = hearing.upstreams[0]
            hearing.judge.heard_slow(hearing.route, upstream, each.added, each.seconds, each.is_open)
        return [(round(each.added, 2), each.is_open) for each in found]

    sent = told.now
    told.now += 1.0
    told.judge.unanswered(told.route, slow, sent)
    assert tell() == [(1.23, True)]
    assert hearing.slowness(0) == pytest.approx(1.23, abs=0.01)
    told.now += 1.0
    told.takes(0, 2.0, sent)
    assert tell() == [(0.0, False)]
    assert tell() == []
    assert hearing.slowness(0) == pytest.approx(1.23, abs=0.01)


def test_what_another_instance_had_of_the_same_wait_is_not_added() -> None:
    """A server that answers nobody for 5 s, and then all at once, tells each instance the same."""
    bench = Bench(8)
    bench.goes_round(0.2)
    bench.now += 5.0
    bench.takes(0, 5.0)
    own = bench.slowness(0)
    for waited in (4.9, 3.0, 1.0):
        bench.now += 0.1
        bench.judge.heard_slow(bench.route, bench.upstreams[0], 1.25, waited, is_open=False)
    assert bench.slowness(0) == own
    bench.now += 5.0
    bench.judge.heard_slow(bench.route, bench.upstreams[0], 1.25, 4.9, is_open=False)
    assert bench.slowness(0) == pytest.approx(own + 1.25)


def slow_after(times: float, spread: float, seed: int, most: int, upstreams: int = 8) -> int | None:
    """After how many of its answers an upstream is slow that takes so many `times` as long; the logarithms of all
    times have the standard deviation `spread`. Requests go round. None: not within `most`."""
    rng, bench = Random(seed), Bench(upstreams)
    warm = 2000 // upstreams
    for number in range(1, most + warm + 1):
        bench.now += 1000.0  # no two overlap
        for each in range(upstreams):
            took = rng.lognormvariate(0.0, spread) * (times if each == 0 and number > warm else 1.0)
            bench.takes(each, took)
            if bench.slowness(each) >= ENOUGH:
                assert each == 0, "one that is like the others"
                return number - warm
    return None


@pytest.mark.parametrize(("times", "spread", "within"), [(5, 0.25, 7), (5, 0.47, 8), (20, 0.47, 5), (20, 1.0, 7)])
def test_a_slow_one_is_found_within_so_many_answers(times: float, spread: float, within: int) -> None:
    found = [slow_after(times, spread, seed, 100 * within) for seed in range(9)]
    assert all(each is not None for each in found)
    assert sorted(each for each in found if each is not None)[4] <= within


@pytest.mark.parametrize("upstreams", [2, 8, 1000])
@pytest.mark.parametrize("spread", [0.25, 1.3])
def test_one_like_the_others_is_not_found_slow_in_twenty_thousand_answers(spread: float, upstreams: int) -> None:
    """1.3 is as wide as the lengths of real answers: one of 100 takes 20 times as long as usual."""
    assert slow_after(1.0, spread, 3, 20_000 // upstreams, upstreams) is None


@pytest.mark.parametrize(("times", "spread"), [(1.7, 0.25), (1.5, 0.47), (2.0, 1.0)])
def test_one_that_is_a_little_slower_is_not_found_slow(times: float, spread: float) -> None:
    assert slow_after(times, spread, 11, 1500) is None
