"""Whether an upstream is sick, by the requests it had. Pure: no I/O, no clock.

The theory. Each request is an observation of its upstream: it failed, or it was answered. A healthy upstream
fails at most in a share h of its requests, a sick one in (1 + h) / 2: halfway to all of them. Page's cumulative
sum (1954) adds up the log-likelihood ratios of the two and never falls below zero. A failure adds ln((1 + h) /
2h), an answer takes ln 2 off. No other test with as few false alarms sees a change sooner (Moustakides 1986).
The unit here is a failure at the lowest h, so that an upstream which fails alone is sick after `eject_after`
failures in a row, or after more where some requests are answered between them.

h follows the *other upstreams of the route*: 2 %, and 1.5 times the share that the others fail. Of the others
the one in the middle counts, the better one of two: a second sick upstream does not hide the first. Where the
others fail as often, a failure adds nothing: then the fault is in the model, in the request, or in this
instance.

False alarms. Of a healthy upstream, one whose share of failures is below h, the sum of one instance reaches a
limit within n requests with a probability below n * 25.5^-limit, whatever the rate of the requests. The limit
is 0.2 below `eject_after`, since what others tell fades: at the default of 5, once in 5 million requests at the
most. Where h is above 2 %, as the others fail too, it is estimated, and for several instances their answers
are: there the bound is no proof. `make bench-judge` prints what comes of it for 1, 3 and 10 instances, for 2, 8
and 1,000 upstreams, at 1, 100 and 10,000 requests a minute.

The sums of several instances are added: each tells the others what its failures added (`telling`), with the
others of the route as *it* saw them. So one failure in each of ten instances is ten, and the failures of an
instance that fails with all upstreams weigh nothing. What counts in the end is by how much the sum is above
that of the others: where a model begins to fail as a whole, the first failures of each look like its own.

What was heard is taken off by answers, at any rate of requests, as what failed here is. An instance that has
told of failures tells of its answers too until its own sum is 0, five messages a failure at the most. All
others stay silent, and their traffic is taken for alike: of n instances, r of which tell (this one, too, by its
own requests), each answer stands for n / r. So what a dead server did to ten instances adds up at a request a
minute, and a failure in each of nine busy ones is nothing to a tenth that is idle. The share of failures by
which the others count is kept by the same rule: each of ten instances sees a tenth of the requests, which is
too few to know it.

What is lost, and who leaves. A lost message loses failures with the answers before them, which are evidence of
nothing on average, or answers: then the others' answers and those here take off what is left. So they do with
what an instance has told that died. Where nobody has any answer, what was heard fades with a time constant of
an hour. That is long beside five requests at one a minute, and short enough that two nights' failures are not
added up. Of a long outage no more is kept than `eject_after`, so that the fleet needs two dozen answers at the
most to forget it. Whoever tells of failures alone, and never of answers, is passed over: nothing would take off
what it tells.

Slow answers are a second sum of the same kind, and as sure. Times of requests differ a hundredfold by what is
asked for, and no two routes alike. So they are compared by rank alone (`pace.rank_gain`): the next answer of an
upstream that is like the others is the longest of n + 1 with a chance of 1 / (n + 1), whatever the
distribution. An answer adds where it is among the longest 2 % of the ranks, most where it is the longest of
all. Each other answer takes ln 2 off. The exponential of these has the mean 1 for an upstream like the others,
as a likelihood ratio has (an e-value: Vovk and Wang 2021; sums of such: Shin, Ramdas and Rinaldo 2024), so the
bound above holds here too. It holds for answers that are independent. Those that wait behind one long request
are not, so slow answers that overlap in time at one upstream count as one, in the whole fleet. An answer whose
first byte comes within 4 times the others' median, or within 250 ms, is never slow. A request without an answer
counts as soon as it has waited for longer. Where the others get slow as well, a slow answer adds less, by the
factor by which a failure does. What was heard of slow answers fades with a time constant of 30 s, and each
answer here takes off as much as one in each instance would.

A line behind one long request outlasts it. Who comes when it is over waits for those that came meanwhile: for
its time, times the server's load. The next one waits for those that came in that time, and so on. So in a line
that is worked off each wait is shorter than the one before, and at a server that is slow it is not. A request
that was sent after the last that counted was over, while other slow ones waited, counts by the square of how
much of that one's time it took.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from slb.balance.pace import Pace
from slb.balance.upstream import LiveUpstream

_FAIL: Final = 0.02
"""The least share of failures that is taken for healthy."""
_MARGIN: Final = 1.5
_ALIKE: Final = 0.9
"""Shares of the healthy from which on a failure says nothing."""
_UNIT: Final = math.log((1 + _FAIL) / (2 * _FAIL))
ANSWERED: Final = math.log(2) / _UNIT
"""What an answer takes off: 0.21 of what a failure adds."""
_MEMORY: Final = 1 / 8
"""The weight of the last request in an upstream's share."""
_FORGOTTEN: Final = 0.01

_MANY: Final = 16
_SORTED_AGAIN: Final = 0.1
_HEARD_FOR: Final = 3600.0
"""Seconds in which what was heard of failures fades to 37 %, where no answers take it off."""
_SLOW_HEARD_FOR: Final = 30.0
"""The same of slow answers: nobody tells of the others."""
_IS_SLOW: Final = 2.0
"""The sum of slow answers from which on the others are not compared with an upstream."""

BUSY: Final = frozenset({429, 503, 529})
"""Statuses by which servers say that they are full; 529 is Anthropic's and Dynamo's."""
_CLIENTS_OWN: Final = frozenset({501, 505})
"""Statuses above 499 that a client can bring about with any server, by its method or its version."""

WEIGHTS: Final = {"gave_up": 0.5}
"""By kind of failure, where it is not 1: a client may also leave for reasons of its own."""

_SEEN_HERE_ALONE: Final = frozenset({"upstream_unreached"})
"""Kinds that are evidence of the network between this instance and the upstream: others are not told."""


def is_failure(status: int) -> bool:
    """Whether a reply of this status speaks against its upstream."""
    return status >= 500 and status not in _CLIENTS_OWN


def gain(others: float) -> float:
    """What a failure adds where the others fail in a share of `others`."""
    share = _FAIL + _MARGIN * others
    return 0.0 if share >= _ALIKE else math.log((1 + share) / (2 * share)) / _UNIT


@dataclass(slots=True)
class Sum:
    """Of one upstream on one route, in failures. `share`: of the last requests here that failed; `fleet_share`: of
    the last of all instances, as far as this one knows of them. `heard`: what other instances' added, as it was at
    `heard_at`; it fades in `heard_for` seconds. `untold`: what this one's added, and `answers`: how many there were
    besides, of which the others have not been told; `known`: the `value` that they know of. `reporters`: the others
    that tell of their answers now."""

    heard_for: float = _HEARD_FOR
    value: float = 0.0
    share: float = 0.0
    fleet_share: float = 0.0
    heard: float = 0.0
    heard_at: float = 0.0
    untold: float = 0.0
    answers: int = 0
    known: float = 0.0
    reporters: set[str] = field(default_factory=set)

    def failed(self, gained: float, is_told: bool = True) -> None:
        self.value += gained
        self.untold += gained * is_told
        self.share += (1 - self.share) * _MEMORY
        self.fleet_share += (1 - self.fleet_share) * _MEMORY

    def answered(self, clock: Callable[[], float], instances: Callable[[], int]) -> None:
        """What it takes off beyond the sum of this instance, it takes off what was heard."""
        before, self.value = self.value, max(0.0, self.value - ANSWERED)
        self.answers += 1
        self.share = _after(self.share, 1)
        if self.heard or self.fleet_share:
            stands_for = self._for_all(1, instances())
            self.fleet_share = _after(self.fleet_share, stands_for)
            self._take_off(ANSWERED * stands_for - (before - self.value), clock())

    def hears(self, added: float, now: float, answers: int = 0, most: float = math.inf) -> None:
        """Another instance had so many `answers`, and then failures that `added` so much. No more than `most` is
        kept: at the limit, more says nothing."""
        self._take_off(ANSWERED * answers, now)
        self.fleet_share = 1 - (1 - _after(self.fleet_share, answers)) * (1 - _MEMORY) ** max(1.0, added)
        self.heard = min(self.heard + added, max(self.heard, most))

    def hears_answers(self, answers: int, teller: str, goes_on: bool, now: float, instances: int) -> None:
        """The instance `teller` had so many answers, and `goes_on` to tell."""
        if goes_on:
            self.reporters.add(teller)
        stands_for = self._for_all(answers, instances)
        self.fleet_share = _after(self.fleet_share, stands_for)
        self._take_off(ANSWERED * stands_for, now)
        if not goes_on:
            self.reporters.discard(teller)

    def _for_all(self, answers: int, instances: int) -> float:
        """For how many answers of the fleet those of one stand that is known to have had them: for those of the
        instances that do not tell as well."""
        return answers * max(1.0, instances / (1 + len(self.reporters)))

    def _take_off(self, less: float, now: float) -> None:
        self.heard, self.heard_at = max(0.0, self.told(now) - less), now
        if not self.heard:
            self.reporters.clear()

    def total(self, now: float) -> float:
        """What there is against it, from here and from others."""
        return self.value + self.told(now)

    def told(self, now: float) -> float:
        return self.heard * math.exp((self.heard_at - now) / self.heard_for) if self.heard else 0.0

    def take_untold(self) -> float:
        """What failures added that the others are to be told of, as far as no answers have come since."""
        untold, self.untold = min(self.untold, self.value), 0.0
        return untold

    def has_answers(self) -> bool:
        """Whether the others are to be told of answers: they know of failures that these are to take off."""
        return self.known > 0 and self.answers > 0

    def telling(self) -> tuple[float, int]:
        """What the others are to be told: what failures added, and how many answers there were since the last
        time."""
        untold = self.take_untold()
        if not untold and not self.has_answers():
            return 0.0, 0
        answers, self.answers, self.known = self.answers, 0, self.value
        return untold, answers

    def clear(self) -> None:
        self.value = self.heard = self.untold = self.known = 0.0
        self.answers = 0
        self.reporters.clear()

    def __bool__(self) -> bool:
        return self.value > 0 or self.share > 0 or self.fleet_share > 0 or self.heard > 0 or self.known > 0


def _after(share: float, answers: float) -> float:
    """What is left of a share of failures after so many answers."""
    left = share * (1 - _MEMORY) ** answers
    return left if left > _FORGOTTEN else 0.0


@dataclass(slots=True, eq=False)
class Evidence:
    """Of one upstream on one route. Slow requests that were sent before `slow_until` overlap with the last that
    counted; `slow_last`: when a slow one was answered last, counted or not. Both are inf while that which counted
    has no answer. `slow_took`: seconds that it took, so far. `slow_for`: those of them that counted; None where
    there is nothing to tell of it."""

    failing: Sum = field(default_factory=Sum)
    slow: Sum = field(default_factory=lambda: Sum(_SLOW_HEARD_FOR))
    slow_until: float = -math.inf
    slow_last: float = -math.inf
    slow_took: float = 0.0
    slow_for: float | None = None

    def __bool__(self) -> bool:
        return bool(self.failing) or bool(self.slow)

    def answers(self, clock: Callable[[], float]) -> None:
        """What is sent there from now on does not wait behind the one that has counted."""
        if self.slow_until == math.inf:
            self.slow_until = self.slow_last = clock()
            self.slow_for = self.slow_for or 0.0


class Told(NamedTuple):
    """What the other instances are told of an upstream: so many `answers` here, and then failures that `added` so
    much. With that the sum of this instance is `left`; while it is not 0, more is told."""

    path: str
    upstream: LiveUpstream
    added: float
    answers: int
    left: float


class Slow(NamedTuple):
    """A slow request that the other instances are told of: what it `added`, and the `seconds` that it took, or has
    had no answer for where it `is_open`."""

    path: str
    upstream: LiveUpstream
    added: float
    seconds: float
    is_open: bool


class Judged(Protocol):
    """A route, as far as it is judged."""

    @property
    def path(self) -> str: ...
    @property
    def upstreams(self) -> tuple[LiveUpstream, ...]: ...


class Others(NamedTuple):
    """How the others of a route do, each figure by itself that of the one in the middle: the share of failures, in
    all instances and `here`, and the sums of failures and of slow answers. `slow_share`: the mean share of slow
    answers, of all but the worst."""

    failing: float
    here: float
    total: float
    slow: float
    slow_share: float


_WELL = Others(0.0, 0.0, 0.0, 0.0, 0.0)


class RouteEvidence:
    """`troubled`: those of its upstreams that have failed, or were slow, of late."""

    __slots__ = ("_middle", "_until", "pace", "troubled")

    def __init__(self) -> None:
        self.pace = Pace()
        self.troubled: dict[LiveUpstream, Evidence] = {}
        self._middle = _WELL
        self._until = -math.inf

    def of(self, upstream: LiveUpstream) -> Evidence:
        found = self.troubled.get(upstream)
        if found is None:
            found = self.troubled[upstream] = Evidence()
            upstream.troubles += 1
        return found

    def drop(self, upstream: LiveUpstream) -> None:
        del self.troubled[upstream]
        upstream.troubles -= 1

    def others(self, upstream: LiveUpstream | None, count: int, now: float) -> Others:
        """The one in the middle of the `count` that are not `upstream`. Where many are in trouble, one more or less
        makes no difference: they are sorted ten times a second."""
        if count < 1 or not self.troubled:
            return _WELL
        if len(self.troubled) < _MANY:
            return self._in_the_middle(count, upstream, now)
        if now >= self._until:
            count += upstream is not None
            self._middle, self._until = self._in_the_middle(count, None, now), now + _SORTED_AGAIN
        return self._middle

    def _in_the_middle(self, count: int, without: LiveUpstream | None, now: float) -> Others:
        found = [each for upstream, each in self.troubled.items() if upstream is not without]
        return Others(
            _middle_of([max(each.failing.share, each.failing.fleet_share) for each in found], count),
            _middle_of([each.failing.share for each in found], count),
            _middle_of([each.failing.total(now) for each in found], count),
            _middle_of([each.slow.total(now) for each in found], count),
            _mean_of([each.slow.share for each in found], count),
        )


def _middle_of(values: list[float], count: int) -> float:
    """The one in the middle of `count`, the better one of two; those that are not given are 0."""
    place = (count - 1) // 2 - (count - len(values))
    return sorted(values)[place] if place >= 0 else 0.0


def _mean_of(values: list[float], count: int) -> float:
    """Of all but the largest of `count`, where there are two; those that are not given are 0."""
    return (sum(values) - max(values, default=0.0)) / (count - 1) if count > 1 else sum(values)


class Judge:
    """The evidence of one process. It keeps something only of upstreams that have failed or were slow of late: its
    cost grows with these, not with the route. `routes`: by path. `clock`: seconds; `instances`: how many share the
    traffic; `takes`: whether an upstream takes requests of the route of a path now. One that does not, since it is
    drained or has moved to another route, is not among the others of that route, whatever is heard of it."""

    def __init__(
        self,
        clock: Callable[[], float],
        instances: Callable[[], int] = lambda: 1,
        takes: Callable[[str, LiveUpstream], bool] = lambda path, upstream: True,
    ) -> None:
        self._clock = clock
        self._instances = instances
        self._takes = takes
        self.routes: dict[str, RouteEvidence] = {}

    def pace(self, route: Judged) -> Pace:
        return self._of(route.path).pace

    def failed(self, route: Judged, upstream: LiveUpstream, kind: str = "", is_told: bool = True) -> float:
        """One request failed; returns what that adds. `is_told`: the other instances are."""
        if not self._takes(route.path, upstream):
            return 0.0
        added = WEIGHTS.get(kind, 1.0) * gain(self._others(route, upstream).failing)
        found = self._of(route.path).of(upstream)
        found.failing.failed(added, is_told and kind not in _SEEN_HERE_ALONE)
        found.answers(self._clock)
        return added

    def heard(
        self, route: Judged, upstream: LiveUpstream, added: float, answers: int = 0, most: float = math.inf
    ) -> None:
        """Another instance had so many `answers`, and then failures, which `added` so much there. No more than
        `most` is kept of what was heard."""
        self._of(route.path).of(upstream).failing.hears(added, self._clock(), answers, most)

    def heard_answers(
        self, route: Judged, upstream: LiveUpstream, answers: int, teller: str, goes_on: bool
    ) -> None:
        """The instance `teller`, of which failures were heard, had so many answers since, and `goes_on` to tell."""
        found = self._of(route.path).troubled.get(upstream)
        if found is not None:
            found.failing.hears_answers(answers, teller, goes_on, self._clock(), self._instances())

    def has_answers(self, route: Judged, upstream: LiveUpstream) -> bool:
        """Whether `telling` has answers of it."""
        found = self._of(route.path).troubled.get(upstream)
        return found is not None and found.failing.has_answers()

    def telling(self) -> Iterator[Told]:
        """What the other instances are to be told: what failures here have added since the last time, as far as no
        answers have come since; and answers, after failures that were told of."""
        for path, evidence in self.routes.items():
            for upstream, found in evidence.troubled.items():
                added, answers = found.failing.telling()
                if added or answers:
                    yield Told(path, upstream, added, answers, found.failing.value)

    def answered(self, route: Judged, upstream: LiveUpstream, took: float = 0.0, sent_at: float = 0.0) -> float:
        """One request was answered; what that adds, where it was slow. `took`: seconds to the first byte; 0 where
        they say nothing of the upstream."""
        evidence = self.routes.get(route.path) or self._of(route.path)
        may_be_slow = took > 0 and evidence.pace.took(took, upstream, len(route.upstreams), sent_at + took)
        found = evidence.troubled.get(upstream)
        if found is None and not may_be_slow:
            return 0.0
        gained = self._slow_gain(route, upstream, took) if may_be_slow else 0.0
        if found is None:
            if not gained or not self._takes(route.path, upstream):
                return 0.0
            found = evidence.of(upstream)
        found.failing.answered(self._clock, self._instances)
        added = 0.0
        if gained:
            added = self._was_slow(route, upstream, found, sent_at, took, is_open=False)
        elif took:
            found.slow.answered(self._clock, self._instances)
        found.answers(self._clock)
        if not found:
            evidence.drop(upstream)
        return added

    # -- slow ones

    def unanswered(self, route: Judged, upstream: LiveUpstream, sent_at: float) -> float:
        """A request has no first byte yet; what that adds, where it is slow by now."""
        waited = self._clock() - sent_at
        if not self._slow_gain(route, upstream, waited) or not self._takes(route.path, upstream):
            return 0.0
        return self._was_slow(route, upstream, self._of(route.path).of(upstream), sent_at, waited, is_open=True)

    def _was_slow(
        self, route: Judged, upstream: LiveUpstream, found: Evidence, sent_at: float, took: float, is_open: bool
    ) -> float:
        """What a slow request adds. Of one that was sent before the last that counted was over, the time counts in
        which no other slow one was answered."""
        alone = took - max(0.0, found.slow_last - sent_at)
        seconds = took if sent_at >= found.slow_until else alone
        gained = self._slow_gain(route, upstream, seconds)
        if found.slow_until <= sent_at < found.slow_last:
            gained *= self._next_of_line(took / found.slow_took, is_open)
            gained = max(gained, self._slow_gain(route, upstream, alone))
        added = gained * gain(self._others(route, upstream).slow_share)
        found.slow.failed(added)
        if not is_open:
            found.slow_last = max(found.slow_last, sent_at + took)
        if added:
            found.slow_until, found.slow_for = math.inf if is_open else sent_at + took, seconds
            found.slow_last, found.slow_took = found.slow_until, took
        return added

    @staticmethod
    def _next_of_line(times: float, is_open: bool) -> float:
        """How much a slow request counts that was sent after the last that counted was over, while others that are
        slow waited, where it took so many `times` as long. One without an answer counts once it has waited as
        long."""
        return 1.0 if times >= 1 else 0.0 if is_open else times * times

    def _slow_gain(self, route: Judged, upstream: LiveUpstream, seconds: float) -> float:
        """What a first byte adds that took so long, beside those of the other upstreams."""
        evidence = self._of(route.path)
        if seconds <= evidence.pace.slow_after:
            return 0.0
        return evidence.pace.gain(seconds, self._without(route, evidence, upstream)) / _UNIT

    def _without(self, route: Judged, evidence: RouteEvidence, upstream: LiveUpstream) -> set[LiveUpstream]:
        """Those whose answers `upstream` is not compared with: itself, and slow ones, unless most are."""
        now = self._clock()
        slow = {each for each, found in evidence.troubled.items() if found.slow.total(now) >= _IS_SLOW}
        slow.discard(upstream)
        return slow | {upstream} if 2 * len(slow) < len(route.upstreams) - 1 else {upstream}

    def heard_slow(
        self, route: Judged, upstream: LiveUpstream, added: float, seconds: float, is_open: bool
    ) -> None:
        """Another instance tells of a slow request, as in `Slow`."""
        found, now = self._of(route.path).of(upstream), self._clock()
        if added > 0 and now - seconds / 2 >= found.slow_until:
            found.slow.hears(added, now)
        found.slow_until = found.slow_last = math.inf if is_open else now

    def has_slow(self, route: Judged, upstream: LiveUpstream) -> bool:
        """Whether `telling_slow` has something of it."""
        found = self._of(route.path).troubled.get(upstream)
        return found is not None and found.slow_for is not None

    def telling_slow(self) -> Iterator[Slow]:
        """What the other instances are to be told of slow requests; nothing added where one is over that they know
        of."""
        for path, evidence in self.routes.items():
            for upstream, found in evidence.troubled.items():
                if (seconds := found.slow_for) is not None:
                    found.slow_for = None
                    yield Slow(path, upstream, found.slow.take_untold(), seconds, found.slow_until == math.inf)

    def score(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> float:
        """In failures: the sum over these routes, with what was heard, above that of the others."""
        now, score = self._clock(), 0.0
        for route in routes:
            evidence = self.routes.get(route.path)
            if evidence is not None and (found := evidence.troubled.get(upstream)) is not None:
                score += max(0.0, found.failing.total(now) - self._others(route, upstream).total)
        return score

    def slowness(self, upstream: LiveUpstream, route: Judged) -> float:
        """In failures: the sum of its slow answers, with what was heard, above that of the others."""
        found = self._of(route.path).troubled.get(upstream)
        return 0.0 if found is None else found.slow.total(self._clock()) - self._others(route, upstream).slow

    def fails_alone(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> bool:
        """Whether the others of any of these routes fail less: a failure of it would add something."""
        return any(gain(self._others(route, upstream).failing) > 0 for route in routes)

    def fails_as_a_whole(self, route: Judged) -> bool:
        """Whether the upstream in the middle of the route, the better one of two, fails in most of its requests
        here."""
        evidence = self.routes.get(route.path)
        if evidence is None or not evidence.troubled:
            return False
        return gain(evidence.others(None, len(route.upstreams), self._clock()).here) == 0.0

    def set_score(self, upstream: LiveUpstream, routes: Sequence[Judged], value: float) -> None:
        """Let the sum of its failures be `value`, wherever the evidence came from."""
        self.clear(upstream, routes)
        path = next((each.path for each in routes if self._takes(each.path, upstream)), None)
        if path is not None and value > 0:
            self._of(path).of(upstream).failing.value = value

    def clear(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> None:
        """Forget what there is against it, but not how it has done of late, which the others are judged by."""
        for each in self._evidence(upstream, routes):
            each.failing.clear()
            each.slow.clear()

    def forget(self, routes: Mapping[str, Judged]) -> None:
        """Those of `routes`, by path, are all that there are now, with their upstreams."""
        for path, evidence in list(self.routes.items()):
            if evidence.troubled:
                there = set(routes[path].upstreams) if path in routes else ()
                for upstream in [each for each in evidence.troubled if each not in there]:
                    evidence.drop(upstream)
            if path not in routes:
                del self.routes[path]

    def _others(self, route: Judged, upstream: LiveUpstream) -> Others:
        return self._of(route.path).others(upstream, len(route.upstreams) - 1, self._clock())

    def _of(self, path: str) -> RouteEvidence:
        found = self.routes.get(path)
        if found is None:
            found = self.routes[path] = RouteEvidence()
        return found

    def _evidence(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> Iterator[Evidence]:
        for route in routes:
            evidence = self.routes.get(route.path)
            if evidence is not None and (found := evidence.troubled.get(upstream)) is not None:
                yield found
