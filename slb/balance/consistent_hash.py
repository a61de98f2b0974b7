"""Requests of one key go to one upstream: a ring, whose caches stay warm while upstreams come and go."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from random import Random

from slb.balance.bounded_load import Found, bounded, bounded_as_skipper
from slb.balance.load_stats import BUCKET, NONE, LoadStats, PoolLoad
from slb.balance.order import rotated
from slb.balance.ring import Ring
from slb.balance.ring_keeper import RingKeeper
from slb.balance.round_robin import RoundRobin
from slb.balance.split import Split
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without
from slb.balance.zone import ZoneRamp, ZoneSettings
from slb.balance.zone_latency import ZoneLatency
from slb.model import RouteSettings

_ORDERED = 16
"""Upstreams in the ring's own order where all are asked for; further ones are rarely reached, and cost as much."""

_LOOK = BUCKET
_LOOK_EACH = 0.0001
"""Seconds between two looks at the pool as a whole, and for each upstream that there is to look at. A bucket of the
signals: what is in flight counts at once all the same, and nothing else changes sooner."""


class ConsistentHash:
    """`zone`: where this process is. Requests without a key go round-robin, and all while there is no ring.

    `follow` tells of the route's upstreams and settings; `steps` has to be run when `wake` says so. `keyless` and
    `unready`: how many requests were sent round-robin for want of a key, or of a ring.
    """

    greedy = False

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        self._chance = rng.random
        self._clock = clock
        self._zone = zone
        self._settings = RouteSettings()
        self._round_robin = RoundRobin(rng)
        self._keeper = RingKeeper(0.0, 0.0)
        self._view: RouteView | None = None
        self._may_take = self._takes = frozenset[LiveUpstream]()
        self._load = PoolLoad()
        self._split: Split | None = None
        self._split_by: tuple[object, ...] = ()
        self._room: dict[LiveUpstream, float] = {}
        self._look_at = 0.0
        self._signal, self._factor = self._settings.load_signal, self._settings.balance_factor
        self._compared: tuple[object, ...] = ()
        self._zone_latency = ZoneLatency()
        self._own: frozenset[LiveUpstream] = frozenset()
        self.ramp = ZoneRamp(_zone_settings(self._settings))
        self.zone_share = 0.0
        self._kept = 0
        self._walked: Counter[int] = Counter()
        self.keyless = 0
        self.unready = 0

    @property
    def ring(self) -> "ConsistentHash":
        return self

    # -- kept in step

    def follow(self, upstreams: tuple[LiveUpstream, ...], settings: RouteSettings) -> None:
        """These are the route's, by these settings."""
        self._settings = settings
        self._signal, self._factor = settings.load_signal, settings.balance_factor
        self._look_at = 0.0
        self.ramp.settings = _zone_settings(settings)
        if not settings.zone_affinity:
            self.ramp = ZoneRamp(self.ramp.settings)  # caches have turned to all zones meanwhile
        for each in upstreams:
            each.load_stats = each.load_stats or LoadStats(self._clock)
        self._load.watch(each.load_stats for each in upstreams if each.load_stats is not None)
        keeper = self._keeper
        keeper.window, keeper.debounce = settings.fade_in, settings.ring_debounce
        keeper.zone = self._zone if settings.zone_affinity else ""
        keeper.follow(upstreams, self._clock())

    def leave(self) -> None:
        """The route is gone, or goes by this policy no more."""
        self._load.watch(())

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
            self._kept += 1
            return owner
        self._takes = self._may_take
        return self._pick_from(ring, view, key, without)

    def _pick_anew(self, view: RouteView, key: bytes, without: Without) -> LiveUpstream:
        """The same where something has changed, or may have, or is left out."""
        ring = self._ring_for(view, key, without)
        if ring is None:
            return self._round_robin.pick(view, key, without)
        return self._pick_from(ring, view, key, without)

    def _pick_from(self, ring: Ring, view: RouteView, key: bytes, without: Without) -> LiveUpstream:
        owner = ring.pick(key)
        if owner in self._takes and self._keeps(owner):  # a walk costs more
            self._kept += 1
            return owner
        if self._is_strange(ring):
            return self._round_robin.pick(view, key, without)
        found = self._find(ring, key)
        self._walked[found.distance] += 1
        return found.upstream

    @property
    def distances(self) -> Counter[int]:
        """How many requests passed over how many upstreams."""
        return self._walked + Counter({0: self._kept})

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> Sequence[LiveUpstream]:
        ring = self._ring_for(view, key, without)
        if ring is None or self._is_strange(ring):
            return self._round_robin.order(view, key, without)
        first = list(islice(self._walk(ring, key), _ORDERED))
        return [*first, *(each for each in rotated(first[0], view.left(without)) if each not in first)]

    def _ring_for(self, view: RouteView, key: bytes, without: Without) -> Ring | None:
        """The ring that decides this request; None, and counted, where there is none."""
        if not key:
            self.keyless += 1
            return None
        self._settle(view, without)
        now = self._clock()
        if now >= self._look_at:
            self._look(now)
        split = self._split
        if split is None:
            self.unready += 1
            return None
        return split.draw(self._chance) if split.only is None else split.only

    def _is_strange(self, ring: Ring) -> bool:
        """Whether nobody of it can take this request; counted."""
        strange = ring.members.isdisjoint(self._takes)
        self.unready += strange
        return strange

    def _settle(self, view: RouteView, without: Without) -> None:
        """`_takes` are those that can take this request; `_may_take` those that can take any, by which the pool is
        judged. A further attempt may come with a view that has been replaced: the pool is not judged by it."""
        if view is not self._view and (not without or self._view is None):
            self._view, self._may_take = view, frozenset(view.upstreams)
            self._look_at = 0.0
        takes = self._may_take if view is self._view else frozenset(view.upstreams)
        self._takes = takes.difference(without) if without else takes

    def _walk(self, ring: Ring, key: bytes) -> Iterator[LiveUpstream]:
        return filter(self._takes.__contains__, ring.walk(key))

    def _keeps(self, owner: LiveUpstream) -> bool:
        """Whether it has room for one more of its keys, as far as can be told without looking at the others."""
        if self._signal != "effective":
            return self._signal == "off"
        load = self._load_of(owner)
        return load <= 1.0 or load <= self._threshold_of(owner)

    def _room_of(self, upstream: LiveUpstream) -> float:
        """With so many in flight it has room for one more, however few the others have: a load of 1 is not too much
        for anybody."""
        if self._signal == "off":
            return inf
        load_stats = upstream.load_stats
        return NONE if load_stats is None or self._signal == "inflight" else self._load.room_of(load_stats)

    def _find(self, ring: Ring, key: bytes) -> Found:
        """Who has, clockwise."""
        walk = self._walk(ring, key)
        if self._signal == "off":
            return Found(next(walk), 0)
        if self._signal == "inflight":
            return bounded_as_skipper(walk, self._takes, self._factor)
        return bounded(walk, self._load_of, self._threshold_of)

    def _load_of(self, upstream: LiveUpstream) -> float:
        assert upstream.load_stats is not None
        return self._load.load_of(upstream.load_stats)

    def _threshold_of(self, upstream: LiveUpstream) -> float:
        assert upstream.load_stats is not None
        # And one request more: where few are in flight a lone one is more than any upstream's share of them, and a
        # lone miss much more. To pass them over for that would scatter keys, which makes for more misses.
        part = self._part_of(upstream) * (self._load.total + 1.0)  # with this one
        return self._factor * (self._load.spare(upstream.load_stats) + part)

    def _part_of(self, upstream: LiveUpstream) -> float:
        """Of the whole load: what it is expected to have."""
        assert self._split is not None
        return self._split.expected(upstream)

    # -- every few milliseconds

    def _look(self, now: float) -> None:
        """Take anew what changes slowly: the pool's load and latency, the shares of rings and zone."""
        load = self._load
        self._look_at = now + max(_LOOK, _LOOK_EACH * len(load.load_stats))
        rings, local = self._keeper.rings, self._keeper.local
        if local is not None or self._signal == "effective":
            load.look(now)
        if rings is None:
            self._split = None
            return
        parts = rings.shares(now)
        self.zone_share = 0.0
        if local is not None:
            self._compare(local.newest)
            self.ramp.observe(*self._zone_latency.look(now), now)
            self.zone_share = share = self.ramp.share(now, self._live_in_zone(now))
            elsewhere = [(ring, part * (1.0 - share)) for ring, part in parts]
            parts = (*((ring, part * share) for ring, part in local.shares(now)), *elsewhere)
        if self._split is None or self._split_by != (parts, self._may_take):
            self._split, self._split_by = Split(parts, self._may_take), (parts, self._may_take)
        self._room = {each: self._room_of(each) for each in self._may_take}

    def _live_in_zone(self, now: float) -> int:
        """How many upstreams the zone has; 0 where all are stuck: of a zone that has frozen no latencies come."""
        latency = self._load.latency
        stuck = all(each.load_stats is not None and each.load_stats.is_stuck(latency, now) for each in self._own)
        return 0 if stuck else len(self._own)

    def _compare(self, local: Ring) -> None:
        """Whose latencies tell how the zone is doing."""
        if self._compared == (compared := (local, self._may_take)):
            return
        self._compared, self._own = compared, local.members & self._may_take
        others = self._may_take - self._own
        self._zone_latency.watch(
            *([each.load_stats for each in part if each.load_stats is not None] for part in (self._own, others))
        )

    def loads(self) -> Iterator[tuple[LiveUpstream, float, float]]:
        """Each upstream's occupancy and effective load, for the metrics."""
        now = self._clock()
        self._load.look(now)
        members = self._keeper.rings.newest.upstreams if self._keeper.rings is not None else ()
        for upstream in members:
            if upstream.load_stats is not None:
                load = upstream.load_stats.effective_load(self._load.latency, now)
                yield upstream, upstream.load_stats.occupancy(now), load

    @property
    def fading(self) -> int:
        """Rings that are fading in."""
        return len(self._keeper.rings.fading) if self._keeper.rings is not None else 0


def _zone_settings(settings: RouteSettings) -> ZoneSettings:
    return ZoneSettings(
        delay=settings.zone_delay,
        fade_in=settings.zone_fade_in,
        ceiling=settings.zone_ceiling,
        margin=settings.zone_margin,
        least=settings.zone_min_upstreams,
    )
