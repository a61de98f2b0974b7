"""Active checks by a clock of their own, with a store and upstreams that answer as the test sets them."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest_asyncio
from structlog.testing import capture_logs

from slb.balance.eligible import condition
from slb.balance.upstream import LiveUpstream
from slb.control.health_store import Answer, Ask, Outcome, Report
from slb.errors import RedisUnavailable
from slb.health.active import Active, ActiveTiming
from slb.health.roster import Roster, Watched
from slb.model import HealthCheck, Upstream
from tests.support.waiting import eventually
from tests.unit.health.fleet import Clock, Routes


class Store:
    """A fleet of one: everything that is asked for is granted, unless the test gives it to others."""

    def __init__(self) -> None:
        self.up = True
        self.fails = False
        self.others = Answer(0, 5.0, "", 0)
        self.theirs = False
        self.asks: list[list[Ask]] = []
        self.reports: list[Report] = []
        self.too_late: Outcome | None = None
        self.reporting_fails = False

    async def claim(self, asks: Sequence[Ask], room: int) -> list[Answer]:
        if self.fails:
            raise RedisUnavailable("away")
        self.asks.append(list(asks))
        answers = [self.others if self.theirs else Answer(7, ask.hold, ask.state, ask.run) for ask in asks]
        return [answer if index < room else Answer(0, 0.0, "", 0) for index, answer in enumerate(answers)]

    async def report(self, reports: Sequence[Report]) -> list[Outcome]:
        if self.reporting_fails:
            raise RedisUnavailable("away")
        self.reports += reports
        return [self.too_late or Outcome(True, each.state, each.run) for each in reports]


class Upstreams:
    """Those whose number is in `ill` fail their checks; with `gate` cleared, answers are held back."""

    def __init__(self) -> None:
        self.ill: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None:
        self.asked.append((upstream.member, check.path))
        await self.gate.wait()
        return "status 500" if upstream.host in self.ill else None


class Fleet(Routes):
    """`passes(seconds)` moves the time on, and everything that falls due in it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = Store()
        self.upstreams = Upstreams()
        self.passed: list[LiveUpstream] = []
        self.active = self.checks_by(self.store, self.upstreams)
        self.watched: list[Watched] = []
        self.roster = Roster(self.availability, self._add)

    def checks_by(self, store: Store, upstreams: Upstreams) -> Active:
        timing = ActiveTiming(first=1.0, settle=0.0, at_once=8)
        parts = store, upstreams, self.availability, self.metrics.health
        return Active(*parts, self.passed.append, Random(3), self.clock, timing, self.note)

    def _add(self, watched: Watched) -> None:
        self.watched.append(watched)
        self.active.add(watched)

    async def follow(self) -> None:
        await self.roster.follow(self.mirror.table)

    async def passes(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(round(seconds / step)):
            self.clock.passes(step)
            await self.active.turn()
            for _ in range(5):
                await asyncio.sleep(0)


@pytest_asyncio.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet()
    made.members("/", 3, health_path="/h")
    await made.follow()
    yield made
    made.upstreams.gate.set()
    await made.active.aclose()


async def test_every_upstream_is_checked_soon_and_then_about_once_per_interval(fleet: Fleet) -> None:
    await fleet.passes(1.25)
    assert sorted(fleet.upstreams.asked) == [(f"u{number}:80", "/h") for number in (1, 2, 3)]
    await fleet.passes(100)
    for number in (1, 2, 3):
        assert 18 <= fleet.upstreams.asked.count((f"u{number}:80", "/h")) <= 23


async def test_an_upstream_that_fails_often_enough_serves_no_more_until_it_has_passed(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u2"}
    await fleet.passes(8)
    assert fleet.serving() == [1, 2, 3]
    await fleet.passes(9)
    assert fleet.serving() == [1, 3]
    fleet.upstreams.ill = set()
    await fleet.passes(5.5)
    assert fleet.serving() == [1, 3]
    await fleet.passes(6)
    assert fleet.serving() == [1, 2, 3]


async def test_what_was_found_is_reported_with_its_claim(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u2"}
    await fleet.passes(1.25)
    found = {each.member: (each.claim, each.state, each.run) for each in fleet.store.reports}
    assert found == {"u1:80": (7, "up", 0), "u2:80": (7, "unknown", 1), "u3:80": (7, "up", 0)}


async def test_a_pass_that_is_reported_too_late_is_none_and_what_the_fleet_has_holds(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    assert fleet.serving() == [2, 3]
    fleet.upstreams.ill = set()
    fleet.passed.clear()
    fleet.store.too_late = Outcome(False, "down", 0)
    await fleet.passes(30)
    assert (fleet.serving(), fleet.route().panic, fleet.passed) == ([1, 2, 3], True, []), (
        "all are down for the fleet"
    )
    fleet.store.too_late = None
    await fleet.passes(12)
    assert (fleet.route().panic, len(fleet.passed) > 3) == (False, True)


async def test_a_failure_that_is_reported_too_late_leaves_no_state_of_its_own(fleet: Fleet) -> None:
    await fleet.passes(2)
    fleet.noted()
    fleet.upstreams.ill = {"u1"}
    fleet.store.too_late = Outcome(False, "up", 1)
    await fleet.passes(60)
    assert fleet.serving() == [1, 2, 3]
    assert {each.tally.run for each in fleet.watched} == {1}
    assert fleet.noted() == []


async def test_where_redis_has_nothing_of_a_check_the_next_one_decides(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    fleet.store.too_late = Outcome(False, "", 0)
    await fleet.passes(10)
    assert fleet.serving() == [2, 3]


async def test_a_result_that_cannot_be_reported_holds_here(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    fleet.store.reporting_fails = True
    await fleet.passes(20)
    assert fleet.serving() == [2, 3]


async def test_a_claim_outlives_its_check_and_the_next_check_comes_after_an_interval(fleet: Fleet) -> None:
    fleet.members("/", 3, health_path="/h", health_timeout="5s")
    await fleet.follow()
    await fleet.passes(60)
    asks = [ask for asks in fleet.store.asks for ask in asks if ask.check.timeout == 5]
    assert {ask.hold for ask in asks} == {7.0}
    assert {each.early for each in fleet.store.reports if each.check.timeout == 5} == {2.0}
    assert 30 <= len(asks) <= 36, "three upstreams, each 5 to 5.5 s"


async def test_an_upstream_is_not_asked_again_while_it_is_being_asked(fleet: Fleet) -> None:
    fleet.store.up = False
    fleet.upstreams.gate.clear()
    await fleet.passes(30)
    assert sorted(fleet.upstreams.asked) == [(f"u{number}:80", "/h") for number in (1, 2, 3)]
    fleet.upstreams.gate.set()
    await fleet.passes(2)
    assert len(fleet.upstreams.asked) == 6


async def test_news_that_overtakes_the_answer_to_an_ask_holds(fleet: Fleet) -> None:
    """The answer was written before the result came that the news is of."""
    await fleet.passes(2)
    claim = fleet.store.claim

    async def overtaken(asks: Sequence[Ask], room: int) -> list[Answer]:
        for each in asks:
            watched = next(one for one in fleet.watched if one.upstream.member == each.member)
            fleet.active.adopt(watched, "down" if each.member == "u1:80" else "up", 0)
        return await claim(asks, room)

    fleet.store.claim = overtaken  # type: ignore[method-assign]
    fleet.store.theirs, fleet.store.others = True, Answer(0, 5.0, "up", 0)
    await fleet.passes(6)
    assert fleet.serving() == [2, 3]
    fleet.store.claim = claim  # type: ignore[method-assign]
    await fleet.passes(6)
    assert fleet.serving() == [1, 2, 3], "what the next answer says"


async def test_a_result_on_its_way_to_redis_as_the_last_route_gives_up_the_check_leaves_nothing(
    fleet: Fleet,
) -> None:
    report = fleet.store.report
    sent, answered = asyncio.Event(), asyncio.Event()

    async def slow(reports: Sequence[Report]) -> list[Outcome]:
        sent.set()
        await answered.wait()
        return await report(reports)

    fleet.members("/", 3, health_path="/h", health_fall="1")
    await fleet.follow()
    fleet.upstreams.ill = {"u1"}
    fleet.store.report = slow  # type: ignore[method-assign]
    await fleet.passes(1.25)
    await sent.wait()
    fleet.members("/", 3)
    await fleet.follow()
    answered.set()
    await eventually(lambda: len(fleet.store.reports) == 3)
    await fleet.passes(1)
    assert not fleet.live(1).down
    assert fleet.noted() == []


async def test_the_news_of_its_own_report_does_not_hide_why(fleet: Fleet) -> None:
    """Redis publishes a result before it answers who has reported it."""
    report = fleet.store.report

    async def told_first(reports: Sequence[Report]) -> list[Outcome]:
        for each in reports:
            watched = next(one for one in fleet.watched if one.upstream.member == each.member)
            fleet.active.adopt(watched, each.state, each.run)
        return await report(reports)

    fleet.store.report = told_first  # type: ignore[method-assign]
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    assert fleet.live(1).why == "/h: status 500"
    assert fleet.noted() == [("check_failed", "u1:80")]


async def test_what_others_found_holds_here_too(fleet: Fleet) -> None:
    fleet.store.theirs, fleet.store.others = True, Answer(0, 5.0, "down", 1)
    await fleet.passes(1.25)
    assert fleet.upstreams.asked == []
    assert fleet.route().panic
    assert {each.tally.run for each in fleet.watched} == {1}
    fleet.store.others = Answer(0, 5.0, "up", 0)
    await fleet.passes(6)
    assert (fleet.serving(), fleet.route().panic) == ([1, 2, 3], False)


async def test_an_unknown_result_of_the_fleet_changes_nothing(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    assert fleet.serving() == [2, 3]
    for nothing in ("", "unknown", "ejected", "nonsense"):
        fleet.store.theirs, fleet.store.others = True, Answer(0, 5.0, nothing, 2)
        await fleet.passes(6)
        assert fleet.serving() == [2, 3]


async def test_the_count_of_the_one_before_goes_on(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    fleet.store.theirs, fleet.store.others = True, Answer(0, 5.0, "unknown", 2)
    await fleet.passes(1.25)
    fleet.store.theirs = False
    await fleet.passes(6)
    assert fleet.serving() == [2, 3]


async def test_without_redis_each_goes_by_its_own_eyes(fleet: Fleet) -> None:
    await fleet.passes(2)
    reported = len(fleet.store.reports)
    fleet.store.up = False
    fleet.upstreams.ill = {"u3"}
    with capture_logs() as logs:
        await fleet.passes(17)
    assert fleet.serving() == [1, 2]
    assert len(fleet.store.reports) == reported
    assert [line["event"] for line in logs].count("health_checks_alone") == 1


async def test_a_redis_that_fails_in_the_middle_of_a_call_is_one_that_is_gone(fleet: Fleet) -> None:
    fleet.store.fails = True
    fleet.upstreams.ill = {"u3"}
    await fleet.passes(17)
    assert fleet.serving() == [1, 2]
    fleet.store.fails = False
    await fleet.passes(6)
    asked = {(ask.member, ask.state) for asks in fleet.store.asks for ask in asks}
    assert asked == {("u1:80", "up"), ("u2:80", "up"), ("u3:80", "down")}


async def test_no_more_checks_run_than_may_and_the_others_follow(fleet: Fleet) -> None:
    fleet.members("/", 20, health_path="/h", health_timeout="1m")
    await fleet.follow()
    fleet.upstreams.gate.clear()
    await fleet.passes(20)
    assert len(fleet.upstreams.asked) == 8
    fleet.upstreams.gate.set()
    await fleet.passes(3)
    assert len({member for member, _ in fleet.upstreams.asked}) == 20


async def test_many_checks_are_one_call(fleet: Fleet) -> None:
    fleet.members("/", 200, health_path="/h")
    await fleet.follow()
    await fleet.passes(10, step=1.0)
    assert len(fleet.store.asks) <= 10
    assert max(map(len, fleet.store.asks)) > 20


async def test_routes_that_check_alike_share_one_check_and_others_have_their_own(fleet: Fleet) -> None:
    fleet.members("/same", 1, health_path="/h")
    fleet.members("/other", 1, health_path="/other")
    await fleet.follow()
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(1.25)
    assert sorted(fleet.upstreams.asked)[:2] == [("u1:80", "/h"), ("u1:80", "/other")]
    assert len(fleet.upstreams.asked) == 4


async def test_a_check_that_fails_concerns_only_the_routes_that_make_it(fleet: Fleet) -> None:
    fleet.members("/unchecked", 3)
    await fleet.follow()
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    assert (fleet.serving(), fleet.serving("/unchecked")) == ([2, 3], [1, 2, 3])


async def test_what_a_check_found_ends_with_it(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    fleet.members("/", 3, health_path="/elsewhere")
    await fleet.follow()
    assert fleet.serving() == [1, 2, 3]
    fleet.members("/", 3)
    await fleet.follow()
    before = len(fleet.upstreams.asked)
    await fleet.passes(20)
    assert len(fleet.upstreams.asked) == before
    assert fleet.active.due() is None
    assert not fleet.live(1).down


async def test_changing_the_route_keeps_what_its_checks_found(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    await fleet.passes(20)
    fleet.members("/", 4, health_path="/h", retries="3")
    assert fleet.serving() == [2, 3, 4]
    await fleet.follow()
    assert fleet.serving() == [2, 3, 4]
    assert len(fleet.watched) == 4


async def test_an_upstream_that_left_while_it_was_checked_leaves_nothing(fleet: Fleet) -> None:
    fleet.upstreams.gate.clear()
    await fleet.passes(1.25)
    fleet.members("/", 0, health_path="/h")
    fleet.upstreams.gate.set()
    await fleet.passes(1)
    await fleet.follow()
    assert fleet.shown("slb_health_checks_total") == {}
    assert fleet.shown("slb_upstream_up") == {}
    assert fleet.store.reports == []


async def test_results_are_counted_and_changes_logged_once(fleet: Fleet) -> None:
    fleet.upstreams.ill = {"u1"}
    with capture_logs() as logs:
        await fleet.passes(30)
    counts = fleet.shown("slb_health_checks_total")
    assert counts["u1:80", "failed"] == sum(asked == ("u1:80", "/h") for asked in fleet.upstreams.asked)
    assert fleet.shown("slb_upstream_up")["u1:80",] == 0
    falls = [(line["upstream"], line["was"], line["now"], line["why"]) for line in logs if line["now"] == "down"]
    assert falls == [("u1:80", "unknown", "down", "/h: status 500")]


async def test_a_check_that_breaks_is_logged_and_the_others_go_on(fleet: Fleet) -> None:
    class Broken(Upstreams):
        async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None:
            await super().fault(upstream, check)
            if upstream.host == "u1":
                raise RuntimeError("a bug")
            return None

    active = fleet.checks_by(Store(), Broken())
    for each in fleet.watched:
        active.add(each)
    fleet.active = active
    with capture_logs() as logs:
        await fleet.passes(2)
        await eventually(lambda: any(line["event"] == "health_check_broke" for line in logs))
    assert fleet.metrics.health.checks == {("u2:80", "passed"): 1, ("u3:80", "passed"): 1}


async def test_what_a_check_found_up_is_known_to_be_for_as_long_as_a_route_asks_for_it(fleet: Fleet) -> None:
    def known() -> list[str]:
        return [condition(live, fleet.route().settings) for live in map(fleet.live, (1, 2))]

    fleet.upstreams.ill = {"u2"}
    assert known() == ["unchecked", "unchecked"]
    await fleet.passes(1.25)
    assert known() == ["up", "unchecked"]
    await fleet.passes(16)
    assert known() == ["up", "down"]
    fleet.members("/", 3)
    await fleet.follow()
    assert known() == ["unchecked", "unchecked"]
    assert fleet.live(1).passing == frozenset()


async def test_the_turn_of_a_check_is_noted_by_who_made_it_alone(fleet: Fleet) -> None:
    fleet.upstreams.ill.add("u1")
    await fleet.passes(30)
    assert fleet.noted() == [("check_failed", "u1:80")], "what comes up at first is no news"
    fleet.upstreams.ill.clear()
    await fleet.passes(30)
    assert fleet.noted() == [("check_passed", "u1:80")]
    watched = next(each for each in fleet.watched if each.upstream.member == "u1:80")
    fleet.active.adopt(watched, "down", 0)
    assert fleet.live(1).down
    assert fleet.noted() == [], "another instance has made this one, and notes it"


async def test_an_upstream_that_flaps_is_one_event_with_a_number(fleet: Fleet) -> None:
    fleet.members("/", 3, health_path="/h", health_rise="1", health_fall="1")
    await fleet.follow()
    await fleet.passes(6)
    fleet.metrics.changes.take(100)
    with capture_logs() as logs:
        for _ in range(60):  # of 11 s: 5.5 s down, 5.5 s up
            fleet.upstreams.ill ^= {"u1"}
            await fleet.passes(5.5)
        fleet.upstreams.ill.clear()
        await fleet.passes(700)
    noted = [(each.what, each.subject, each.detail) for each in fleet.metrics.changes.take(100)]
    alone = [
        ("check_failed", "/h: status 500"),
        ("check_passed", "/h: it passes"),
        ("check_failed", "/h: status 500"),
    ]
    assert noted[:3] == [(what, "u1:80", detail) for what, detail in alone]
    flapping = [
        re.fullmatch(r"/h: (\d+) turns in (\d+) s, (up|down) now(: it passes)?", row[2]) for row in noted[3:]
    ]
    assert {row[:2] for row in noted[3:]} == {("flapping", "u1:80")}
    (turns, seconds, state), *more = [each.group(1, 2, 3) for each in flapping if each]
    assert (turns, state) == ("4", "up")
    assert 15 <= int(seconds) <= 20
    assert len(more) == len(noted) - 4 == 2, "in 330 s: what was counted in 300 s, and the rest"
    assert sum(int(each[0]) for each in more) + 4 in (59, 60)
    assert {each[1] for each in more} == {"300"}
    moves = [line for line in logs if line["event"] == "upstream_health" and line["log_level"] != "debug"]
    assert len(moves) == 3
    told = [(line["turns"], line["seconds"]) for line in logs if line["event"] == "upstream_flapping"]
    assert told == [(int(turns), int(seconds)), *((int(each[0]), 300) for each in more)]


async def test_what_another_instance_turns_is_counted_here_and_told_there(fleet: Fleet) -> None:
    await fleet.passes(2)
    watched = next(each for each in fleet.watched if each.upstream.member == "u1:80")
    with capture_logs() as logs:
        for _ in range(5):
            fleet.active.adopt(watched, "down", 0)
            fleet.active.adopt(watched, "up", 0)
        await fleet.passes(310)
    assert fleet.noted() == []
    told = [line["turns"] for line in logs if line["event"] == "upstream_flapping"]
    assert told == [4, 6], "each instance has its own log"


async def test_a_turn_after_five_minutes_is_none_of_those_before(fleet: Fleet) -> None:
    await fleet.passes(2)
    watched = next(each for each in fleet.watched if each.upstream.member == "u1:80")
    for _ in range(3):
        fleet.active.adopt(watched, "down", 0)
        fleet.active.adopt(watched, "up", 0)
    with capture_logs() as logs:
        fleet.clock.passes(301)
        fleet.active.adopt(watched, "down", 0)
        fleet.active.adopt(watched, "up", 0)
        await fleet.passes(310)
    told = [(line["turns"], line["now"]) for line in logs if line["event"] == "upstream_flapping"]
    assert told == [(2, "up"), (2, "up")]
