"""Requests of one key go to one upstream: a ring, whose caches stay warm while upstreams come and go."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from slb.balance.load_limit import LoadLimit
from slb.balance.load_stats import BUCKET, NONE, LoadStats
from slb.balance.order import rotated
from slb.balance.ring import Ring
from slb.balance.ring_keeper import RingKeeper
from slb.balance.round_robin import RoundRobin
from slb.balance.split import Split
from slb.balance.standing import Standing
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without
from slb.balance.zone_share import ZoneShare
from slb.model import RouteSettings

_ORDERED = 16
"""Upstreams in the ring's own order where all are asked for; further ones are rarely reached."""

_LOOK = BUCKET
_LOOK_EACH = 0.0001
"""Seconds between two looks at the pool as a whole, and for each upstream that there is to look at. A bucket of the
signals: what is in flight counts at once all the same, and nothing else changes sooner."""


@dataclass(slots=True)
class PickCounts:
    """How requests were sent. `keyless`, `unready`: round-robin, without a key, or without a ring. `kept`: to the
    owner of their key, without a walk. `walked`: by the number of upstreams that were passed over."""

    keyless: int = 0
    unready: int = 0
    kept: int = 0
    walked: Counter[int] = field(default_factory=Counter)

    @property
    def distances(self) -> Counter[int]:
        return self.walked + Counter({0: self.kept})


class ConsistentHash:
    """`zone`: where this process is. Requests without a key go round-robin, and all while there is no ring.

    `follow` gives it the route's upstreams and settings; `steps` has to be run at the time `wake`. `limit`: what
    load an upstream may have; `zone_share`: what stays in the zone; `counts`: how requests were sent.
    """

    greedy = False

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        self._chance = rng.random
        self._clock = clock
        self._zone_name = zone
        self._round_robin = RoundRobin(rng)
        self._keeper = RingKeeper(0.0, 0.0)
        self._view: RouteView | None = None
        self._may_take = self._takes = frozenset[LiveUpstream]()
        self.limit = LoadLimit(RouteSettings())
        self._split: Split | None = None
        self._room: dict[LiveUpstream, float] = {}
        self._look_at = 0.0
        self.zone_share = ZoneShare(RouteSettings())
        self.counts = PickCounts()

    @property
    def ring(self) -> "ConsistentHash":
        return self

    # -- kept in step

    def follow(self, upstreams: tuple[LiveUpstream, ...], settings: RouteSettings) -> None:
        """Set the route's upstreams and settings."""
        self._look_at = 0.0
        self.limit.follow(settings)
        self.zone_share.follow(settings)
        for each in upstreams:
            each.load_stats = each.load_stats or LoadStats(self._clock)
        self.limit.pool.watch(each.load_stats for each in upstreams if each.load_stats is not None)
        keeper = self._keeper
        keeper.window, keeper.debounce = settings.fade_in, settings.ring_debounce
        keeper.zone = self._zone_name if settings.zone_affinity else ""
        keeper.follow(upstreams, self._clock())

    def leave(self) -> None:
        """The route is removed, or has another policy."""
        self.limit.pool.watch(())

    @property
    def newest(self) -> Ring | None:
        """The ring of all members, which may fade in; None before there is one."""
        return self._keeper.rings.newest if self._keeper.rings is not None else None

    @property
    def wake(self) -> float:
        """When `steps` has something to do, by the clock."""
        return self._keeper.wake()

    def steps(self) -> Iterator[None]:
        """Bring the rings up to date; about a millisecond between two yields."""
        yield from self._keeper.step(self._clock())
        self._look_at = 0.0

    # -- what a request asks

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        split = self._split
        if (
            split is None
            or not key
            or without is not None
            or view is not self._view
            or self._clock() >= self._look_at
        ):
            return self._pick_anew(view, key, without)
        ring = split.draw(self._chance) if split.only is None else split.only
        owner = ring.pick(key)
        if owner.inflight <= self._room.get(owner, NONE):  # as nearly always: all else costs more
            self.counts.kept += 1
            return owner
        self._takes = self._may_take
        return self._pick_from(ring, view, key, without)

    def _pick_anew(self, view: RouteView, key: bytes, without: Without) -> LiveUpstream:
        """The slow way, where something may have changed, or upstreams are left out."""
        ring = self._ring_for(view, key, without)
        if ring is None:
            return self._round_robin.pick(view, key, without)
        return self._pick_from(ring, view, key, without)

    def _pick_from(self, ring: Ring, view: RouteView, key: bytes, without: Without) -> LiveUpstream:
        owner = ring.pick(key)
        if owner in self._takes and self.limit.keeps(owner):  # a walk costs more
            self.counts.kept += 1
            return owner
        if self._is_strange(ring):
            return self._round_robin.pick(view, key, without)
        found = self.limit.find(self._walk(ring, key), self._takes)
        self.counts.walked[found.distance] += 1
        return found.upstream

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> Sequence[LiveUpstream]:
        ring = self._ring_for(view, key, without)
        if ring is None or self._is_strange(ring):
            return self._round_robin.order(view, key, without)
        first = list(islice(self._walk(ring, key), _ORDERED))
        return [*first, *(each for each in rotated(first[0], view.left(without)) if each not in first)]

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        """By the newest ring: while one fades in, chance decides between it and those before."""
        ring, upstreams = self.newest, frozenset(view.upstreams)
        if not key or ring is None or ring.members.isdisjoint(upstreams):
            why = "no key" if not key else "no ring yet"
            standing = self._round_robin.standing(view)
            return standing._replace(by=f"{why}: {standing.by}")
        walk = list(islice(filter(upstreams.__contains__, ring.walk(key)), _ORDERED))
        # Before the first request nothing is known of the load that each is expected to have.
        first = walk[0] if self._split is None else self.limit.find(walk, upstreams).upstream
        passed = walk[: walk.index(first)]
        return Standing(
            "distance on the ring from the owner of the key, the first with room",
            {each: hops for hops, each in enumerate(walk)},
            walk,
            dict.fromkeys(passed, "has more than its share of the load"),
        )

    def _ring_for(self, view: RouteView, key: bytes, without: Without) -> Ring | None:
        """The ring that decides this request; None, and counted, where there is none."""
        if not key:
            self.counts.keyless += 1
            return None
        self._settle(view, without)
        now = self._clock()
        if now >= self._look_at:
            self._look(now)
        split = self._split
        if split is None:
            self.counts.unready += 1
            return None
        return split.draw(self._chance) if split.only is None else split.only

    def _is_strange(self, ring: Ring) -> bool:
        """Whether none of its upstreams can take this request; counted."""
        strange = ring.members.isdisjoint(self._takes)
        self.counts.unready += strange
        return strange

    def _settle(self, view: RouteView, without: Without) -> None:
        """Set `_takes`, which can take this request, and `_may_take`, which can take any and by which the pool is
        judged; not by a view that has been replaced, with which a further attempt may come."""
        if view is not self._view and (not without or self._view is None):
            self._view, self._may_take = view, frozenset(view.upstreams)
            self._look_at = 0.0
        takes = self._may_take if view is self._view else frozenset(view.upstreams)
        self._takes = takes.difference(without) if without else takes

    def _walk(self, ring: Ring, key: bytes) -> Iterator[LiveUpstream]:
        return filter(self._takes.__contains__, ring.walk(key))

    # -- every few milliseconds

    def _look(self, now: float) -> None:
        """Compute again what changes slowly: the pool's load and latency, the shares of rings and zone."""
        limit, load = self.limit, self.limit.pool
        self._look_at = now + max(_LOOK, _LOOK_EACH * len(load.load_stats))
        rings, local = self._keeper.rings, self._keeper.local
        if local is not None or limit.signal == "effective":
            load.look(now)
        if rings is None:
            self._split = None
            return
        parts = rings.shares(now)
        self.zone_share.share = 0.0
        if local is not None:
            share = self.zone_share.look(local.newest.members, self._may_take, load.latency, now)
            elsewhere = [(ring, part * (1.0 - share)) for ring, part in parts]
            parts = (*((ring, part * share) for ring, part in local.shares(now)), *elsewhere)
        if self._split is None or not self._split.is_of(parts, self._may_take):
            self._split = limit.split = Split(parts, self._may_take)
        self._room = {each: limit.room_of(each) for each in self._may_take}

    def loads(self) -> Iterator[tuple[LiveUpstream, float, float]]:
        """Upstream, occupancy, effective load; for the metrics."""
        now = self._clock()
        self.limit.pool.look(now)
        members = self._keeper.rings.newest.upstreams if self._keeper.rings is not None else ()
        for upstream in members:
            if upstream.load_stats is not None:
                load = upstream.load_stats.effective_load(self.limit.pool.latency, now)
                yield upstream, upstream.load_stats.occupancy(now), load

    @property
    def fading(self) -> int:
        """Rings that are fading in."""
        return len(self._keeper.rings.fading) if self._keeper.rings is not None else 0
