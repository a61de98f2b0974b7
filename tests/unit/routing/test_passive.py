"""Upstreams that keep failing are ejected, for longer each time, and come back on probation."""

import pytest
from structlog.testing import capture_logs

from slb.routing.passive import Passive
from tests.unit.health.fleet import Clock, Routes


class Fleet(Routes):
    """`fails(1, 5)`: upstream u1 fails five requests in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.woken = 0
        self.passive = Passive(
            self.mirror, self.availability, self.metrics.health, self.clock, self._wake, self._publish
        )
        self.published: list[tuple[str, bool]] = []

    def _publish(self, member: str, refused: bool) -> None:
        self.published.append((member, refused))

    def refuses(self, number: int, times: int = 1) -> None:
        """What the proxy does of each refused connection."""
        for _ in range(times):
            self.passive.refused(self.live(number))
            self.passive.failed(self.live(number), "upstream_connect")

    def _wake(self) -> None:
        self.woken += 1

    def fails(self, number: int, times: int = 1, reason: str = "upstream_connect") -> None:
        for _ in range(times):
            self.passive.failed(self.live(number), reason)

    def serves(self, number: int) -> None:
        """What the proxy does on success."""
        self.live(number).failures = 0

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


def test_a_success_begins_the_count_anew(fleet: Fleet) -> None:
    fleet.fails(1, 4)
    fleet.serves(1)
    fleet.fails(1, 4)
    assert fleet.serving() == [1, 2, 3, 4]


def test_it_comes_back_when_its_hold_off_is_over(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    assert fleet.passive.due() == fleet.clock() + 10
    fleet.passes(9.9)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(0.1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_one_failure_on_probation_ejects_again_for_twice_as_long(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    for seconds in (10, 20, 40, 80, 160, 300, 300):
        assert fleet.passive.due() == fleet.clock() + seconds
        fleet.passes(seconds)
        assert fleet.serving() == [1, 2, 3, 4]
        fleet.fails(1)
        assert fleet.serving() == [2, 3, 4]


def test_one_success_on_probation_clears_what_was_held_against_it(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.passes(10)
    fleet.serves(1)
    fleet.passes(1)
    assert fleet.passive.due() is None
    fleet.fails(1, 4)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.fails(1)
    assert fleet.passive.due() == fleet.clock() + 10


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
    assert fleet.passive.due() == fleet.clock() + 20


def test_requests_that_were_under_way_change_nothing_while_it_is_ejected(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    until = fleet.passive.due()
    fleet.fails(1, 20)
    fleet.serves(1)
    assert fleet.passive.due() == until
    assert fleet.metrics.health.ejections == {("u1:80", "upstream_connect"): 1}


def test_never_more_are_ejected_than_may_be(fleet: Fleet) -> None:
    for number in (1, 2, 3, 4):
        fleet.fails(number, 50)
    assert fleet.serving() == [3, 4]
    fleet.passes(10)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.fails(3)
    fleet.fails(4)
    assert fleet.serving() == [1, 2]


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
    assert fleet.passive.due() == fleet.clock() + 3
    fleet.fails(2, 10)
    assert fleet.serving() == [2, 3, 4]


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
        fleet.passes(1)
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
            fleet.fails(number, 5)
        assert (fleet.serving(), fleet.route().panic) == ([3, 4], False)
        fleet.fails(3, 5)
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
    assert fleet.published == [("u1:80", True)]
    assert fleet.metrics.health.ejections == {("u1:80", "refused"): 1}


def test_an_upstream_that_refuses_is_out_for_a_second_and_each_time_for_twice_as_long(fleet: Fleet) -> None:
    fleet.members("/", 4, max_eject_time="30s")
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        fleet.refuses(1)
        assert fleet.passive.due() == fleet.clock() + seconds
        fleet.passes(seconds)
        assert fleet.serving() == [1, 2, 3, 4]


def test_it_is_out_for_no_longer_than_for_failures_at_first(fleet: Fleet) -> None:
    fleet.members("/", 4, eject_time="200ms")
    fleet.refuses(1)
    assert fleet.passive.due() == fleet.clock() + 0.2


def test_what_others_were_refused_counts_as_if_it_had_been_this_one(fleet: Fleet) -> None:
    fleet.passive.receive("u1:80", refused=True)
    assert fleet.serving() == [2, 3, 4]
    assert fleet.published == []
    fleet.passes(1)
    assert fleet.serving() == [1, 2, 3, 4]


def test_the_first_success_anywhere_ends_the_ejection_everywhere(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.passive.receive("u1:80", refused=False)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.serves(1)
    fleet.passes(1)
    assert fleet.published == [("u1:80", True), ("u1:80", False)]
    assert fleet.passive.due() is None


def test_a_check_that_passes_ends_the_ejection_and_is_published(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.passive.passed(fleet.live(1))
    assert fleet.serving() == [1, 2, 3, 4]
    assert fleet.published == [("u1:80", True), ("u1:80", False)]


def test_neither_ends_an_ejection_for_failures(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    fleet.passive.receive("u1:80", refused=False)
    fleet.passive.passed(fleet.live(1))
    assert fleet.serving() == [2, 3, 4]


def test_one_failure_after_a_refusal_ejects_for_eject_time(fleet: Fleet) -> None:
    fleet.refuses(1)
    fleet.passes(1)
    fleet.fails(1)
    assert fleet.passive.due() == fleet.clock() + 10


def test_news_of_refusals_does_not_count_for_a_while_after_it_was_disproved(fleet: Fleet) -> None:
    """One instance with a broken way would take an upstream from all others again and again."""
    fleet.passive.receive("u1:80", refused=True)
    fleet.passes(1)
    fleet.serves(1)
    fleet.passes(1)
    fleet.passive.receive("u1:80", refused=True)
    assert fleet.serving() == [1, 2, 3, 4]
    fleet.refuses(1)
    assert fleet.serving() == [2, 3, 4]
    fleet.passes(1)
    fleet.serves(1)
    fleet.passes(60)
    fleet.passive.receive("u1:80", refused=True)
    assert fleet.serving() == [2, 3, 4]


def test_refusals_leave_as_many_as_failures_do(fleet: Fleet) -> None:
    for number in (1, 2, 3):
        fleet.refuses(number)
    fleet.passive.receive("u4:80", refused=True)
    assert fleet.serving() == [3, 4]
    assert fleet.published == [("u1:80", True), ("u2:80", True)]


def test_a_route_without_ejection_goes_on_using_upstreams_that_refuse(fleet: Fleet) -> None:
    fleet.members("/", 4, eject_after="0")
    fleet.refuses(1)
    fleet.passive.receive("u2:80", refused=True)
    fleet.passive.receive("unknown:80", refused=True)
    assert fleet.serving() == [1, 2, 3, 4]


def test_an_ejection_is_noted_and_its_end_once_it_serves_again(fleet: Fleet) -> None:
    fleet.fails(1, 5)
    assert fleet.noted() == [("ejected", "u1:80")]
    assert fleet.live(1).why == "5 failures in a row, upstream_connect; out for 10 s"
    fleet.passes(10)
    assert fleet.noted() == [], "it is only tried again"
    fleet.serves(1)
    fleet.passes(1)
    assert fleet.noted() == [("recovered", "u1:80")]


def test_panic_is_noted_when_it_begins_and_when_it_ends(fleet: Fleet) -> None:
    fleet.members("/", 4, max_ejected="1.0")
    for number in (1, 2, 3):
        fleet.fails(number, 5)
    assert ("panic_began", "/") in fleet.noted()
    fleet.passes(10)
    assert ("panic_ended", "/") in fleet.noted()
