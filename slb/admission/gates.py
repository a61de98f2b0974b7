"""The gates of all pools."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from random import Random

from slb.admission.above_cap import AboveCap
from slb.admission.gate import Gate
from slb.admission.shown import LedgerShown, PoolShown
from slb.balance.asking import Turn
from slb.control.ledger import Ledger
from slb.model import RouteSettings
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_LOOK = 0.25
"""Seconds between two calls of `refresh` on the gates."""
_SCORE_LOOKS = 4
"""So many looks apart, what the ledger has read is compared with the caps; it reads once a second."""
_MOST_AHEAD = 128
"""Gates that are made before a request needs them. Each instance has a connection to Redis for each, and Redis
takes 10,000 unless configured otherwise: thousands of capped routes are not to use them up."""
_IDLE_LOOKS = 40
"""So many looks apart, gates of pools that no route names any more are taken down."""


def turn_of(settings: RouteSettings, asked: str) -> Turn | None:
    """How a request waits that names the class `asked`; an unknown one has the least weight. None where nothing
    waits."""
    if settings.when_full != "queue":
        return None
    weights = dict(settings.priorities)
    if not weights:
        return Turn("", 1, settings.queue_limit)
    priority = asked if asked in weights else min(weights, key=lambda each: (weights[each], each))
    return Turn(priority, weights[priority], settings.queue_limit)


def _classes(settings: RouteSettings) -> Iterable[str]:
    if settings.when_full != "queue":
        return ()
    return dict(settings.priorities) or ("",)


class Gates:
    """A pool's gate is made with its first route, or where there are many, with its first request."""

    def __init__(
        self, ledger: Ledger, mirror: Mirror, metrics: Metrics, instances: Callable[[], int], rng: Random
    ) -> None:
        self._ledger = ledger
        self._mirror = mirror
        self._metrics = metrics
        self._instances = instances
        self._rng = rng
        self._gates: dict[str, Gate] = {}
        self._above_cap = AboveCap(metrics)
        self._told: set[tuple[str, str]] = set()
        mirror.on_swap(lambda _: self._swapped())
        mirror.on_refresh(self._refresh)  # a slot of one that is out is granted no more
        metrics.queue.depth = self.depths
        metrics.ledger.pools_shared = self.modes
        metrics.redis.unanswered = lambda: any(gate.lane.state.silent for gate in self._gates.values())
        metrics.ledger.global_inflight = lambda: self.scores().items()

    def of(self, route: Route) -> Gate:
        pool = route.settings.pool or route.path
        gate = self._gates.get(pool)
        if gate is None:
            gate = Gate(pool, self._ledger.lane, self._mirror, self._metrics, self._instances, self._rng)
            self._gates[pool] = gate
        return gate

    async def in_flight(self, route: Route, member: str) -> int | None:
        """Slots of a member in the route's pool, everywhere and now; None where Redis does not decide in it. Raises
        RedisUnavailable."""
        pool = route.settings.pool or route.path
        gate = self._gates.get(pool)
        return await self._ledger.in_flight(pool, member) if gate is not None and gate.mode == "shared" else None

    async def idle(self, route: Route, member: str, silence: float) -> int:
        """A member serves nothing: its slots in the route's pool that instances hold which have been silent for so
        long are free. How many. Raises RedisUnavailable."""
        return await self._ledger.idle(route.settings.pool or route.path, member, silence)

    def known(self, pool: str) -> Gate | None:
        """The gate of a pool; None where it is not made yet."""
        return self._gates.get(pool)

    def shown(self) -> LedgerShown:
        """For /status."""
        return LedgerShown(pools={pool: self._pool(pool, gate) for pool, gate in sorted(self._gates.items())})

    def _pool(self, pool: str, gate: Gate) -> PoolShown:
        lane = gate.lane
        waiting: dict[str, dict[str, int]] = {}
        for (path, priority), count in gate.waiting.items():
            waiting.setdefault(path, {})[priority] = count
        scores = self._ledger.scores.get(pool)
        return PoolShown(
            mode=gate.mode,
            error=lane.state.error,
            holders=lane.epochs.holders if lane.state.ready else None,
            queued=lane.state.queued if lane.state.ready else None,
            held=dict(lane.held),
            waiting=waiting,
            scores=dict(scores) if lane.state.ready and scores is not None else None,
        )

    def modes(self) -> Iterable[tuple[str, bool]]:
        """Each pool, and whether Redis decides in it."""
        return [(pool, gate.mode == "shared") for pool, gate in self._gates.items()]

    def depths(self) -> Iterable[tuple[str, str, int]]:
        """Route, class, how many requests wait at this instance: 0 for each class of a route that queues, and for
        one that was told of before. A scraper takes a figure that is missing for one that has not changed."""
        counted = self._mirror.table.counted
        told = {place for place in self._told if place[0] in counted}
        told.update((path, each) for path, route in counted.items() for each in _classes(route.settings))
        depths = dict.fromkeys(sorted(told), 0)
        for gate in self._gates.values():
            depths.update(gate.waiting)
        self._told = set(depths)
        return [(*place, count) for place, count in depths.items()]

    def queued(self) -> Iterable[tuple[str, str, str, int, float]]:
        """Pool, route, class, how many requests wait at this instance, and for how many seconds the first of
        them."""
        for pool, gate in self._gates.items():
            for place, count in list(gate.waiting.items()):
                yield pool, *place, count, gate.oldest(place)

    def held(self) -> Iterable[tuple[str, Mapping[str, int]]]:
        """Each pool, and by member the slots that this instance holds."""
        return [(pool, gate.lane.held) for pool, gate in self._gates.items()]

    def scores(self) -> Counter[str]:
        """Member -> requests in flight everywhere, as of a second ago; 0 for candidates without any. Pools in which
        Redis does not answer are left out."""
        total: Counter[str] = Counter()
        for pool, scores in self._known_scores().items():
            total.update(dict.fromkeys(self._gates[pool].candidates.serving(pool, self._mirror.table.routes), 0))
            total.update(scores)
        return total

    def scores_of(self, route: Route) -> Mapping[str, int]:
        """The same for one route's pool; empty where that is unknown."""
        return self.known_scores_of(route) or {}

    def known_scores_of(self, route: Route) -> Mapping[str, int] | None:
        """The same; None where that is unknown."""
        pool = route.settings.pool or route.path
        gate = self._gates.get(pool)
        return self._ledger.scores.get(pool) if gate is not None and gate.lane.state.ready else None

    def _known_scores(self) -> dict[str, Mapping[str, int]]:
        known = self._ledger.scores.items()
        return {pool: each for pool, each in known if pool in self._gates and self._gates[pool].lane.state.ready}

    def look_above(self) -> None:
        self._above_cap.look(self._known_scores(), self._mirror.table.counted.values())

    async def run(self) -> None:
        """Refresh the gates until cancelled."""
        looks = 0
        while True:
            await asyncio.sleep(_LOOK)
            self._refresh()
            looks += 1
            if looks % _SCORE_LOOKS == 0:
                self.look_above()
            if looks % _IDLE_LOOKS == 0:
                self.take_down()

    def _swapped(self) -> None:
        """Make gates ahead, so that lanes are connected before the first request."""
        self._above_cap.swapped(self._mirror.table)
        for route in self._mirror.table.counted.values():
            if len(self._gates) >= _MOST_AHEAD:
                break
            self.of(route)
        self._refresh()

    async def opened(self, seconds: float) -> None:
        """Wait until Redis has answered the lane of each pool, at most `seconds`."""
        lanes = [gate.lane for gate in self._gates.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(lane.state.answered.wait() for lane in lanes))

    def _refresh(self) -> None:
        for gate in self._gates.values():
            gate.refresh()

    def take_down(self) -> None:
        """Forget candidates of removed routes, and idle gates without routes."""
        named: dict[str, set[str]] = {}
        for path, route in self._mirror.table.counted.items():
            named.setdefault(route.settings.pool or path, set()).add(path)
        for pool, gate in self._gates.items():
            gate.keep_views(named.get(pool, ()))
        for pool in [pool for pool, gate in self._gates.items() if pool not in named and gate.is_idle]:
            del self._gates[pool]
            self._ledger.drop(pool)
