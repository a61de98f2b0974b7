"""Upstreams that keep failing are ejected, for longer each time, and come back on probation."""

import time
from collections.abc import Callable
from random import Random

import pytest
from structlog.testing import capture_logs

from slb.balance.eligible import condition
from slb.balance.upstream import LiveUpstream
from slb.model import RouteRecord
from slb.routing.passive import ALL_FAIL, BUSY_UNTIL, REFUSED, SERVED, SOME_SERVE, STUCK, Passive
from tests.unit.health.fleet import Clock, Routes


class Fleet(Routes):
    """`fails(1, 5)`: upstream u1 fails five requests in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.woken = self.told = 0
        self.passive = Passive(
            self.mirror,
            self.availability,
            self.metrics.health,
            self.clock,
            self._wake,
            self._publish,
            self._tell,
            connect=self._connect,
        )
        self.accepting: set[int] = set()
        self.attempts: list[float] = []
        self.published: list[tuple[str, str]] = []

    def _publish(self, about: str, news: str, number: int) -> None:
        self.published.append((about, news))

    def _tell(self) -> None:
        self.told += 1

    def _connect(self, upstream: LiveUpstream, connected: Callable[[LiveUpstream], None]) -> None:
        self.attempts.append(self.clock())
        if upstream in map(self.live, self.accepting):
            connected(upstream)

    def refuses(self, number: int, times: int = 1) -> None:
        """What the proxy does of each refused connection."""
        for _ in range(times):
            self.passive.refused(self.live(number))
            self.passive.failed(self.live(number), "upstream_connect", self.route())

    def _wake(self) -> None:
        self.woken += 1

    def fails(self, number: int, times: int = 1, reason: str = "upstream_connect") -> None:
        for _ in range(times):
            self.passive.failed(self.live(number), reason, self.route())

    def serves(self, number: int, times: int = 1, took: float = 0.0) -> None:
        """What the proxy does on success."""
        for _ in range(times):
            live = self.live(number)
            live.answered_at = live.alive_at = self.clock()
            self.passive.answered(live, self.route(), took, self.clock() - took)

    def is_slow(self, number: int) -> None:
        """An answer that takes 2 s."""
        self.clock.passes(2.0)
        self.serves(number, took=2.0)

    def left_out(self) -> list[int]:
        """Those that a request is not sent to now."""
        found = self.route().view.deprioritized(self.clock(), Random(1))
        return [int(each.member[1:].partition(":")[0]) for each in found]

    def passes(self, seconds: float) -> None:
        self.clock.passes(seconds)
        self.passive.sweep()


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.members("/", 4)
    return made


def test_an_upstream_is_ejected_at_its_last_failure_in_a_row_and_not_before(fleet: Fleet) -> None:
    fleet.fails(1, 4)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.fails(1)
    assert fleet.serving() == [2, 3, 4]
    assert not fleet.live(1).available


def test_an_answer_takes_off_a_fifth_of_what_a_failure_adds(fleet: Fleet) -> None:
    fleet.fails(1, 4)
    fleet.serves(1, 19)
    fleet.fails(1, 4)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.serves(1)
    fleet.fails(1, 2)
    assert fleet.serving() == [2, 3, 4], "a server that answers now and then is as useless"


def test_it_comes_back_when_its_hold_off_is_over(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.passes(9.9)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(0.1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_one_failure_on_probation_ejects_again_for_twice_as_long(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    for seconds in (10, 20, 40, 80, 160, 300, 300):
        fleet.passes(seconds - 0.1)
        assert fleet.serving() == [2, 3, 4]
        fleet.passes(0.1)
        assert fleet.serving() == [1, 2, 3, 4]
        fleet.fails(1)
        assert fleet.serving() == [2, 3, 4]


def test_one_success_on_probation_clears_what_was_held_against_it(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.passes(10)
    fleet.serves(1)
    fleet.passes(10)
    assert fleet.passive.due() is None
    fleet.fails(1, 4)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.fails(1)
    assert fleet.shown("slb_upstream_ejections_total") == {("u1:80", "upstream_connect"): 2}
    fleet.passes(10)
    assert fleet.serving() == [1, 2, 3, 4], "for 10 s, as the first time"


def test_a_success_and_a_failure_between_two_looks_do_not_eject(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.passes(10)
    fleet.serves(1)
    fleet.fails(1)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.live(1).failures == 1


def test_with_one_failure_enough_probation_still_distinguishes_failure_from_success(fleet: Fleet) -> None:
    fleet.members("/", 4, eject_after="1")
    fleet.fails(1)
    fleet.passes(10)
    fleet.passes(1)
    fleet.fails(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(19.9)
    assert fleet.serving() == [2, 3, 4]


def test_requests_that_were_under_way_change_nothing_while_it_is_ejected(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.fails(1, 20)
    fleet.serves(1)
    fleet.passes(10)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.metrics.health.ejections == {("u1:80", "upstream_connect"): 1}


def test_never_more_are_ejected_than_may_be(fleet: Fleet) -> None:
    for number in (1, 2, 3, 4):
        fleet.fails(number, 50)
    assert fleet.serving() == [3, 4]
    fleet.passes(10)
    assert fleet.serving() == [1, 2, 3, 4]


def test_one_that_cannot_be_ejected_is_known_until_it_answers_or_is_ejected(fleet: Fleet) -> None:
    fleet.members("/", 4, max_ejected="0.25")
    fleet.fails(1, 5)
    fleet.fails(2, 5)
    live = fleet.live(2)
    assert (live.available, live.spared) == (True, "5 failures in a row, upstream_connect")
    began = live.spared_since
    assert began > 0
    fleet.fails(2)
    assert live.spared_since == began, "it is the same trouble"
    fleet.serves(2, 10)
    assert not live.spared
    fleet.refuses(2)
    assert fleet.live(2).spared == "it refuses connections"
    fleet.passive.passed(live)
    assert not fleet.live(2).spared, "its check has reached it"
    fleet.refuses(2)
    fleet.passes(10)
    assert fleet.live(2).spared
    fleet.refuses(2)
    assert (fleet.live(2).available, fleet.live(2).spared) == (False, "")


def test_one_that_fails_now_and_then_is_spared_all_the_while(fleet: Fleet) -> None:
    fleet.members("/", 4, max_ejected="0")
    fleet.fails(1, 8)
    fleet.serves(1)
    assert fleet.live(1).spared


@pytest.mark.parametrize(
    ("members", "share", "left"), [(1, "0.5", 1), (2, "0.5", 1), (3, "0.5", 2), (10, "0.3", 7), (4, "0", 4)]
)
def test_the_cap_is_a_share_of_the_routes_upstreams(members: int, share: str, left: int) -> None:
    fleet = Fleet()
    fleet.members("/", members, max_ejected=share)
    for number in range(1, members + 1):
        fleet.fails(number, 5)
    assert len(fleet.serving()) == left


def test_no_upstream_is_ejected_where_it_is_off(fleet: Fleet) -> None:
    fleet.members("/", 4, eject_after="0")
    fleet.fails(1, 100)
    assert fleet.serving() == [1, 2, 3, 4]


def test_a_route_that_takes_no_part_goes_on_using_what_another_ejected(fleet: Fleet) -> None:
    fleet.members("/steady", 4, eject_after="0")
    fleet.fails(1, 5)
    assert (fleet.serving(), fleet.serving("/steady")) == ([2, 3, 4], [1, 2, 3, 4])


def test_the_strictest_route_decides_and_the_smallest_is_not_emptied(fleet: Fleet) -> None:
    fleet.members("/strict", 3, eject_after="2", eject_time="3s")
    fleet.fails(1, 2)
    assert (fleet.serving(), fleet.serving("/strict")) == ([2, 3, 4], [2, 3])
    fleet.fails(2, 10)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(3)
    assert fleet.serving() == [1, 2, 3, 4]


def test_what_is_held_against_an_upstream_ends_with_it(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    gone = fleet.live(1)
    fleet.members("/", 0)
    assert fleet.passive.due() is None
    fleet.members("/", 4)
    assert fleet.live(1) is not gone
    assert fleet.serving() == [1, 2, 3, 4]
    for _ in range(10):
        fleet.passive.failed(gone, "upstream_reset")
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.shown("slb_upstream_ejections_total") == {}
    assert fleet.shown("slb_ejections_total") == {(): 1}


def test_an_upstream_stays_ejected_when_the_table_is_made_anew(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.members("/", 5)
    assert fleet.serving() == [2, 3, 4, 5]


def test_an_ejection_while_a_full_sync_is_made_is_not_lost(fleet: Fleet) -> None:
    records = dict(fleet.mirror.records)
    records |= {f"/{number}": records["/"] for number in range(50)}  # several slices of work
    fleet.members("/", 5)  # so that the sync has to make the route anew
    steps = fleet.mirror.replace(records, {})
    next(steps)
    fleet.fails(1, 5)
    for _ in steps:
        pass
    assert fleet.serving() == [2, 3, 4]


def test_ejection_is_counted_by_reason_shown_and_logged_once(fleet: Fleet) -> None:
    with capture_logs() as logs:
        fleet.fails(1, 4, "upstream_timeout")
        fleet.fails(1, 7, "upstream_connect")
        assert fleet.shown("slb_upstream_up") == {("u1:80",): 0}
        fleet.passes(10)
        fleet.serves(1)
        fleet.passes(10)
        fleet.passes(1)
    assert fleet.shown("slb_upstream_ejections_total") == {("u1:80", "upstream_connect"): 1}
    moves = [(line["upstream"], line["was"], line["now"]) for line in logs]
    assert moves == [
        ("u1:80", "trusted", "ejected"),
        ("u1:80", "ejected", "probation"),
        ("u1:80", "probation", "trusted"),
    ]
    assert "5 failures in a row" in logs[0]["why"]
    assert fleet.woken == 1


def test_too_many_ejected_is_panic_named_and_counted(fleet: Fleet) -> None:
    fleet.members("/", 4, max_ejected="1", panic_threshold="0.5")
    with capture_logs() as logs:
        for number in (1, 2):
            fleet.refuses(number)
        assert (fleet.serving(), fleet.route().panic) == ([3, 4], False)
        fleet.refuses(3)
        assert (fleet.serving(), fleet.route().panic) == ([1, 2, 3, 4], True)
        assert fleet.shown("slb_panic") == {("/",): 1}
        fleet.passes(10)
        assert (fleet.serving(), fleet.route().panic) == ([1, 2, 3, 4], False)
    assert fleet.shown("slb_panic") == {("/",): 0}
    assert fleet.shown("slb_panics_total") == {("/",): 1}
    assert [line["event"] for line in logs if "panic" in line["event"]] == ["panic_begins", "panic_ends"]


def test_one_refused_connection_is_enough_and_is_published_once(fleet: Fleet) -> None:
    fleet.refuses(1, 5)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.published == [("u1:80", REFUSED)]
    assert fleet.metrics.health.ejections == {("u1:80", "refused"): 1}


def test_an_upstream_that_refuses_is_out_for_a_second_and_each_time_for_twice_as_long(fleet: Fleet) -> None:
    fleet.members("/", 4, max_eject_time="30s")
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        fleet.refuses(1)
        fleet.passes(seconds - 0.1)
        assert fleet.serving() == [2, 3, 4]
        fleet.passes(0.1)
        assert fleet.serving() == [1, 2, 3, 4]


def test_it_is_out_for_no_longer_than_for_failures_at_first(fleet: Fleet) -> None:
    fleet.members("/", 4, eject_time="200ms")
    fleet.refuses(1)
    assert fleet.passive.due() == fleet.clock() + 0.2


def test_what_others_were_refused_counts_as_if_it_had_been_this_one(fleet: Fleet) -> None:
    fleet.passive.receive("u1:80", REFUSED)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.published == []
    fleet.passes(1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_the_first_success_anywhere_ends_the_ejection_everywhere(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.passive.receive("u1:80", SERVED)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.serves(1)
    assert fleet.published == [("u1:80", REFUSED), ("u1:80", SERVED)]
    fleet.passes(10)
    assert fleet.passive.due() is None


def test_a_check_that_passes_ends_the_ejection_and_is_published(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.passive.passed(fleet.live(1))
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.published == [("u1:80", REFUSED), ("u1:80", SERVED)]


def test_a_check_does_not_end_an_ejection_for_failures_and_an_answer_elsewhere_does(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.passive.passed(fleet.live(1))
    assert fleet.serving() == [2, 3, 4]
    fleet.passive.receive("u1:80", SERVED)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.live(1).on_probation


def test_one_that_answers_on_probation_is_said_to_serve_and_one_that_fails_elsewhere_is_out_again(
    fleet: Fleet,
) -> None:
    fleet.fails(1, 5)
    fleet.passes(10)
    fleet.passive.heard("/", "u1:80", 1.0)
    assert fleet.serving() == [2, 3, 4], "one request of the whole fleet was enough"
    fleet.passes(20)
    fleet.serves(1)
    assert fleet.published == [("u1:80", SERVED)]
    fleet.passive.heard("/", "u1:80", 1.0)
    assert fleet.serving() == [1, 2, 3, 4]


def test_what_is_busy_is_told_and_set_aside_by_all(fleet: Fleet) -> None:
    fleet.passive.replied(fleet.live(1), 503, 7.0, fleet.route())
    assert fleet.published == [("u1:80", BUSY_UNTIL)]
    fleet.passive.receive("u2:80", BUSY_UNTIL, 200)
    fleet.passive.receive("u9:80", BUSY_UNTIL, 200)
    assert fleet.serving() == [3, 4]
    fleet.passes(2)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.published == [("u1:80", BUSY_UNTIL)]


def test_one_failure_after_a_refusal_ejects_for_eject_time(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.passes(1)
    fleet.fails(1)
    fleet.passes(9.9)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(0.1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_news_of_refusals_does_not_count_for_a_while_after_it_was_disproved(fleet: Fleet) -> None:
    """One instance with a broken way would take an upstream from all others again and again."""
    fleet.passive.receive("u1:80", REFUSED)
    fleet.passes(1)
    fleet.serves(1)
    fleet.passes(10)
    fleet.passive.receive("u1:80", REFUSED)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.refuses(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(1)
    fleet.serves(1)
    fleet.passes(60)
    fleet.passive.receive("u1:80", REFUSED)
    assert fleet.serving() == [2, 3, 4]


def test_refusals_leave_as_many_as_failures_do(fleet: Fleet) -> None:
    for number in (1, 2, 3):
        fleet.refuses(number)
    fleet.passive.receive("u4:80", REFUSED)
    assert fleet.serving() == [3, 4]
    assert fleet.published == [("u1:80", REFUSED), ("u2:80", REFUSED)]


def test_a_route_without_ejection_goes_on_using_upstreams_that_refuse(fleet: Fleet) -> None:
    fleet.members("/", 4, eject_after="0")
    fleet.refuses(1)
    fleet.passive.receive("u2:80", REFUSED)
    fleet.passive.receive("unknown:80", REFUSED)
    assert fleet.serving() == [1, 2, 3, 4]


def test_an_ejection_is_noted_and_its_end_once_it_serves_again(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    assert fleet.noted() == [("ejected", "u1:80")]
    assert fleet.live(1).why == "5 failures in a row, upstream_connect; out for 10 s"
    fleet.passes(10)
    assert fleet.noted() == [("let_back", "u1:80")]
    fleet.serves(1)
    fleet.passes(10)
    assert fleet.noted() == [("recovered", "u1:80")]


def test_panic_is_noted_when_it_begins_and_when_it_ends(fleet: Fleet) -> None:
    fleet.members("/", 4, max_ejected="1.0")
    for number in (1, 2, 3):
        fleet.refuses(number)
    assert ("panic_began", "/") in fleet.noted()
    fleet.passes(10)
    assert ("panic_ended", "/") in fleet.noted()


# -- compared with the others of the route


def test_where_all_fail_alike_nobody_is_ejected(fleet: Fleet) -> None:
    for _ in range(100):
        for number in (1, 2, 3, 4):
            fleet.fails(number, reason="500")
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.metrics.health.ejections == {}


def test_one_that_was_ejected_before_the_others_began_to_fail_comes_back_at_once(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    assert fleet.serving() == [2, 3, 4]
    for _ in range(30):
        for number in (2, 3, 4):
            fleet.fails(number, reason="500")
    fleet.passes(1)
    assert fleet.serving() == [1, 2, 3, 4]
    assert ("recovered", "u1:80") in fleet.noted()


def test_a_second_sick_one_does_not_hide_the_first(fleet: Fleet) -> None:
    for _ in range(5):
        fleet.fails(1)
        fleet.fails(2)
        fleet.serves(3)
        fleet.serves(4)
    fleet.fails(1, 2)
    fleet.fails(2, 2)
    assert fleet.serving() == [3, 4]


def test_of_two_one_that_fails_where_the_other_does_not_is_ejected() -> None:
    fleet = Fleet()
    fleet.members("/", 2)
    fleet.fails(1, 5, "500")
    assert fleet.serving() == [2]


def test_failures_of_a_route_that_takes_no_part_count_for_one_that_does(fleet: Fleet) -> None:
    fleet.members("/steady", 4, eject_after="0")
    for _ in range(5):
        fleet.passive.failed(fleet.live(1), "500", fleet.route("/steady"))
    assert fleet.serving() == [2, 3, 4]


# -- what others tell


def test_one_failure_in_each_of_five_instances_is_five(fleet: Fleet) -> None:
    fleet.fails(1)
    for _ in range(3):
        fleet.passive.heard("/", "u1:80", 1.0)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.passive.heard("/", "u1:80", 1.0)
    assert fleet.serving() == [2, 3, 4]


def test_what_fails_at_one_that_is_out_is_not_told_since_others_may_have_let_it_back_by_then(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.fails(1)
    assert list(fleet.passive.judge.telling()) == []


def test_what_is_told_is_what_failures_added_and_answers_left(fleet: Fleet) -> None:
    fleet.fails(1, 2)
    ((path, upstream, added, _, _),) = fleet.passive.judge.telling()
    assert (path, upstream.member, round(added, 6)) == ("/", "u1:80", 2.0)
    assert list(fleet.passive.judge.telling()) == []
    fleet.fails(2)
    fleet.serves(2, 5)
    assert list(fleet.passive.judge.telling()) == [], "it is no news where the upstream answers"


def test_the_failures_of_an_instance_that_fails_with_all_weigh_nothing(fleet: Fleet) -> None:
    for _ in range(30):
        for number in (1, 2, 3, 4):
            fleet.fails(number)
    list(fleet.passive.judge.telling())
    for number in (1, 2, 3, 4):
        fleet.fails(number)
    assert list(fleet.passive.judge.telling()) == []


def test_what_was_heard_is_taken_off_by_answers_here_and_elsewhere(fleet: Fleet) -> None:
    fleet.passive.heard("/", "u1:80", 4.0)
    fleet.clock.passes(60)
    fleet.serves(1)
    fleet.passive.heard("/", "u1:80", 0.9)
    assert fleet.serving() == [1, 2, 3, 4]
    for path, member in (("/", "u1:80"), ("/", "u2:80"), ("/none", "u1:80"), ("/", "u9:80")):
        fleet.passive.heard_answers(path, member, 5, "one", goes_on=False)
    fleet.passive.heard("/", "u1:80", 1.0)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.passive.heard("/", "u1:80", 1.5)
    assert fleet.serving() == [2, 3, 4]


def test_answers_after_failures_are_to_be_told_and_no_others(fleet: Fleet) -> None:
    fleet.fails(1)
    list(fleet.passive.judge.telling())
    fleet.told = 0
    fleet.serves(1)
    fleet.serves(2)
    assert fleet.told == 1
    assert [(told.upstream.member, told.answers) for told in fleet.passive.judge.telling()] == [("u1:80", 1)]


@pytest.mark.parametrize(("path", "member"), [("/none", "u1:80"), ("/", "u9:80"), ("", ""), ("/", "")])
def test_what_is_told_of_others_is_passed_over(fleet: Fleet, path: str, member: str) -> None:
    fleet.passive.heard(path, member, 1e9)
    assert fleet.serving() == [1, 2, 3, 4]


# -- a connection that is made again


@pytest.mark.parametrize("reason", ["upstream_connect", "upstream_unreached"])
def test_one_that_was_out_of_reach_may_prove_itself_as_soon_as_a_connection_is_made(
    fleet: Fleet, reason: str
) -> None:
    fleet.fails(1, 5, reason)
    fleet.passes(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.accepting = {1}
    fleet.passes(2)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.live(1).on_probation
    assert [what for what, _ in fleet.noted()] == ["ejected", "let_back"]
    assert fleet.published == [], "nobody was served"


def test_one_that_refuses_too(fleet: Fleet) -> None:
    for seconds in (1, 2, 4, 8):
        fleet.refuses(1)
        fleet.passes(seconds - 0.1)
        fleet.passes(0.1)
    fleet.refuses(1)
    fleet.accepting = {1}
    fleet.passes(1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_attempts_to_connect_are_made_after_pauses_of_1_to_10_seconds_and_named_to_the_loop(fleet: Fleet) -> None:
    for each in range(4):
        fleet.refuses(1)
        fleet.passes(2.0**each)
    fleet.refuses(1)
    fleet.attempts, begun = [], fleet.clock()
    while fleet.serving() == [2, 3, 4]:
        due = fleet.passive.due()
        assert due is not None
        fleet.clock.now = max(due, fleet.clock.now)
        fleet.passive.sweep()
    assert [each - begun for each in fleet.attempts] == [1, 3, 7, 15]


@pytest.mark.parametrize("fails_by", ["upstream_reset", "upstream_connect"])
def test_one_that_accepts_connections_and_fails_then_stays_out_for_its_time(fleet: Fleet, fails_by: str) -> None:
    fleet.accepting = {1}
    fleet.fails(1, 5)
    fleet.passes(1)
    assert fleet.live(1).on_probation
    fleet.fails(1, 1, fails_by)
    fleet.passes(19.9)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(0.1)
    fleet.serves(1)
    fleet.refuses(1)
    fleet.passes(0.9)
    assert fleet.serving() == [2, 3, 4], "it was not trusted yet"


@pytest.mark.parametrize("reason", ["500", "upstream_reset", "upstream_timeout", "error_frame"])
def test_a_connection_says_nothing_of_one_that_fails_otherwise(fleet: Fleet, reason: str) -> None:
    fleet.accepting = {1}
    fleet.fails(1, 5, reason)
    fleet.passes(9.9)
    assert (fleet.serving(), fleet.attempts) == ([2, 3, 4], [])


# -- busy


def test_one_that_is_full_again_and_again_is_left_alone_for_as_long_as_it_says_each_time_and_no_longer(
    fleet: Fleet,
) -> None:
    fleet.serves(1)
    for turn in range(20):
        fleet.passive.replied(fleet.live(1), 503, 1.0, fleet.route())
        assert fleet.serving() == [2, 3, 4]
        fleet.passes(1.0)
        assert fleet.serving() == [1, 2, 3, 4]
        if turn % 2:
            fleet.serves(1)
    assert sum(fleet.metrics.health.ejections.values()) == 0


def test_one_that_is_full_is_set_aside_for_as_long_as_it_says_and_not_ejected(fleet: Fleet) -> None:
    assert not fleet.passive.replied(fleet.live(1), 503, 7.0, fleet.route())
    assert fleet.serving() == [2, 3, 4]
    assert (fleet.live(1).available, fleet.live(1).failures) == (True, 0)
    fleet.passes(6.9)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(0.1)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.metrics.health.ejections == {}
    assert fleet.shown("slb_upstream_busy_total") == {("u1:80",): 1}


@pytest.mark.parametrize("status", [429, 529])
def test_one_that_says_so_without_a_time_is_set_aside_for_longer_each_time_in_succession(status: int) -> None:
    fleet = Fleet()
    fleet.members("/", 4)
    for seconds in (1, 2, 4, 8, 10, 10):
        fleet.passive.replied(fleet.live(1), status, None, fleet.route())
        fleet.passes(seconds - 0.1)
        assert fleet.serving() == [2, 3, 4]
        fleet.passes(0.1)
        assert fleet.serving() == [1, 2, 3, 4]
    fleet.serves(1)
    fleet.passive.replied(fleet.live(1), status, None, fleet.route())
    fleet.passes(1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_an_answer_of_one_that_has_left_says_nothing_of_one_that_has_come_in_its_place(fleet: Fleet) -> None:
    gone, route = fleet.live(1), fleet.route()
    fleet.members("/", 0)
    fleet.passive.replied(gone, 503, 5.0, route)
    for _ in range(20):
        fleet.passive.answered(gone, route, took=0.2)
    fleet.passive.answered(gone, route, took=60.0)
    fleet.members("/", 4)
    assert fleet.passive.judge.routes.keys() <= {"/"}
    assert not any(each.troubled for each in fleet.passive.judge.routes.values())
    fleet.passive.replied(fleet.live(1), 503, 5.0, fleet.route())
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(5)
    assert fleet.serving() == [1, 2, 3, 4], "as long as it has said, and no longer"


def test_where_all_are_full_all_serve(fleet: Fleet) -> None:
    for number in (1, 2, 3, 4):
        fleet.passive.replied(fleet.live(number), 503, 5.0, fleet.route())
    assert (fleet.serving(), fleet.route().panic) == ([1, 2, 3, 4], False)


def test_a_503_of_one_that_serves_is_busy_and_of_one_that_does_not_a_failure(fleet: Fleet) -> None:
    fleet.serves(1)
    fleet.passive.replied(fleet.live(1), 503, None, fleet.route())
    assert (fleet.serving(), fleet.live(1).failures) == ([2, 3, 4], 0)
    for _ in range(5):
        fleet.passive.replied(fleet.live(2), 503, None, fleet.route())
    assert fleet.metrics.health.ejections == {("u2:80", "503"): 1}


@pytest.mark.parametrize(
    ("status", "seconds", "longest"), [(503, 1e9, 300.0), (503, 0.0, 1.0), (429, 1e9, 10.0), (429, 0.0, 1.0)]
)
def test_how_long_it_is_set_aside_is_bounded(status: int, seconds: float, longest: float) -> None:
    fleet = Fleet()
    fleet.members("/", 4)
    fleet.passive.replied(fleet.live(1), status, seconds, fleet.route())
    fleet.passes(longest - 0.1)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(0.1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_a_429_is_the_answer_to_one_caller_where_others_are_answered(fleet: Fleet) -> None:
    for _ in range(20):
        fleet.serves(1)
        fleet.clock.passes(0.1)
        for _ in range(4):
            assert fleet.passive.replied(fleet.live(1), 429, 300.0, fleet.route())
    assert fleet.serving() == [1, 2, 3, 4]
    assert not fleet.passive.replied(fleet.live(1), 429, 300.0, fleet.route()), "five in a row are not one's"
    assert fleet.serving() == [2, 3, 4]


def test_a_429_of_one_that_has_answered_nobody_for_10_seconds_is_enough_and_is_not_told(fleet: Fleet) -> None:
    fleet.serves(1)
    fleet.clock.passes(10)
    fleet.passive.replied(fleet.live(1), 429, 5.0, fleet.route())
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.clock.passes(0.1)
    fleet.passive.replied(fleet.live(1), 429, 5.0, fleet.route())
    assert (fleet.serving(), fleet.published) == ([2, 3, 4], [])


def test_an_answer_after_a_second_ends_what_429_began(fleet: Fleet) -> None:
    """Also one to a request that was sent before."""
    fleet.passive.replied(fleet.live(1), 429, 9.0, fleet.route())
    fleet.clock.passes(0.9)
    fleet.serves(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.clock.passes(0.1)
    fleet.serves(1, took=1.0)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.passes(0)
    fleet.serves(1)
    assert fleet.serving() == [1, 2, 3, 4]


@pytest.mark.parametrize("is_told", [False, True])
def test_an_answer_to_a_request_that_was_sent_since_ends_what_503_began(fleet: Fleet, is_told: bool) -> None:
    """A server that is full answers those that it has taken before."""
    for _ in range(20):
        fleet.serves(1)
    if is_told:
        fleet.passive.receive("u1:80", BUSY_UNTIL, 6000)
    else:
        fleet.passive.replied(fleet.live(1), 503, 60.0, fleet.route())
    fleet.clock.passes(2)
    fleet.serves(1, took=2.1)
    fleet.passes(0)
    assert fleet.serving() == [2, 3, 4]
    fleet.serves(1, took=1.9)
    assert fleet.serving() == [1, 2, 3, 4]


@pytest.mark.parametrize("status", [501, 505])
def test_what_a_client_can_bring_about_is_an_answer(fleet: Fleet, status: int) -> None:
    for _ in range(10):
        assert fleet.passive.replied(fleet.live(1), status, None, fleet.route())
    assert fleet.serving() == [1, 2, 3, 4]


# -- stuck


def test_one_that_owes_answers_while_others_give_theirs_is_stuck_after_30_seconds(fleet: Fleet) -> None:
    sent = fleet.clock()
    fleet.clock.passes(29)
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.clock.passes(1)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.published == [("u1:80", STUCK)]
    assert fleet.metrics.health.ejections == {("u1:80", "stuck"): 1}
    assert fleet.live(1).why.startswith("no sign of life for 30 s")


def test_clients_that_leave_early_tell_how_long_it_has_been(fleet: Fleet) -> None:
    for _ in range(8):
        sent = fleet.clock()
        fleet.clock.passes(4)
        fleet.serves(2)
        fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=True)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.metrics.health.ejections == {("u1:80", "stuck"): 1}


def test_clients_that_leave_at_once_or_far_apart_say_nothing(fleet: Fleet) -> None:
    for wait, apart in ((0.5, 0.1), (4.0, 6.0)):
        for _ in range(100):
            sent = fleet.clock()
            fleet.clock.passes(wait)
            fleet.serves(2)
            fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=True)
            fleet.clock.passes(apart)
    assert fleet.serving() == [1, 2, 3, 4]


def test_a_client_that_waits_less_than_usual_says_nothing(fleet: Fleet) -> None:
    for _ in range(20):
        fleet.serves(2, took=3.0)
    for _ in range(20):
        sent = fleet.clock()
        fleet.clock.passes(4)
        fleet.serves(2)
        fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=True)
    assert fleet.serving() == [1, 2, 3, 4]


def test_a_sign_of_life_begins_the_time_anew(fleet: Fleet) -> None:
    for _ in range(10):
        sent = fleet.clock()
        fleet.clock.passes(20)
        fleet.serves(2)
        fleet.live(1).alive_at = fleet.clock()  # a byte of some answer
        fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4]


def test_one_whose_answers_are_not_seen_is_not_stuck_while_one_is_under_way_nor_speaks_for_the_others(
    fleet: Fleet,
) -> None:
    sent = fleet.clock()
    fleet.live(1).unseen = fleet.live(3).unseen = 1
    fleet.clock.passes(60)
    fleet.passive.unanswered(fleet.live(2), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4], "nobody has answered"
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    fleet.live(1).unseen, fleet.live(1).alive_at = 0, fleet.clock()
    fleet.clock.passes(29)
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.clock.passes(2)
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [2, 3, 4]


def test_where_no_other_answers_either_nobody_is_stuck(fleet: Fleet) -> None:
    sent = fleet.clock()
    fleet.clock.passes(300)
    for number in (1, 2, 3, 4):
        fleet.passive.unanswered(fleet.live(number), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4]


def test_where_answers_take_long_it_is_ten_times_as_long_as_they_do(fleet: Fleet) -> None:
    for _ in range(20):
        fleet.serves(2, took=20.0)
    sent = fleet.clock()
    fleet.clock.passes(150)
    fleet.serves(2, took=20.0)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.clock.passes(50)
    fleet.serves(2, took=20.0)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [2, 3, 4]


def test_a_stuck_one_has_one_request_at_a_time_once_its_time_is_over(fleet: Fleet) -> None:
    sent = fleet.clock()
    fleet.clock.passes(31)
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    fleet.passes(10)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.left_out() == []
    fleet.live(1).inflight = 1
    assert fleet.left_out() == [1], "until it answers"
    fleet.serves(1)
    fleet.live(1).inflight = 0
    fleet.passes(10)
    assert fleet.left_out() == []
    assert fleet.published[-1] == ("u1:80", SERVED)


def test_a_check_of_a_path_of_its_own_does_not_let_a_stuck_one_back(fleet: Fleet) -> None:
    sent = fleet.clock()
    fleet.clock.passes(31)
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    fleet.passive.passed(fleet.live(1))
    assert fleet.serving() == [2, 3, 4]


@pytest.mark.parametrize("is_under_way", [False, True])
def test_whoever_was_served_meanwhile_contradicts_that_it_is_stuck(fleet: Fleet, is_under_way: bool) -> None:
    fleet.serves(1)
    if is_under_way:  # of which nothing is seen
        fleet.live(1).unseen = 1
        fleet.clock.passes(60)
    fleet.passive.receive("u1:80", STUCK)
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.published == [("u1:80", SERVED)]
    fleet.live(1).unseen = 0
    fleet.clock.passes(11)
    fleet.passive.receive("u1:80", STUCK)
    assert fleet.serving() == [2, 3, 4]


def test_a_route_can_leave_stuck_ones_in() -> None:
    fleet = Fleet()
    fleet.members("/", 4, eject_stuck="false")
    sent = fleet.clock()
    fleet.clock.passes(300)
    fleet.serves(2)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4]


def owes(fleet: Fleet, seconds: float, *numbers: int, others: tuple[int, ...] = ()) -> None:
    """These have given no byte for so long, when `others` answer and it is asked."""
    sent = fleet.clock()
    fleet.passes(seconds)
    for number in others:
        fleet.serves(number)
    for number in numbers:
        fleet.passive.unanswered(fleet.live(number), sent, fleet.route(), has_left=False)


def stuck(fleet: Fleet) -> set[str]:
    """Those that the metric has."""
    return {upstream for (upstream,), value in fleet.shown("slb_upstream_stuck").items() if value}


def test_the_only_one_of_its_route_is_said_to_be_stuck_once_until_a_byte_comes() -> None:
    fleet = Fleet()
    fleet.members("/", 1)
    owes(fleet, 29, 1)
    assert (stuck(fleet), fleet.noted()) == (set(), [])
    with capture_logs() as logs:
        owes(fleet, 1, 1)
        for _ in range(3):
            owes(fleet, 30, 1)
    assert fleet.noted() == [("stuck", "u1:80")]
    assert [each["event"] for each in logs] == ["upstream_stuck"]
    assert stuck(fleet) == {"u1:80"}
    live = fleet.live(1)
    assert live.spared == (
        "it is stuck: no sign of life for 30 s, and 0 requests in flight; the only upstream of / is not ejected"
    )
    assert condition(live, fleet.route().settings) == "stuck"
    assert (fleet.serving(), fleet.published) == ([1], [])
    fleet.passes(1)
    assert fleet.noted() == []
    due = fleet.passive.due()
    assert due is not None
    assert due <= fleet.clock() + 1.0
    live.alive_at = fleet.clock()
    fleet.passes(1)
    assert fleet.noted() == [("stuck_ended", "u1:80")]
    assert (stuck(fleet), condition(live, fleet.route().settings)) == (set(), "unchecked")
    assert fleet.passive.due() is None
    owes(fleet, 30, 1)
    assert fleet.noted() == [("stuck", "u1:80")], "each time it becomes so"


def test_since_when_it_owes_is_told_and_not_since_when_it_is_called_stuck() -> None:
    fleet = Fleet()
    fleet.members("/", 1)
    before = time.time()
    owes(fleet, 30, 1)
    assert before - 30 <= fleet.live(1).spared_since <= time.time() - 30


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"eject_stuck": "false"}, "not ejected, as eject_stuck of / is false"),
        ({"max_ejected": "0"}, "not ejected, as max_ejected is reached"),
        ({"eject_after": "0"}, "not ejected, as eject_after is 0"),
    ],
)
def test_one_that_may_not_be_ejected_is_said_to_be_stuck_and_why_it_stays(
    settings: dict[str, str], reason: str
) -> None:
    fleet = Fleet()
    fleet.members("/", 4, **settings)
    owes(fleet, 30, 1, others=(2,))
    assert fleet.noted() == [("stuck", "u1:80")]
    assert fleet.live(1).spared.endswith(f"; {reason}")
    assert fleet.serving() == [1, 2, 3, 4]


def test_where_no_other_answers_either_each_is_said_to_be_stuck_and_is_ejected_once_one_does(fleet: Fleet) -> None:
    owes(fleet, 30, 1, 2, 3, 4)
    assert stuck(fleet) == {"u1:80", "u2:80", "u3:80", "u4:80"}
    assert fleet.live(1).spared.endswith("; not ejected, as no other upstream of / answers either")
    fleet.noted()
    owes(fleet, 4, 1, others=(2,))
    assert fleet.serving() == [2, 3, 4]
    assert fleet.noted() == [("stuck_ended", "u1:80"), ("ejected", "u1:80")]
    fleet.passes(1)
    assert stuck(fleet) == {"u1:80", "u3:80", "u4:80"}, "the first one as well, though it is ejected"


def test_a_stuck_one_that_refuses_connections_is_dead_and_one_that_leaves_is_nothing() -> None:
    fleet = Fleet()
    fleet.members("/", 1)
    owes(fleet, 30, 1)
    fleet.refuses(1)
    assert fleet.noted() == [("stuck", "u1:80"), ("stuck_ended", "u1:80")]
    owes(fleet, 30, 1)
    fleet.members("/", 0)
    assert fleet.shown("slb_upstream_stuck") == {}
    assert fleet.passive.due() is None


def test_one_that_is_ejected_as_stuck_is_held_for_that_until_a_byte_comes(fleet: Fleet) -> None:
    owes(fleet, 31, 1, others=(2,))
    assert (fleet.serving(), stuck(fleet)) == ([2, 3, 4], {"u1:80"})
    assert fleet.noted() == [("ejected", "u1:80")], "which says it all"
    fleet.passes(10)
    assert (fleet.serving(), stuck(fleet)) == ([1, 2, 3, 4], {"u1:80"}), "it is tried"
    assert condition(fleet.live(1), fleet.route().settings) == "failing"
    fleet.serves(1)
    fleet.passes(1)
    assert stuck(fleet) == set()
    assert "stuck_ended" not in [what for what, _ in fleet.noted()]


@pytest.mark.parametrize(
    "ends",
    [
        lambda fleet: fleet.refuses(1),
        lambda fleet: fleet.fails(1, reason="500"),
        lambda fleet: fleet.passive.receive("u1:80", SERVED),
        lambda fleet: fleet.members("/", 0),
    ],
    ids=["it refuses", "it fails", "it has served elsewhere", "it leaves"],
)
def test_one_that_is_ejected_as_stuck_is_so_no_more(ends: Callable[[Fleet], object]) -> None:
    fleet = Fleet()
    fleet.members("/", 4)
    for number in (2, 3, 4):
        fleet.serves(number, times=20)
    owes(fleet, 31, 1, others=(2,))
    fleet.passes(10)
    assert stuck(fleet) == {"u1:80"}
    ends(fleet)
    assert stuck(fleet) == set()
    fleet.passes(2)
    assert stuck(fleet) == set()


def test_one_whose_trial_hangs_and_that_may_not_be_ejected_again_is_said_to_be_stuck(fleet: Fleet) -> None:
    owes(fleet, 31, 1, others=(2,))
    fleet.passes(10)
    fleet.noted()
    owes(fleet, 31, 1)
    assert (stuck(fleet), fleet.noted()) == ({"u1:80"}, [("stuck", "u1:80")])
    assert condition(fleet.live(1), fleet.route().settings) == "stuck"
    fleet.live(1).alive_at = fleet.clock() + 1
    fleet.passes(1)
    assert (stuck(fleet), fleet.live(1).spared) == (set(), "")


def leaves(fleet: Fleet, number: int, after: float) -> bool:
    """Whether a client that leaves so many seconds after its request was sent is one that the upstream has lost."""
    sent = fleet.clock()
    fleet.passes(after)
    return fleet.passive.unanswered(fleet.live(number), sent, fleet.route(), has_left=True)


def test_a_client_that_leaves_one_that_is_known_to_be_stuck_is_lost_by_it_unless_it_leaves_at_once() -> None:
    fleet = Fleet()
    fleet.members("/", 1)
    for _ in range(20):
        fleet.serves(1, took=2.0)
    assert [leaves(fleet, 1, after) for after in (0.5, 3.0, 9.0)] == [False] * 3
    owes(fleet, 30, 1)
    failures = fleet.live(1).failures
    assert [leaves(fleet, 1, after) for after in (0.5, 1.5, 3.0, 9.0)] == [False, True, True, True]
    assert fleet.live(1).failures == failures, "of which nothing new is learned"
    fleet.live(1).alive_at = fleet.clock() + 1
    fleet.passes(1)
    assert not leaves(fleet, 1, 3.0)


def test_the_client_by_whose_leaving_it_is_found_stuck_is_the_first_that_is_lost_by_it() -> None:
    fleet = Fleet()
    fleet.members("/", 1)
    assert [leaves(fleet, 1, 4.0) for _ in range(8)] == [False] * 7 + [True]


def test_a_client_that_leaves_one_that_is_ejected_as_stuck_is_lost_by_it_and_one_on_trial_is_not(
    fleet: Fleet,
) -> None:
    owes(fleet, 31, 1, others=(2,))
    assert leaves(fleet, 1, 3.0)
    fleet.passes(10)
    assert fleet.live(1).on_probation
    assert not leaves(fleet, 1, 3.0), "whether it still is will be seen"
    fleet.refuses(1)
    assert not leaves(fleet, 1, 0.9)
    assert not leaves(fleet, 1, 3.0), "it is ejected for something else"


def test_since_when_one_is_sick_is_a_metric_until_it_is_well_and_not_only_until_it_is_tried(fleet: Fleet) -> None:
    before = time.time()
    name = "slb_upstream_sick_since_seconds"
    fleet.fails(1, 5)
    assert list(fleet.shown(name)) == [("u1:80",)]
    since = fleet.shown(name)["u1:80",]
    assert before <= since <= time.time()
    fleet.passes(10)
    fleet.fails(1)
    assert fleet.shown(name) == {("u1:80",): since}, "one trouble"
    fleet.passes(20)
    assert fleet.live(1).on_probation
    assert fleet.shown(name) == {("u1:80",): since}
    fleet.serves(1)
    fleet.passes(11)
    assert fleet.shown(name) == {}
    only = Fleet()
    only.members("/", 1)
    owes(only, 30, 1)
    assert only.shown(name)["u1:80",] == pytest.approx(time.time() - 30, abs=5)


# -- slow


def paced(**settings: str) -> Fleet:
    fleet = Fleet()
    fleet.members("/", 4, **settings)
    for _ in range(20):
        for number in (1, 2, 3, 4):
            fleet.serves(number, took=0.2)
    return fleet


def test_one_whose_answers_begin_far_later_than_those_of_the_others_is_ejected() -> None:
    fleet = paced()
    for _ in range(5):
        assert fleet.serving() == [1, 2, 3, 4]
        for number in (2, 3, 4):
            fleet.serves(number, took=0.2)
        fleet.is_slow(1)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.metrics.health.ejections == {("u1:80", "slow"): 1}


def test_one_whose_answers_are_late_one_behind_another_is_taken_for_one_that_is_late_once() -> None:
    fleet = paced()
    fleet.serves(1, times=40, took=2.0)
    assert fleet.serving() == [1, 2, 3, 4]


def test_an_answer_that_does_not_come_is_slow_before_it_has() -> None:
    fleet = paced()
    for _ in range(4):
        fleet.is_slow(1)
    sent = fleet.clock()
    fleet.clock.passes(0.5)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [1, 2, 3, 4], "within three times as long as usual"
    fleet.clock.passes(0.5)
    fleet.passive.unanswered(fleet.live(1), sent, fleet.route(), has_left=False)
    assert fleet.serving() == [2, 3, 4]


def test_a_route_asks_for_the_first_byte_as_soon_as_it_may_be_slow() -> None:
    fleet = Fleet()
    fleet.members("/", 4)
    assert fleet.route().first_look == 30.0
    assert paced().route().first_look == pytest.approx(0.8, rel=0.2)
    assert paced(eject_slow="false").route().first_look == 30.0


def test_what_others_tell_of_slow_answers_is_enough_together_with_what_is_known_here() -> None:
    fleet = paced()
    fleet.is_slow(1)
    fleet.is_slow(1)
    for member in ("u1:80", "u9:80"):
        fleet.clock.passes(2.0)
        fleet.passive.heard_slow("/", member, 2.0, 1.5, False)
        fleet.passive.heard_slow("/p9", member, 2.0, 1.5, False)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.clock.passes(2.0)
    fleet.passive.heard_slow("/", "u1:80", 1e6, 1.5, True)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.metrics.health.ejections == {("u1:80", "slow"): 1}
    assert "in the whole fleet" in fleet.live(1).why


def test_one_that_comes_back_as_slow_is_ejected_for_longer() -> None:
    fleet = paced()
    for _ in range(5):
        fleet.is_slow(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(10)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.is_slow(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(19.9)
    assert fleet.serving() == [2, 3, 4]


def test_where_all_get_slow_nobody_is() -> None:
    fleet = paced()
    for _ in range(100):
        fleet.clock.passes(3.0)
        for number in (1, 2, 3, 4):
            fleet.serves(number, took=3.0)
    assert fleet.serving() == [1, 2, 3, 4]


@pytest.mark.parametrize("settings", [{"eject_slow": "false"}, {"policy": "consistent_hash"}, {"eject_after": "0"}])
def test_a_route_can_leave_slow_ones_in(settings: dict[str, str]) -> None:
    fleet = paced(**settings)
    for _ in range(10):
        fleet.is_slow(1)
        fleet.passive.heard_slow("/", "u1:80", 5.0, 1.0, False)
    assert fleet.serving() == [1, 2, 3, 4]


# -- an instance that is the cause itself


def fail_as_a_whole(fleet: Fleet) -> None:
    for _ in range(10):
        for number in (1, 2, 3, 4):
            fleet.fails(number, reason="upstream_timeout")


def test_an_instance_with_which_all_fail_asks_the_others_and_takes_itself_for_the_cause(fleet: Fleet) -> None:
    fail_as_a_whole(fleet)
    assert fleet.published == [("/", ALL_FAIL)]
    fleet.passive.receive("/", SOME_SERVE)
    assert fleet.noted() == [("isolated", "/")]
    assert fleet.shown("slb_isolated") == {("/",): 1}
    fleet.passive.receive("/", SOME_SERVE)
    assert fleet.noted() == []
    for number in (1, 2, 3, 4):
        fleet.serves(number, 20)
    fleet.passes(1)
    assert fleet.noted() == [("isolation_ended", "/")]
    assert fleet.shown("slb_isolated") == {("/",): 0}


def test_whoever_is_served_says_so_and_whoever_is_not_says_nothing(fleet: Fleet) -> None:
    fleet.passive.receive("/", ALL_FAIL)
    assert fleet.published == [], "it has had no traffic"
    fleet.serves(1)
    fleet.passive.receive("/", ALL_FAIL)
    assert fleet.published == [("/", SOME_SERVE)]
    fail_as_a_whole(fleet)
    fleet.published.clear()
    fleet.passive.receive("/", ALL_FAIL)
    assert fleet.published == []


def test_an_answer_to_a_question_of_long_ago_says_nothing(fleet: Fleet) -> None:
    fleet.passive.receive("/", SOME_SERVE)
    fail_as_a_whole(fleet)
    fleet.clock.passes(3)
    fleet.passive.receive("/", SOME_SERVE)
    fleet.passive.receive("/none", SOME_SERVE)
    fleet.passive.receive("/none", ALL_FAIL)
    assert fleet.noted() == []


# -- a server that fails at once is not the one with the most room


def test_a_request_that_fails_keeps_its_slot_as_long_as_one_that_is_answered() -> None:
    fleet = paced()
    assert fleet.passive.holds_for(fleet.live(1), fleet.route()) == pytest.approx(0.2, rel=0.3)
    fail_as_a_whole(fleet)
    assert fleet.passive.holds_for(fleet.live(1), fleet.route()) == 0.0, "where all fail, nobody waits for that"


def test_jobs_which_go_by_no_route_are_judged_as_requests_are() -> None:
    fleet = Fleet()
    fleet.members("/", 4)

    def job(number: int, fails: bool) -> None:
        if fails:
            fleet.passive.failed(fleet.live(number), "500")
        else:
            fleet.passive.answered(fleet.live(number))

    for each in range(1000):
        for number in range(1, 5):
            job(number, fails=each % 100 == number)
    assert fleet.serving() == [1, 2, 3, 4], "one failure in a hundred"
    for _ in range(5):
        job(2, fails=True)
    assert fleet.serving() == [1, 3, 4]


def test_what_the_network_of_this_instance_does_not_carry_is_not_told_to_others(fleet: Fleet) -> None:
    fleet.fails(1, 5, "upstream_unreached")
    assert fleet.serving() == [2, 3, 4]
    assert list(fleet.passive.judge.telling()) == []
    fleet.fails(2, 1, "500")
    assert [(told.path, told.upstream.member) for told in fleet.passive.judge.telling()] == [
        ("/", fleet.live(2).member)
    ]


def drain(fleet: Fleet, number: int) -> None:
    fleet.mirror.update({}, {f"u{number}:80": {"drain": "true"}})


def test_one_that_is_drained_is_none_of_the_others_of_its_route(fleet: Fleet) -> None:
    for number in (3, 4):
        drain(fleet, number)
    fleet.fails(1, 5)
    drain(fleet, 1)
    assert fleet.live(1).troubles == 0
    fleet.passive.failed(fleet.live(1), "500", fleet.route())  # which was under way
    assert fleet.live(1).troubles == 0
    fleet.fails(2, 5)
    assert fleet.live(2).spared, "it fails alone"


def test_evidence_of_an_upstream_that_moved_to_another_route_stays_with_neither(fleet: Fleet) -> None:
    fleet.fails(1, 4)
    others = frozenset(f"u{number}:80" for number in (2, 3, 4))
    fleet.mirror.update({"/": RouteRecord(others), "/b": RouteRecord(frozenset({"u1:80", "u5:80"}))}, {})
    assert fleet.live(1).troubles == 0
    assert fleet.passive.judge.routes["/"].troubled == {}


def test_an_instance_that_has_no_requests_any_more_is_not_cut_off_for_good(fleet: Fleet) -> None:
    fail_as_a_whole(fleet)
    fleet.passive.receive("/", SOME_SERVE)
    assert fleet.metrics.health.isolated["/"]
    fleet.passes(30.0)
    assert fleet.metrics.health.isolated["/"]
    fleet.passes(40.0)
    assert not fleet.metrics.health.isolated["/"]


def test_a_route_that_changes_goes_on_by_the_answers_it_has_had() -> None:
    fleet = paced()
    before = fleet.route()
    fleet.mirror.update({"/": RouteRecord(frozenset({"u1:80", "u2:80"}))}, {})
    after = fleet.route()
    assert after is not before
    assert (after.pace, after.first_look) == (before.pace, before.first_look)
