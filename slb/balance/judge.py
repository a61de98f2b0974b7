"""Whether an upstream is sick, by the requests it had. Pure: no I/O, no clock.

The theory. Each request is an observation of its upstream: it failed, or it was answered. A healthy upstream
fails at most in a share h of its requests, a sick one in (1 + h) / 2: halfway to all of them. Page's cumulative
sum (1954) adds up the log-likelihood ratios of the two and never falls below zero. A failure adds ln((1 + h) /
2h), an answer takes ln 2 off. No other test with as few false alarms sees a change sooner (Moustakides 1986).
The unit here is a failure at the lowest h, so that an upstream which fails alone is sick after `eject_after`
failures in a row, or after more where some requests are answered between them.

h follows the *other upstreams of the route*: 2 %, and 1.5 times the share that the others fail. Of the others the
one in the middle counts, the better one of two: a second sick upstream does not hide the first. Where the others
fail as often, a failure adds nothing: then the fault is in the model, in the request, or in this instance.

False alarms. Of a healthy upstream, one whose share of failures is below h, the sum reaches `eject_after` within n
requests with a probability below n * 25.5^-`eject_after`, whatever the rate of the requests: at the default of 5
once in 10 million requests at the most, and at 1 % of failures once in 650 million. `make bench-judge` prints them
for 2, 8 and 1,000 upstreams, at 1, 100 and 10,000 requests a minute.

The sums of several instances are added: each tells the others what its failures added (`telling`), with the
others of the route as *it* saw them. So one failure in each of ten instances is ten, and the failures of an
instance that fails with all upstreams weigh nothing. What counts in the end is by how much the sum is above
that of the others: where a model begins to fail as a whole, the first failures of each look like its own. What
was heard fades with a time constant of 30 s, and each answer here takes off as much as one in each instance
would: the traffic of all is taken for alike.

Slow answers are a second sum of the same kind: an answer is slow whose first byte takes over 4 times as long as the
others' median does (and over 250 ms). There h is 10 % and 1.5 times the others' share.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from slb.balance.upstream import LiveUpstream

_FAIL: Final = 0.02
_SLOW: Final = 0.1
"""The least share of failures, and of slow answers, that is taken for healthy."""
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
_HEARD_FOR: Final = 30.0
"""Seconds in which what was heard fades to 37 %."""

_SLOWER: Final = 4.0
_NEVER_SLOW: Final = 0.25
_FIRST_GUESSES: Final = 16
"""Answers after which the median is one."""
_FIRST_STEP, _STEP = 0.5, 0.1
_ALL_LOOKED_AT: Final = 200
_MOST_SKIPPED: Final = 11
_HELD_LONGEST: Final = 5.0
STUCK_LEAST: Final = 30.0
_GAVE_UP_LEAST: Final = 10.0
_STUCK_TIMES: Final = 10.0

BUSY: Final = frozenset({429, 503, 529})
"""Statuses by which servers say that they are full; 529 is Anthropic's and Dynamo's."""
_CLIENTS_OWN: Final = frozenset({501, 505})
"""Statuses above 499 that a client can bring about with any server, by its method or its version."""

WEIGHTS: Final = {"gave_up": 0.5}
"""By kind of failure, where it is not 1: a client may also leave for reasons of its own."""


def is_failure(status: int) -> bool:
    """Whether a reply of this status speaks against its upstream."""
    return status >= 500 and status not in _CLIENTS_OWN


def gain(others: float, healthy: float = _FAIL) -> float:
    """What a failure adds where the others fail in a share of `others`; `healthy`: the least share that is."""
    share = healthy + _MARGIN * others
    return 0.0 if share >= _ALIKE else math.log((1 + share) / (2 * share)) / _UNIT


@dataclass(slots=True)
class Sum:
    """Of one upstream on one route. `value` in failures, `share`: of the last requests that failed."""

    value: float = 0.0
    share: float = 0.0

    def failed(self, gained: float) -> None:
        self.value += gained
        self.share += (1 - self.share) * _MEMORY

    def answered(self) -> None:
        self.value = max(0.0, self.value - ANSWERED)
        share = self.share * (1 - _MEMORY)
        self.share = share if share > _FORGOTTEN else 0.0

    def __bool__(self) -> bool:
        return self.value > 0 or self.share > 0


@dataclass(slots=True, eq=False)
class Evidence:
    """Of one upstream on one route. `heard`: what other instances' failures added, as it was at `heard_at`;
    `untold`: what this one's added, and the others have not been told."""

    failing: Sum = field(default_factory=Sum)
    slow: Sum = field(default_factory=Sum)
    heard: float = 0.0
    heard_at: float = 0.0
    untold: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.failing) or bool(self.slow) or self.heard > 0

    def total(self, now: float) -> float:
        """In failures: what there is against it, from here and from others."""
        return self.failing.value + self.told(now)

    def told(self, now: float) -> float:
        return self.heard * math.exp((self.heard_at - now) / _HEARD_FOR) if self.heard else 0.0


class Pace:
    """How long the first bytes of a route's answers take, in seconds, from when the request was sent: `usual` is an
    estimate of the median of the healthy ones, `longest` of the 99th percentile; 0.0 before the first. An answer
    that takes longer than `slow_after` is slow.

    Each answer moves an estimate up or down by a step in proportion to its quantile, which leaves it where so many
    are below and so many above (Robbins and Monro 1951): two numbers for each route, whatever its traffic. Of many
    answers about one in six is looked at: `skip` more are not, unless they are slow.
    """

    __slots__ = ("_answers", "longest", "skip", "slow_after", "usual")

    def __init__(self) -> None:
        self.usual = 0.0
        self.longest = 0.0
        self.slow_after = math.inf
        self.skip = 0
        self._answers = 0

    def took(self, seconds: float, upstreams: int) -> bool:
        """Note an answer; whether it is slow. `upstreams`: those of the route: where one of n is slow, the
        median of the others is the (1 - 1/n)/2 quantile of all."""
        is_slow = seconds > self.slow_after
        if self.skip:
            self.skip -= 1
            return is_slow
        self._answers = answers = self._answers + 1
        if answers == 1:
            self.usual = self.longest = seconds
            return False
        step = _STEP if answers > _FIRST_GUESSES else _FIRST_STEP
        below = (1 - 1 / upstreams) / 2 if upstreams > 1 else 0.5
        self.usual *= 1 + step * below if seconds > self.usual else 1 - step * (1 - below)
        if answers <= _FIRST_GUESSES:
            self.longest = max(self.longest, seconds)
            return is_slow
        self.longest = min(seconds, 1.5 * self.longest) if seconds > self.longest else 0.995 * self.longest
        self.slow_after = max(_NEVER_SLOW, _SLOWER * self.usual)
        if answers > _ALL_LOOKED_AT:
            self.skip = answers % _MOST_SKIPPED  # in no step with the turns of upstreams
        return is_slow

    @property
    def holds_for(self) -> float:
        """Seconds for which a request that fails keeps its slot at least: as long as one that is answered. Else who
        fails at once would seem to have the most room."""
        return min(self.usual, _HELD_LONGEST)

    @property
    def stuck_after(self) -> float:
        """Seconds without a sign of life after which an upstream that owes an answer is stuck."""
        return max(STUCK_LEAST, _STUCK_TIMES * self.longest)

    @property
    def gives_up_after(self) -> float:
        """Seconds after which a client that leaves without a first byte has given up on the upstream."""
        return max(_GAVE_UP_LEAST, _STUCK_TIMES * self.longest)


class Judged(Protocol):
    """A route, as far as it is judged."""

    @property
    def path(self) -> str: ...
    @property
    def upstreams(self) -> tuple[LiveUpstream, ...]: ...


class Others(NamedTuple):
    """How the others of a route do, each figure by itself that of the one in the middle: the shares of failures and
    of slow answers, and the sum of failures."""

    failing: float
    slow: float
    total: float


_WELL = Others(0.0, 0.0, 0.0)


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
        return found

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
            _middle_of([each.failing.share for each in found], count),
            _middle_of([each.slow.share for each in found], count),
            _middle_of([each.total(now) for each in found], count),
        )


def _middle_of(values: list[float], count: int) -> float:
    """The one in the middle of `count`, the better one of two; those that are not given are 0."""
    place = (count - 1) // 2 - (count - len(values))
    return sorted(values)[place] if place >= 0 else 0.0


class Judge:
    """The evidence of one process. It keeps something only of upstreams that have failed or were slow of late: its
    cost grows with these, not with the route. `routes`: by path. `clock`: seconds; `instances`: how many share the
    traffic."""

    def __init__(self, clock: Callable[[], float], instances: Callable[[], int] = lambda: 1) -> None:
        self._clock = clock
        self._instances = instances
        self.routes: dict[str, RouteEvidence] = {}

    def pace(self, route: Judged) -> Pace:
        return self._of(route.path).pace

    def failed(self, route: Judged, upstream: LiveUpstream, kind: str = "") -> float:
        """One request failed; returns what that adds."""
        added = WEIGHTS.get(kind, 1.0) * gain(self._others(route, upstream).failing)
        found = self._of(route.path).of(upstream)
        found.failing.failed(added)
        found.untold += added
        return added

    def heard(self, route: Judged, upstream: LiveUpstream, added: float) -> None:
        """Another instance has seen failures, which added so much there."""
        found, now = self._of(route.path).of(upstream), self._clock()
        found.heard, found.heard_at = found.told(now) + added, now

    def telling(self) -> Iterator[tuple[str, LiveUpstream, float]]:
        """What the other instances are to be told: path, upstream, what failures here have added since the last
        time, as far as no answers have come since."""
        for path, evidence in self.routes.items():
            for upstream, found in evidence.troubled.items():
                untold, found.untold = min(found.untold, found.failing.value), 0.0
                if untold > 0:
                    yield path, upstream, untold

    def answered(self, route: Judged, upstream: LiveUpstream, took: float = 0.0) -> bool:
        """One request was answered; whether it was slow. `took`: seconds to the first byte; 0 where they say
        nothing of the upstream."""
        evidence = self.routes.get(route.path) or self._of(route.path)
        is_slow = took > 0 and evidence.pace.took(took, len(route.upstreams))
        if not evidence.troubled and not is_slow:
            return False
        found = evidence.troubled.get(upstream)
        if found is None:
            if not is_slow:
                return False
            found = evidence.of(upstream)
        found.failing.answered()
        if found.heard:
            now = self._clock()
            left = found.told(now) - ANSWERED * self._instances()
            found.heard, found.heard_at = max(0.0, left), now
        if is_slow:
            found.slow.failed(gain(self._others(route, upstream).slow, _SLOW))
        elif took:
            found.slow.answered()
        if not found:
            del evidence.troubled[upstream]
        return is_slow

    def score(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> float:
        """In failures: the sum over these routes, with what was heard, above that of the others."""
        now, score = self._clock(), 0.0
        for route in routes:
            evidence = self.routes.get(route.path)
            if evidence is not None and (found := evidence.troubled.get(upstream)) is not None:
                score += max(0.0, found.total(now) - self._others(route, upstream).total)
        return score

    def slowness(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> float:
        return max((each.slow.value for each in self._evidence(upstream, routes)), default=0.0)

    def fails_alone(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> bool:
        """Whether the others of any of these routes fail less: a failure of it would add something."""
        return any(gain(self._others(route, upstream).failing) > 0 for route in routes)

    def fails_as_a_whole(self, route: Judged) -> bool:
        """Whether the upstream in the middle of the route, the better one of two, fails in most of its requests."""
        evidence = self.routes.get(route.path)
        if evidence is None or not evidence.troubled:
            return False
        return gain(evidence.others(None, len(route.upstreams), self._clock()).failing) == 0.0

    def set_score(self, upstream: LiveUpstream, routes: Sequence[Judged], value: float) -> None:
        """Let the sum of its failures be `value`, wherever the evidence came from."""
        self.clear(upstream, routes)
        if routes and value > 0:
            self._of(routes[0].path).of(upstream).failing.value = value

    def clear(self, upstream: LiveUpstream, routes: Iterable[Judged]) -> None:
        """Forget what there is against it, but not how it has done of late, which the others are judged by."""
        for each in self._evidence(upstream, routes):
            each.failing.value = each.slow.value = each.heard = each.untold = 0.0

    def forget(self, gone: Container[str], paths: Container[str]) -> None:
        """The members that are `gone` have left, and all routes but those of `paths`."""
        for path in [path for path in self.routes if path not in paths]:
            del self.routes[path]
        for evidence in self.routes.values():
            for upstream in [each for each in evidence.troubled if each.member in gone]:
                del evidence.troubled[upstream]

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
