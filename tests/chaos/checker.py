"""Proves from a history that slots were given out rightly, or reports what went wrong."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from tests.chaos.history import (
    Event,
    Expired,
    Granted,
    History,
    Left,
    Observed,
    Queued,
    Released,
    Returned,
    Scored,
)

Place = tuple[str, str]
"""Pool and member."""

UNACKNOWLEDGED_SECONDS = 1.75
"""A grant that is used waits at least so long for its acknowledgement: `ledger_patience` and 0.25 s."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, when, and by what."""

    rule: str
    time: float
    what: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """More than the capacity, where that is allowed: `seen_by` is `leases` (of those in Redis) or `upstream`."""

    time: float
    member: str
    count: int
    capacity: int
    seen_by: str


@dataclass(slots=True)
class Verdict:
    """`violations`: none, or the run was wrong. `overlaps`: reported, not judged. `most`: leases at once.
    `strict`: how many grants fell into times when Redis was whole."""

    violations: list[Violation] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    most: Counter[Place] = field(default_factory=Counter)
    grants: int = 0
    strict: int = 0
    waited: int = 0

    def __str__(self) -> str:
        worst = max((overlap.count - overlap.capacity for overlap in self.overlaps), default=0)
        seen_by = Counter(overlap.seen_by for overlap in self.overlaps)
        lines = [
            f"{self.grants} grants, {self.strict} of them while Redis was whole, "
            f"{self.waited} to asks that were seen waiting; {len(self.violations)} violations",
            f"  overlaps that may be: {seen_by['leases']} of leases, {seen_by['upstream']} seen by upstreams, "
            f"by {worst} at most",
        ]
        return "\n".join([*lines, *(f"  {each.time:.3f} {each.rule}: {each.what}" for each in self.violations)])


class Checker:
    """`capacities`: pool -> member -> capacity, for those that have one.

    `slack` (seconds): how much later than it was an event may have been seen. `patience` (seconds): how long a slot
    may stay free while a request that could use it waits.
    """

    def __init__(
        self,
        history: History,
        capacities: Mapping[str, Mapping[str, int]],
        slack: float = 0.0,
        patience: float = inf,
    ) -> None:
        self._history = history
        self._capacities = {
            (pool, member): capacity for pool, of in capacities.items() for member, capacity in of.items()
        }
        self._slack = slack
        self._patience = patience
        self._verdict = Verdict()
        self._waiting: dict[str, Queued] = {}
        self._asked: dict[str, Queued] = {}
        self._leases: dict[str, Granted] = {}
        self._counts: Counter[Place] = Counter()
        self._expired: dict[str, dict[str, Granted]] = {}
        self._returned: dict[str, float] = {}
        self._scores: dict[str, Scored] = {}
        self._lease_ends: dict[str, list[float]] = {}
        self._last_return = -inf
        self._free_since: dict[Place, float] = {}
        self._until = _ends_of_waits(history.events)

    def check(self) -> Verdict:
        """Replay the history; call it once."""
        events = sorted(self._history.events, key=lambda event: event.time)
        for event in events:
            self._judge_free_slots(event.time)
            self._replay(event)
            self._note_free_slots(event.time)
        self._judge_end(self._history.clock())
        return self._verdict

    def _replay(self, event: Event) -> None:
        match event:
            case Queued():
                self._waiting[event.ask] = self._asked[event.ask] = event
            case Granted():
                self._granted(event)
            case Released():
                self._released(event)
            case Left():
                self._waiting.pop(event.ask, None)
            case Expired():
                self._expire(event)
            case Returned():
                self._return(event)
            case Scored():
                self._scored(event)
            case Observed():
                self._observed(event)

    # -- grants and releases

    def _granted(self, grant: Granted) -> None:
        self._judge_order(grant)
        if self._waiting.pop(grant.ask, None):
            self._verdict.waited += 1
        self._verdict.grants += 1
        self._verdict.strict += self._is_whole(grant)
        if grant.ask in self._leases:
            self._fault("granted twice", grant.time, grant.ask)
            return
        if grant.instance in self._expired:  # just thawed, it has not yet the answer that its leases are gone
            self._expired[grant.instance][grant.ask] = grant
            return
        self._leases[grant.ask] = grant
        self._count(grant, 1)
        self._judge_capacity(grant)

    def _judge_capacity(self, grant: Granted) -> None:
        place = grant.pool, grant.member
        count, capacity = self._counts[place], self._capacities.get(place, 0)
        if not capacity or count <= capacity:
            return
        held = [lease for lease in self._leases.values() if (lease.pool, lease.member) == place]
        counted = [each for each in held if not self._may_be_free(each, grant.time)]
        if self._is_whole(grant) and len(counted) > capacity:
            asks = " ".join(each.ask for each in held)
            self._fault("above capacity", grant.time, f"{count} of {capacity} at {place}: {asks}")
        else:
            self._verdict.overlaps.append(Overlap(grant.time, grant.member, count, capacity, "leases"))

    def _may_be_free(self, lease: Granted, now: float) -> bool:
        """Whether Redis may not have counted it when it granted what is seen `now`: its instance was not back yet;
        or was stopped when it was granted, perhaps before it acknowledged that, and has lost it since."""
        came_back = now - self._returned.get(lease.ask, -inf) < self._slack
        stopped = self._history.was_stalled(lease.instance, lease.time, lease.time + self._slack)
        return came_back or (stopped and now - lease.time + self._slack > UNACKNOWLEDGED_SECONDS)

    def _is_whole(self, grant: Granted) -> bool:
        return self._history.whole(grant.time - self._slack, grant.time)

    def _released(self, event: Released) -> None:
        lease = self._leases.pop(event.ask, None)
        self._returned.pop(event.ask, None)
        if lease is not None:
            self._count(lease, -1)
        elif not any(leases.pop(event.ask, None) for leases in self._expired.values()):
            self._fault("released without a slot", event.time, event.ask)

    def _count(self, lease: Granted, change: int) -> None:
        place = lease.pool, lease.member
        self._counts[place] += change
        self._verdict.most[place] = max(self._verdict.most[place], self._counts[place])

    def _expire(self, event: Expired) -> None:
        gone = {ask: lease for ask, lease in self._leases.items() if lease.instance == event.instance}
        for ask, lease in gone.items():
            del self._leases[ask]
            self._count(lease, -1)
        self._expired.setdefault(event.instance, {}).update(gone)
        self._lease_ends.setdefault(event.instance, []).append(event.time)

    def _return(self, event: Returned) -> None:
        self._last_return = event.time
        for ask, lease in self._expired.pop(event.instance, {}).items():
            self._leases[ask] = lease
            self._returned[ask] = event.time
            self._count(lease, 1)

    # -- first come, first served

    def _judge_order(self, grant: Granted) -> None:
        mine = self._asked.get(grant.ask)
        for other in self._waiting.values():
            if other.ask != grant.ask and self._overtakes(grant, mine, other) and self._could_use(other, grant):
                self._fault("overtaken", grant.time, f"{other.ask}, by {grant.ask} at {grant.member}")

    def _overtakes(self, grant: Granted, mine: Queued | None, other: Queued) -> bool:
        if other.pool != grant.pool or self._until[other.ask] <= grant.time + self._slack:
            return False
        if mine is None:  # it never waited, so it may overtake none, whatever the class
            return other.time + self._slack < grant.time
        was_first = other.number < mine.number and other.time + self._slack <= mine.time
        return was_first and other.priority == mine.priority

    def _could_use(self, other: Queued, grant: Granted) -> bool:
        start, end = other.time, grant.time + self._slack
        stalled = self._history.was_stalled(other.instance, start, end)
        return grant.member in other.usable and not stalled and self._history.whole(start, end)

    # -- nothing is lost

    def _note_free_slots(self, now: float) -> None:
        wanted = {place for each in self._waiting.values() for place in self._free_for(each, now)}
        self._free_since = {place: self._free_since.get(place, now) for place in wanted}

    def _free_for(self, queued: Queued, now: float) -> list[Place]:
        if self._history.was_stalled(queued.instance, queued.time, now):
            return []
        places = [(queued.pool, member) for member in queued.usable]
        return [place for place in places if self._counts[place] < self._capacities.get(place, inf)]

    def _judge_free_slots(self, now: float) -> None:
        """Nothing has changed since the event before."""
        mended = max((span.end for span in self._history.disturbed if span.start <= now), default=-inf)
        for place, since in self._free_since.items():
            if now - max(since, mended, self._perhaps_held_until(since)) > self._patience:
                self._fault("slot not given", now, f"{place} is free since {since:.3f}, and a request waits for it")
                self._free_since[place] = inf

    def _perhaps_held_until(self, since: float) -> float:
        """What an instance had just been granted, or not given back yet, when it was stopped looks free from
        outside: it is its own until its lease has ended, or it goes on."""
        ends = [-inf]
        for instance, spans in self._history.stalled.items():
            for span in spans:
                if abs(span.start - since) <= self._slack:
                    leases = [each for each in self._lease_ends.get(instance, ()) if each >= span.start]
                    ends.append(min([span.end, *leases]))
        return max(ends)

    def _judge_end(self, now: float) -> None:
        self._judge_free_slots(now)
        for ask in self._leases:
            self._fault("never released", now, ask)
        for ask, queued in self._waiting.items():
            if not self._history.was_stalled(queued.instance, now, now):
                self._fault("never answered", now, ask)
        for name, count in self._history.remaining.items():
            if count:
                self._fault("not zero at the end", now, f"{name}: {count}")

    # -- what Redis and the upstreams count themselves

    def _scored(self, event: Scored) -> None:
        before = self._scores.get(event.pool)
        self._scores[event.pool] = event
        for member, score in event.scores.items():
            capacity = self._capacities.get((event.pool, member), 0)
            rose = before is not None and score > before.scores.get(member, 0)
            if not capacity or score <= capacity or not rose:
                continue
            assert before is not None
            if self._history.whole(before.time, event.time) and self._last_return < before.time:
                self._fault("score above capacity", event.time, f"{member} has {score} of {capacity}")
            else:
                self._verdict.overlaps.append(Overlap(event.time, member, score, capacity, "leases"))

    def _observed(self, event: Observed) -> None:
        capacities = [capacity for (_, member), capacity in self._capacities.items() if member == event.member]
        if capacities and event.concurrency > sum(capacities):
            overlap = Overlap(event.time, event.member, event.concurrency, sum(capacities), "upstream")
            self._verdict.overlaps.append(overlap)

    def _fault(self, rule: str, time: float, what: str) -> None:
        self._verdict.violations.append(Violation(rule, time, what))


def _ends_of_waits(events: list[Event]) -> dict[str, float]:
    ends: dict[str, float] = {event.ask: inf for event in events if isinstance(event, Queued)}
    for event in events:
        if isinstance(event, Granted | Left) and event.ask in ends:
            ends[event.ask] = min(ends[event.ask], event.time)
    return ends
