"""Passive health: an upstream that fails, hangs or is slow where the others of its route do not is ejected for a
while, each time for longer; one that says it is busy is set aside.

What counts as evidence, and when it is enough, stands in balance/judge.py. Here: what follows. Each process judges
by its own requests and by what the others tell of theirs. What one of them cannot be wrong about is enough at once,
for the whole fleet: a refused connection means that no process listens at the address, and an upstream that owes
answers for minutes while others give theirs is stuck. Either is published, and whoever was served meanwhile
contradicts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slb.balance.eligible import may_eject_one_more
from slb.balance.health_state import State, hold_off, moved
from slb.balance.judge import BUSY, Judge, is_failure
from slb.balance.pace import STUCK_LEAST
from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT
from slb.model import RouteSettings
from slb.observe.health import HealthCounts
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.table import Route, Table
from slb.routing.turn import Say, Turn
from slb.routing.witness import LEAST_WAIT, hangs

_LOOK_AGAIN = 1.0
"""Seconds between looks at upstreams that are ejected or on probation."""
_REFUSED_FOR = 1.0
"""Seconds an upstream that refuses is out the first time, or `eject_time` where that is less: a server that is
started again is back soon, and to try it costs each instance one attempt at most. Each time in succession it is
twice as long, as after failures."""
_REMOTE_AGAIN = 60.0
"""Seconds for which an instance that was served where others were refused uses only its own results: otherwise one
instance with a broken network path would eject the upstream for all others again and again."""
_FOUND_BY_CONNECTING = frozenset({"refused", "upstream_connect", "upstream_unreached"})
"""Reasons of an ejection that a new connection speaks against."""
_CONNECT_AGAIN, _CONNECT_AT_LEAST = 1.0, 10.0
"""Seconds between two attempts to connect to one that is out for such a reason: at first, doubled each time, and at
most."""
_GROWS_FOR = 10.0
"""Seconds in which the share of an upstream that comes back grows, or `eject_time` where that is less."""
_PROVEN_STREAM = 3.0
"""Seconds after which an answer that has begun, and may have no end, proves its upstream."""
_SERVED_LATELY = 10.0
_OWED_NOTHING = 5.0
"""Seconds between two requests without an answer after which the upstream has owed none in between."""
_BUSY_FOR, _BUSY_LONGEST = 1.0, 10.0
"""Seconds for which an upstream that does not say how long it is busy is set aside: at first, doubled each time in
succession, and at the most."""
_REFUSES = "it refuses connections"
_FULL_FOR_ALL = 5
"""So many replies of status 429 in a row, with no answer between them, are not those of one caller."""
_IS_SLOW = "its answers begin later than nearly all of the others'"
_SHARED_LONGEST = 3600.0
"""Seconds for which others are told at most that an upstream is busy; each has its `max_eject_time` besides."""
_NEARLY = 0.2
"""So much less than `eject_after` is enough: what was heard from others fades, and an answer takes off more."""

REFUSED, STUCK, SERVED, BUSY_UNTIL = "refused", "stuck", "served", "busy"
"""What is published of members: connections are refused, answers are owed, it has served again, it is busy for so
many hundredths of a second."""
PROBED, PROBE_WANTED, PROBE_GIVEN = "probed", "probe_wanted", "probe_given"
"""And that the instance of this number has the turn to try it, asks for that, is given that."""
ALL_FAIL, SOME_SERVE = "all_fail", "some_serve"
"""What is published of routes: all upstreams fail here, do they elsewhere? They do not."""
OF_TURNS = frozenset({PROBED, PROBE_WANTED, PROBE_GIVEN})
NEWS = frozenset({REFUSED, STUCK, SERVED, BUSY_UNTIL, ALL_FAIL, SOME_SERVE}) | OF_TURNS
_FAILS_NO_MORE = 60.0
"""Seconds after the last question for which an instance takes itself for cut off at most: without requests, which
would have failed and asked again, it does not know."""
_ASK_AGAIN, _ANSWERED_WITHIN = 5.0, 2.0
"""Seconds between two questions of that kind, and for which an answer counts as one to the last."""


Connect = Callable[[LiveUpstream, Callable[[LiveUpstream], None]], None]


def connects_to_none(upstream: LiveUpstream, connected: Callable[[LiveUpstream], None]) -> None:
    """A `connect` for processes that do not connect to upstreams by themselves."""


@dataclass(slots=True)
class _Record:
    """An upstream that was ejected and is not trusted yet. `ejections` for failures and `refusals` in
    succession; out until `until`; `reason`: of the last time, `remote`: it was another instance's finding. Since
    then slb has tried to connect `attempts` times, and does so next at `attempt_at`; `has_connected`: it was let
    back for that, which happens once. `turn`: who tries it, None where anybody may."""

    upstream: LiveUpstream
    state: State
    settings: RouteSettings
    ejections: int = 0
    refusals: int = 0
    reason: str = ""
    remote: bool = False
    turn: Turn | None = None
    until: float = 0.0
    attempts: int = 0
    attempt_at: float = 0.0
    has_connected: bool = False

    @property
    def may_be_found_by_connecting(self) -> bool:
        """Whether a connection to it ends its ejection."""
        return self.state is State.EJECTED and self.reason in _FOUND_BY_CONNECTING and not self.has_connected

    def attempts_next(self, now: float) -> None:
        self.attempts += 1
        self.attempt_at = now + hold_off(self.attempts, _CONNECT_AGAIN, _CONNECT_AT_LEAST)

    @property
    def is_shared(self) -> bool:
        """Whether the fleet was told, and one success anywhere ends it."""
        return self.reason in (REFUSED, STUCK)


@dataclass(slots=True)
class _Aside:
    """An upstream that is busy `until` then, or was; so many `times` in succession. An answer from `ended_by` on
    ends that, where its request was sent from `sent_from` on. `turned_away`: replies of status 429 since it has
    answered a request, which was `at`."""

    upstream: LiveUpstream
    until: float = 0.0
    times: int = 0
    ended_by: float = 0.0
    sent_from: float = 0.0
    turned_away: int = 0
    at: float = 0.0

    def turns_away(self) -> int:
        answered_at = self.upstream.answered_at
        self.turned_away, self.at = self.turned_away + 1 if self.at == answered_at else 1, answered_at
        return self.turned_away


@dataclass(slots=True)
class _Stuck:
    """An upstream that has owed an answer for too long, without a byte `since` then; `is_kept`: it is not ejected,
    and that was said."""

    upstream: LiveUpstream
    since: float
    is_kept: bool


class Passive:
    """What requests say of upstreams goes in by `failed`, `refused`, `busy`, `unanswered` and `answered`, each with
    the route that the request went by, where there is one.

    `publish(about, news, number)` sends the fleet one of `NEWS`; `tell()` is called where `judge.telling`
    has something for it. `connect(upstream, connected)` makes one attempt to connect there, and calls `connected`
    with the upstream if that succeeds. `number`: that of this instance, in what is published. Where several routes
    name an upstream, the strictest of them (the smallest `eject_after` that is not 0) decides when and how long.
    `wake` is called where `due` has become earlier. The record of an upstream ends with it: at the same swap, since
    one of its name may come back with the next.
    """

    def __init__(
        self,
        mirror: Mirror,
        availability: Availability,
        counts: HealthCounts,
        clock: Callable[[], float],
        wake: Callable[[], None],
        publish: Callable[[str, str, int], None] = lambda about, news, number: None,
        tell: Callable[[], None] = lambda: None,
        instances: Callable[[], int] = lambda: 1,
        connect: Connect = connects_to_none,
        number: int = 0,
    ) -> None:
        self.judge = Judge(clock, instances, self._takes)
        self._mirror = mirror
        self._availability = availability
        self._counts = counts
        self._clock = clock
        self._wake = wake
        self._publish = publish
        self._tell = tell
        self._connect = connect
        self._instances = instances
        self._number = number
        self._disproved: dict[str, float] = {}
        self._records: dict[str, _Record] = {}
        self._aside: dict[str, _Aside] = {}
        self._owing: dict[str, tuple[float, float]] = {}
        self._stuck: dict[str, _Stuck] = {}
        self._asked: dict[str, float] = {}
        self._routes: dict[str, list[Route]] = {}
        self._routes_of: Table | None = None
        mirror.on_swap(self._forget)

    # -- evidence

    def answered(
        self, upstream: LiveUpstream, route: Route | None = None, took: float = 0.0, sent_at: float = 0.0
    ) -> None:
        """One request was answered well. `took`: seconds to the first byte since it was `sent_at`; 0 where they say
        nothing of the upstream."""
        if route is not None:
            pace = route.pace
            if pace.skip and took <= pace.slow_after and not upstream.is_suspect:
                pace.skip -= 1  # as on the way of most requests
                return
        if not self._availability.is_current(upstream):
            return
        if upstream.failures:
            upstream.failures = 0
        if upstream.set_aside:
            self._answers_others(self._aside[upstream.member], sent_at)
        added = 0.0
        if route is not None:
            added = self.judge.answered(route, upstream, took, sent_at)
            route.pace = self.judge.pace(route)
            if self.judge.has_answers(route, upstream):
                self._tell()
            if self._judges_slow(route):
                route.first_look = min(route.settings.first_byte_timeout, STUCK_LEAST, route.pace.slow_after)
                if self.judge.has_slow(route, upstream):
                    self._tell()
                if added:
                    self._was_slow(upstream, route)
        else:  # of each route, as a failure is
            for each in self._ejecting(upstream):
                self.judge.answered(each, upstream)
                if self.judge.has_answers(each, upstream):
                    self._tell()
        if upstream.spared and not added and not self._is_enough(upstream, self._ejecting(upstream)):
            upstream.spared = ""
        if upstream.on_probation and not upstream.proven:
            self._prove(upstream)

    def failed(self, upstream: LiveUpstream, reason: str, route: Route | None = None) -> None:
        """One request failed at `upstream`; `reason`: the error's name, or the status."""
        if not self._availability.is_current(upstream):
            return
        upstream.failures += 1
        record = self._records.get(upstream.member)
        routes = self._ejecting(upstream)
        # Of what still fails there when it is out, the others are not told: they may have let it back by then.
        is_out = record is not None and record.state is State.EJECTED
        judged = (route,) if route is not None and route.settings.eject_after else routes
        added = max((self.judge.failed(each, upstream, reason, not is_out) for each in judged), default=0.0)
        for each in routes if route is None else (route,):
            self._suspect_itself(each)
        if is_out:
            return
        if added:
            self._tell()
        on_trial = record is not None and not upstream.proven and added > 0
        if on_trial or self._is_enough(upstream, routes):
            self._eject(upstream, routes, reason, f"{self._words_of(upstream)}, {reason}")

    def refused(self, upstream: LiveUpstream) -> None:
        """`upstream` has refused a connection: one is enough, for the whole fleet."""
        if not self._availability.is_current(upstream):
            return
        self._stuck_no_more(upstream, _REFUSES)
        if self._hold_back(upstream, REFUSED, _REFUSES):
            self._publish(upstream.member, REFUSED, 0)

    def replied(
        self, upstream: LiveUpstream, status: int, retry_after: float | None, route: Route | None = None
    ) -> bool:
        """A reply of status 429, or 500 and above. Whether it is an answer all the same."""
        if status in BUSY:
            return not self._is_busy(upstream, status, retry_after, route)
        if is_failure(status):
            self.failed(upstream, str(status), route)
            return False
        return True

    def _is_busy(self, upstream: LiveUpstream, status: int, seconds: float | None, route: Route | None) -> bool:
        """`upstream` has answered that it is full, and to come again in so many `seconds`, where it has said so. A
        503 of one that does not say so, and has not served anybody of late, is a failure. False for a 429 that is
        the answer to one caller."""
        now = self._clock()
        serves = upstream.answered_at > 0 and now - upstream.answered_at <= _SERVED_LATELY
        if seconds is None and status == 503 and not serves:
            self.failed(upstream, str(status), route)
            return True
        if not self._availability.is_current(upstream):
            return True
        aside, is_of_callers = self._aside.setdefault(upstream.member, _Aside(upstream)), status == 429
        if is_of_callers and aside.turns_away() < _FULL_FOR_ALL and serves and not upstream.set_aside:
            return False
        if not upstream.set_aside:
            aside.times = aside.times + 1 if upstream.answered_at < aside.until else 1
        if seconds is None:
            seconds = hold_off(aside.times, _BUSY_FOR, _BUSY_LONGEST)
        if is_of_callers:
            self._set_aside(aside, min(seconds, _BUSY_LONGEST), sent_from=-math.inf)
        elif self._set_aside(aside, seconds, sent_from=now):
            self._publish(upstream.member, BUSY_UNTIL, round(100 * min(seconds, _SHARED_LONGEST)))
        return True

    def _set_aside(self, aside: _Aside, seconds: float, sent_from: float) -> bool:
        """Let it have no requests for so long. False where it is set aside already, or no route does that."""
        upstream, now = aside.upstream, self._clock()
        if not self._availability.is_current(upstream) or not (routes := self._ejecting(upstream)):
            return False
        longest = _strictest(routes).max_eject_time
        aside.until = max(aside.until, now + min(max(seconds, _BUSY_FOR), longest))
        if upstream.set_aside:
            aside.sent_from = max(aside.sent_from, sent_from)
            return False
        aside.ended_by, aside.sent_from = now + _BUSY_FOR, sent_from
        self._counts.busy[upstream.member] += 1
        upstream.set_aside = True
        self._availability.refresh((upstream.member,))
        self._wake()
        return True

    def _answers_others(self, aside: _Aside, sent_at: float) -> None:
        """It has answered while it was set aside."""
        if sent_at >= aside.sent_from and (now := self._clock()) >= aside.ended_by:
            aside.until = now
            self._take_back((aside,))

    def _take_back(self, free: Sequence[_Aside]) -> None:
        for each in free:
            each.upstream.set_aside = False
        self._availability.refresh([each.upstream.member for each in free])

    def unanswered(
        self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool, has_begun: bool = False
    ) -> bool:
        """A request that was sent wholly at `sent_at` has no answer yet, or its client `has_left` without one.
        Whether that is the upstream's fault: the client has waited for as long as speaks against it, or the
        upstream is known to be stuck, of which the leaving of one more says nothing new. `has_begun`: there was
        some of the answer, `sent_at` is when the last of it came, and pauses are not compared with the times of
        first bytes."""
        if not self._availability.is_current(upstream):
            return False
        now, member, pace = self._clock(), upstream.member, self.judge.pace(route)
        alive_at, waited = upstream.last_alive(now), now - sent_at
        if has_left and waited < max(LEAST_WAIT, 2 * pace.usual):
            return hangs(upstream, waited)
        if not has_begun and self._judges_slow(route) and self.judge.unanswered(route, upstream, sent_at):
            self._tell()
            self._was_slow(upstream, route)
        since, until = self._owing.get(member, (math.inf, -math.inf))
        if since <= alive_at or sent_at > until + _OWED_NOTHING:
            since = math.inf
        since = min(since, max(sent_at, alive_at))
        self._owing[member] = since, now
        gave_up = has_left and waited >= pace.gives_up_after
        if gave_up:
            self.failed(upstream, "gave_up", route)
        if now - since >= pace.stuck_after and upstream.available:
            self._is_stuck(upstream, route, since)
        return gave_up or (has_left and hangs(upstream, waited))

    def _is_stuck(self, upstream: LiveUpstream, route: Route, since: float) -> None:
        """Eject it where others of the route have answered `since`, and where it may be. Else say that it is stuck:
        by time alone, since it goes on to get requests, and people decide."""
        now, requests = self._clock(), upstream.inflight
        words = f"no sign of life for {now - since:.0f} s, and {requests} request{'s' * (requests != 1)} in flight"
        others_answer = any(each.alive_at > since for each in route.upstreams if each is not upstream)
        routes = self._ejecting(upstream)
        if others_answer and route.settings.eject_stuck and routes and _has_others(routes):
            if self._hold_back(upstream, STUCK, words):
                self._publish(upstream.member, STUCK, 0)
            return
        self._stuck[upstream.member] = _Stuck(upstream, since, is_kept=True)
        why = f"it is stuck: {words}; {self._why_kept(upstream, route, others_answer)}"
        self._availability.stuck(upstream, now - since, why)
        self._wake()

    def _why_kept(self, upstream: LiveUpstream, route: Route, others_answer: bool) -> str:
        """Why one that is stuck is not ejected."""
        if len(route.upstreams) == 1:
            return f"the only upstream of {route.path} is not ejected"
        if not others_answer:
            return f"not ejected, as no other upstream of {route.path} answers either"
        if not route.settings.eject_stuck:
            return f"not ejected, as eject_stuck of {route.path} is false"
        return "not ejected, as " + ("max_ejected is reached" if self._ejecting(upstream) else "eject_after is 0")

    def _stuck_no_more(self, upstream: LiveUpstream, why: str) -> None:
        if (found := self._stuck.pop(upstream.member, None)) is None:
            return
        self._availability.holds_for_stuck(upstream, False)
        if found.is_kept:
            self._availability.stuck_no_more(upstream, why)

    def holds_for(self, upstream: LiveUpstream, route: Route) -> float:
        """Seconds from when it was sent for which a request that failed there keeps its slot: 0 where the others of
        its route fail as well, and nobody is drawn there."""
        return self.judge.pace(route).holds_for if self.judge.fails_alone(upstream, (route,)) else 0.0

    def receive(self, about: str, news: str, number: int = 0) -> None:
        """An instance has published one of `NEWS` about a member, or about the path of a route."""
        if news in (ALL_FAIL, SOME_SERVE):
            self._receive_of_route(about, news)
        elif news == BUSY_UNTIL:
            if (upstream := self._mirror.upstream(about)) is not None:
                aside = self._aside.setdefault(about, _Aside(upstream))
                self._set_aside(aside, number / 100, sent_from=self._clock())
        elif news in OF_TURNS:
            self._hear_turn(self._records.get(about), news, number)
        else:
            self._receive_of_member(about, news)

    def _receive_of_member(self, member: str, news: str) -> None:
        upstream, record = self._mirror.upstream(member), self._records.get(member)
        if upstream is None:
            return
        if news == SERVED:
            if record is not None:
                self._end_turn(record)
                self._stuck_no_more(upstream, "it served another instance")
            self._let_back_early(record, "it served another instance")
        elif news == STUCK and self._clock() - upstream.last_alive(self._clock()) <= _SERVED_LATELY:
            self._publish(member, SERVED, 0)
        elif self._disproved.get(member, -math.inf) <= self._clock():
            found = "refused a connection" if news == REFUSED else "left without an answer"
            self._hold_back(upstream, news, f"another instance was {found}", remote=True)

    def _suspect_itself(self, route: Route) -> None:
        """Where all upstreams of a route fail, the others are asked whether they do there."""
        now = self._clock()
        if now - self._asked.get(route.path, -math.inf) >= _ASK_AGAIN and self.judge.fails_as_a_whole(route):
            self._asked[route.path] = now
            self._publish(route.path, ALL_FAIL, 0)

    def _receive_of_route(self, path: str, news: str) -> None:
        route, now = self._mirror.table.routes.get(path), self._clock()
        if route is None:
            return
        fails = self.judge.fails_as_a_whole(route)
        if news == ALL_FAIL:
            serves = any(each.answered_at and now - each.answered_at <= _SERVED_LATELY for each in route.upstreams)
            if serves and not fails:
                self._publish(path, SOME_SERVE, 0)
        elif fails and now - self._asked.get(path, -math.inf) <= _ANSWERED_WITHIN:
            self._availability.isolated(route, True)
            self._wake()

    def heard(self, path: str, member: str, added: float, answers: int = 0) -> None:
        """Another instance tells what its failures at `member` have added on the route of `path`, and how many
        answers it had before them."""
        upstream, route = self._mirror.upstream(member), self._mirror.table.routes.get(path)
        if upstream is None or route is None or upstream not in route.upstreams or not route.settings.eject_after:
            return
        most = route.settings.eject_after
        self.judge.heard(route, upstream, min(added, most), answers, most)
        routes, record = self._ejecting(upstream), self._records.get(member)
        if record is None and self._is_enough(upstream, routes):
            self._eject(upstream, routes, "fleet", f"{self._words_of(upstream)}, in the whole fleet")
        elif added and record is not None and record.state is State.PROBATION and not upstream.proven:
            self._eject(upstream, routes, record.reason, f"it fails at another instance still, {record.reason}")

    def heard_answers(self, path: str, member: str, answers: int, teller: str, goes_on: bool) -> None:
        """The instance `teller`, which has told of failures, tells how many answers came since, as in
        `judge.Told`."""
        upstream, route = self._mirror.upstream(member), self._mirror.table.routes.get(path)
        if upstream is not None and route is not None:
            self.judge.heard_answers(route, upstream, answers, teller, goes_on)

    def heard_slow(self, path: str, member: str, added: float, seconds: float, is_open: bool) -> None:
        """Another instance tells of a slow request at `member`, as in `judge.Slow`."""
        upstream, route = self._mirror.upstream(member), self._mirror.table.routes.get(path)
        if upstream is None or route is None or upstream not in route.upstreams or not self._judges_slow(route):
            return
        self.judge.heard_slow(route, upstream, min(added, route.settings.eject_after), seconds, is_open)
        if member not in self._records and self._is_slow(upstream, route):
            self._eject(upstream, self._ejecting(upstream), "slow", f"{_IS_SLOW}, in the whole fleet")

    def passed(self, upstream: LiveUpstream) -> None:
        """A check of `upstream` has passed. One of a path of its own does not show that a stuck one answers."""
        record = self._records.get(upstream.member)
        if upstream.spared == _REFUSES:
            upstream.spared = ""
        if record is None or record.reason != REFUSED:
            return
        if self._let_back_early(record, "a check passes"):
            self._publish(upstream.member, SERVED, 0)

    # -- what time brings

    def due(self) -> float | None:
        """When `sweep` has work next; None while no upstream is ejected, on probation, set aside or stuck."""
        now = self._clock()
        soon, times = now + _LOOK_AGAIN, []
        for each in self._records.values():
            is_out = each.state is State.EJECTED
            times.append(each.until if is_out and each.is_shared else min(each.until, soon) if is_out else soon)
            if each.may_be_found_by_connecting:
                times.append(each.attempt_at)
        times += [each.until for each in self._aside.values() if each.upstream.set_aside]
        times += [soon] if self._stuck or any(self._counts.isolated.values()) else []
        return min(times, default=None)

    def sweep(self) -> None:
        """End the ejections whose time is over, the probation of upstreams that have served since, and what is no
        longer busy or stuck."""
        now = self._clock()
        for each in list(self._stuck.values()):
            if each.upstream.last_alive(now) > each.since:
                self._stuck_no_more(each.upstream, "a byte of an answer has come")
        for record in list(self._records.values()):
            if record.state is State.EJECTED:
                self._look_at_ejected(record, now)
            else:
                self._look_at_returning(record, now)
        for path in [path for path, isolated in self._counts.isolated.items() if isolated]:
            route = self._mirror.table.routes.get(path)
            if route is not None and (
                not self.judge.fails_as_a_whole(route) or now - self._asked.get(path, now) > _FAILS_NO_MORE
            ):
                self._availability.isolated(route, False)
        free = [each for each in self._aside.values() if each.upstream.set_aside and each.until <= now]
        if free:
            self._take_back(free)

    def _look_at_ejected(self, record: _Record, now: float) -> None:
        upstream = record.upstream
        if record.until <= now:
            self._try_again(record, "its hold-off is over")
        elif not record.is_shared and not self.judge.fails_alone(upstream, self._ejecting(upstream)):
            self._let_back(record, "the others of its route fail as well")
            self._move(record, State.TRUSTED, "the others of its route fail as well")
        elif record.may_be_found_by_connecting and record.attempt_at <= now:
            record.attempts_next(now)
            self._connect(upstream, self._connected)

    def _connected(self, upstream: LiveUpstream) -> None:
        """A connection was made to it: it may prove itself, once. One that accepts connections and then fails stays
        out for its time."""
        record = self._records.get(upstream.member)
        if record is not None and record.upstream is upstream and record.may_be_found_by_connecting:
            record.has_connected = True
            self._try_again(record, "it accepts connections")

    def _try_again(self, record: _Record, why: str) -> None:
        self._let_back(record, why)
        if self._instances() > 1:
            record.turn = record.turn or Turn()
            self._look_at_turn(record, record.turn)

    def _look_at_turn(self, record: _Record, turn: Turn) -> None:
        upstream = record.upstream
        said = turn.look(upstream.inflight > 0, upstream.wanted, self._clock())
        upstream.wanted = False
        if said is not Say.NOTHING:
            self._publish(upstream.member, PROBED if said is Say.OURS else PROBE_WANTED, self._number)
        upstream.probed_elsewhere = turn.is_elsewhere

    def _hear_turn(self, record: _Record | None, news: str, number: int) -> None:
        """One that is on probation without a turn has served somewhere: anybody may go on."""
        if record is None or (record.turn is None and record.state is not State.EJECTED):
            return
        turn = record.turn = record.turn or Turn()
        upstream, is_own, now = record.upstream, number == self._number, self._clock()
        if news == PROBED:
            turn.heard(is_own, upstream.inflight > 0, now)
        elif news == PROBE_GIVEN:
            turn.given(is_own, now)
        elif turn.wanted(number, upstream.inflight > 0, upstream.wanted, now):
            self._publish(upstream.member, PROBE_GIVEN, number)
        upstream.probed_elsewhere = turn.is_elsewhere

    def _end_turn(self, record: _Record) -> None:
        record.turn, record.upstream.probed_elsewhere = None, False

    def _look_at_returning(self, record: _Record, now: float) -> None:
        upstream = record.upstream
        if record.turn is not None:
            self._look_at_turn(record, record.turn)
        if not upstream.proven and upstream.alive_at > upstream.back_at <= now - _PROVEN_STREAM:
            self._prove(upstream)
        if upstream.proven and now >= upstream.trusted_at:
            self._move(record, State.TRUSTED, "it served again")

    def _prove(self, upstream: LiveUpstream) -> None:
        """It has answered on probation: its share grows from now on."""
        record = self._records.get(upstream.member)
        if record is None:
            return
        now = self._clock()
        upstream.proven, upstream.back_at = True, now
        self._end_turn(record)
        upstream.trusted_at = now + min(_GROWS_FOR, record.settings.eject_time)
        self._publish(upstream.member, SERVED, 0)
        if record.is_shared and record.remote:
            self._disproved[upstream.member] = now + _REMOTE_AGAIN

    def _was_slow(self, upstream: LiveUpstream, route: Route) -> None:
        """It has answered, and slowly."""
        record = self._records.get(upstream.member)
        if not self._judges_slow(route):
            return
        if record is not None and (record.state is State.EJECTED or record.reason != "slow" or upstream.proven):
            return
        if record is not None or self._is_slow(upstream, route):
            self._eject(upstream, self._ejecting(upstream), "slow", _IS_SLOW)

    def _judges_slow(self, route: Route) -> bool:
        """Whether its upstreams may be compared by their times: on a ring they have requests of different kinds."""
        return route.settings.eject_slow and route.settings.eject_after > 0 and route.policy.ring is None

    def _is_slow(self, upstream: LiveUpstream, route: Route) -> bool:
        return self.judge.slowness(upstream, route) >= _strictest(self._ejecting(upstream)).eject_after - _NEARLY

    # -- moves

    def _forget(self, gone: Sequence[str]) -> None:
        kept: tuple[dict[str, Any], ...] = (self._disproved, self._owing, self._stuck, self._records, self._aside)
        for path in [path for path in self._asked if path not in self._mirror.table.routes]:
            del self._asked[path]
        for member in gone:
            for each in kept:
                each.pop(member, None)
        self.judge.forget(self._mirror.table.routes)

    def _takes(self, path: str, upstream: LiveUpstream) -> bool:
        route = self._mirror.table.routes.get(path)
        return route is not None and upstream in route.upstreams

    def _ejecting(self, upstream: LiveUpstream) -> list[Route]:
        """The routes that name it and eject; cached for each table."""
        if self._routes_of is not self._mirror.table:
            self._routes_of, self._routes = self._mirror.table, {}
        found = self._routes.get(upstream.member)
        if found is None:
            named = self._mirror.routes_of((upstream.member,))
            found = self._routes[upstream.member] = [each for each in named if each.settings.eject_after]
        return found

    def _is_enough(self, upstream: LiveUpstream, routes: Sequence[Route]) -> bool:
        if not routes:
            return False
        return self.judge.score(upstream, routes) >= _strictest(routes).eject_after - _NEARLY

    def _words_of(self, upstream: LiveUpstream) -> str:
        failures = upstream.failures
        return f"{failures} failures in a row" if failures > 1 else "it fails where the others of its route do not"

    def _hold_back(self, upstream: LiveUpstream, news: str, why: str, remote: bool = False) -> bool:
        """Eject an upstream that refuses connections, or is stuck. False where it is ejected already, or may not
        be."""
        record, routes = self._records.get(upstream.member), self._ejecting(upstream)
        if (record is not None and record.state is State.EJECTED) or not routes:
            return False
        if not _has_others(routes):
            self._availability.spare(upstream, why)
            return False
        strictest = _strictest(routes)
        if news == STUCK:
            self._eject(upstream, routes, STUCK, why, remote)
            return True
        record = record or _Record(upstream, State.TRUSTED, strictest)
        record.settings = strictest
        record.refusals += 1
        record.remote = remote
        first = min(_REFUSED_FOR, strictest.eject_time)
        seconds = hold_off(record.refusals, first, strictest.max_eject_time)
        self._take_out(record, seconds, why, REFUSED)
        return True

    def _eject(
        self, upstream: LiveUpstream, routes: Sequence[Route], reason: str, why: str, remote: bool = False
    ) -> None:
        if not _has_others(routes):
            if upstream.spared != _REFUSES or reason != UPSTREAM_CONNECT.name:  # which is what comes of a refusal
                self._availability.spare(upstream, why)
            return
        record = self._records.get(upstream.member)
        record = record or _Record(upstream, State.TRUSTED, _strictest(routes))
        record.settings = _strictest(routes)
        record.ejections += 1
        record.remote = remote
        seconds = hold_off(record.ejections, record.settings.eject_time, record.settings.max_eject_time)
        self._take_out(record, seconds, why, reason)

    def _take_out(self, record: _Record, seconds: float, why: str, reason: str) -> None:
        upstream = record.upstream
        record.reason = reason
        record.until, record.attempts = (now := self._clock()) + seconds, 0
        record.attempts_next(now)
        upstream.available, upstream.spared = False, ""
        self._end_turn(record)
        self._records[upstream.member] = record
        self._counts.ejections[upstream.member, reason] += 1
        self._stuck_no_more(upstream, "it is ejected")
        if reason == STUCK:
            self._stuck[upstream.member] = _Stuck(upstream, now, is_kept=False)
            self._availability.holds_for_stuck(upstream, True)
        self._move(record, State.EJECTED, f"{why}; out for {seconds:g} s")
        self._wake()

    def _let_back_early(self, record: _Record | None, why: str) -> bool:
        """End its ejection. False where there is none."""
        if record is None or record.state is not State.EJECTED:
            return False
        self._end_turn(record)
        self._let_back(record, why)
        return True

    def _let_back(self, record: _Record, why: str) -> None:
        """One request at a time goes there now. One more failure ejects it again."""
        upstream, routes = record.upstream, self._ejecting(record.upstream)
        upstream.available = True
        upstream.failures = max(1, upstream.failures)
        upstream.proven, upstream.wanted, upstream.back_at = False, False, self._clock()
        self._owing.pop(upstream.member, None)
        self.judge.set_score(upstream, routes, record.settings.eject_after - 1.0)
        self._move(record, State.PROBATION, why)

    def _move(self, record: _Record, to: State, why: str) -> None:
        before, record.state = record.state, moved(record.state, to)
        upstream = record.upstream
        upstream.on_probation = to is State.PROBATION
        if to is State.TRUSTED:
            upstream.failures, upstream.proven, upstream.probed_elsewhere = 0, False, False
            self.judge.clear(upstream, self._ejecting(upstream))
            del self._records[upstream.member]
        self._availability.moved(upstream, before, to, why)
        self._availability.refresh((upstream.member,))


def _has_others(routes: Sequence[Route]) -> bool:
    return all(may_eject_one_more(route.upstreams, route.settings.max_ejected) for route in routes)


def _strictest(routes: Sequence[Route]) -> RouteSettings:
    return min((each.settings for each in routes), key=lambda each: (each.eject_after, each.eject_time))
