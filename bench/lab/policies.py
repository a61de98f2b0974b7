"""The proxy's own policy at work in a simulated fleet, and two that it might have been, each wrong in one rule."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from random import Random

from bench.lab.fleet import Fleet
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.load_limit import LoadLimit
from slb.balance.load_stats import NONE, WINDOW
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without
from slb.model import RouteSettings

MakePolicy = Callable[[Random, Callable[[], float], str], ConsistentHash]


class _SentLately(LoadLimit):
    """The load of an upstream is how many requests it was sent of late."""

    def __init__(self) -> None:
        super().__init__(RouteSettings())
        self._sent: deque[tuple[float, LiveUpstream]] = deque()
        self._rate: Counter[LiveUpstream] = Counter()

    def forget(self, before: float) -> None:
        while self._sent and self._sent[0][0] < before:
            self._rate[self._sent.popleft()[1]] -= 1

    def add(self, now: float, upstream: LiveUpstream) -> None:
        self._sent.append((now, upstream))
        self._rate[upstream] += 1

    def room_of(self, upstream: LiveUpstream) -> float:
        return NONE

    def load_of(self, upstream: LiveUpstream) -> float:
        return self._rate[upstream]

    def threshold_of(self, upstream: LiveUpstream) -> float:
        return (len(self._sent) + 1) / len(self.split.eligible) * self.factor


class ByThroughput(ConsistentHash):
    """Goes by how many requests each upstream was sent of late, as if all took equally long."""

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        super().__init__(rng, clock, zone)
        self.limit = self._lately = _SentLately()

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        now = self._clock()
        self._lately.forget(now - WINDOW)
        upstream = super().pick(view, key, without)
        self._lately.add(now, upstream)
        return upstream


class _OneShare(LoadLimit):
    """Each upstream is expected to have as much as any other."""

    def part_of(self, upstream: LiveUpstream) -> float:
        return 1.0 / len(self.split.eligible)


class NaiveThreshold(ConsistentHash):
    """Holds each upstream against the mean of all, whichever rings it is in: then an upstream that serves
    its zone beside its share of the whole looks overloaded."""

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        super().__init__(rng, clock, zone)
        self.limit = _OneShare(RouteSettings())


def add_policy(
    fleet: Fleet,
    make: MakePolicy,
    upstreams: Iterable[LiveUpstream],
    settings: RouteSettings,
    name: str,
    zone: str = "",
) -> ConsistentHash:
    """A client process of the fleet that goes by a policy of its own, its rings already built; `name` is unlike any
    other client's, and is all that its own chances depend on beside the fleet's seed."""
    eligible = tuple(sorted(upstreams, key=lambda upstream: upstream.member))
    policy = make(Random(f"{fleet.seed} {name}"), fleet.schedule.clock, zone)
    policy.follow(eligible, settings)
    for _ in policy.steps():  # slices: no request waits here
        pass
    picked_from = RouteView(eligible)
    fleet.add_client(lambda key: policy.pick(picked_from, key))
    return policy


def distances(policies: Sequence[ConsistentHash]) -> Counter[int]:
    """How many requests so far passed over how many upstreams, of all these together."""
    return sum((policy.counts.distances for policy in policies), Counter[int]())


def walked(since: Counter[int]) -> float:
    """The part of these requests that passed over an upstream."""
    return 1 - since[0] / since.total() if since.total() else 0.0


def furthest(since: Counter[int], share: float) -> int:
    """Upstreams that this share of the requests did not pass over more than."""
    left = share * since.total()
    for distance in sorted(since):
        left -= since[distance]
        if left <= 0:
            return distance
    return 0
