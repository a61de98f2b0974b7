"""The frame of this process: what it counts, holds and finds, made in slices."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from slb.admission.gates import Gates
from slb.balance.upstream import LiveUpstream
from slb.control.instances import InstanceInfo
from slb.control.slices import Slices
from slb.fleet.counts import RouteTotal, Totals
from slb.fleet.frame import (
    HEALTH,
    MOST_POOLS,
    MOST_QUEUES,
    MOST_REASONS,
    MOST_ROUTES,
    MOST_UPSTREAMS,
    NO_ROUTE_ROW,
    NO_UPSTREAM_ROW,
    Frame,
    PoolRow,
    QueueRow,
    RouteRow,
    UpstreamRow,
)
from slb.fleet.hours import Hours
from slb.fleet.load import Load
from slb.fleet.more import More, MoreSources
from slb.fleet.rates import Rates, per_second, quantile
from slb.fleet.rows import Rows
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

_MOST_LOOKED_AT = 256
"""Upstreams of which one frame looks at all figures, in turn; of the others only whether they are out."""
_STEP = 20
"""Upstreams looked at so between two rests: some 100 us."""
_LIGHT_STEP = 500
_LONGEST_WHY = 200

_MOST_MORE = {"jobs": 32, "quota": 32, "rings": 2}
"""Entries of these sections in one frame."""

_UNCHECKED, _UP, _FAILING, _EJECTED, _DOWN = range(len(HEALTH))

_NONE: Mapping[str, Any] = {}


@dataclass
class Sources:
    """What a frame is made of. `group`: the name that the workers of one supervisor share; `gates`: None where this
    process takes no slots; `hours`: None where it takes no requests."""

    info: Callable[[], InstanceInfo]
    group: str
    mirror: Mirror
    metrics: Metrics
    more: MoreSources
    staleness: Callable[[], float] = float
    draining: Callable[[], bool] = bool
    gates: Gates | None = None
    hours: Hours | None = None


def load_at(sources: Sources, member: str) -> Load:
    """What this process has in flight at an upstream. One that its routes do not name is sent nothing."""
    live, gates, jobs = sources.mirror.upstream(member), sources.gates, sources.more.jobs
    return Load(
        inflight=(live.inflight if live is not None else 0) + (jobs.slotless(member) if jobs is not None else 0),
        held=sum(of_pool.get(member, 0) for _, of_pool in gates.held()) if gates is not None else 0,
        drains=live is None or live.spec.drain,
    )


class OwnFrames:
    """`make` gives the next frame. `clock`: seconds.

    A frame takes time in proportion to the pairs of route and upstream that have had requests (0.5 us each, to add
    up what is counted), to all upstreams (0.1 us each, to find those that are out), and to the routes with requests
    (20 us); and some 2 ms for the 256 upstreams whose figures it looks at.
    """

    def __init__(self, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self._from = sources
        self._clock = clock
        self._number = 0
        self._is_full = True
        self._of_all, self._of_routes, self._of_reasons, self._of_upstreams = Rates(), Rates(), Rates(), Rates()
        self._upstreams = Rows[UpstreamRow](MOST_UPSTREAMS, NO_UPSTREAM_ROW)
        self._routes = Rows[RouteRow](MOST_ROUTES, NO_ROUTE_ROW)
        self._more = More(sources.more, clock)
        self._rows_of_more = {name: Rows[Mapping[str, Any]](most, _NONE) for name, most in _MOST_MORE.items()}
        self._looked = 0
        self._out, self._urgent = set[str](), set[str]()
        self._busy: list[str] = []
        self._spared: list[str] = []
        self._stuck: list[str] = []
        self._first_bytes: dict[str, float] = {}
        sources.mirror.on_swap(self._forget)

    def begin_anew(self) -> None:
        """Somebody reads who has not read before, or has missed one."""
        self._is_full = True

    def forget(self) -> None:
        """Nobody reads: keep nothing."""
        for rates in (self._of_all, self._of_routes, self._of_reasons, self._of_upstreams):
            rates.clear()
        self._begin()
        self._is_full = True

    def _begin(self) -> None:
        self._upstreams.begin_anew()
        self._routes.begin_anew()
        for rows in self._rows_of_more.values():
            rows.begin_anew()

    def _forget(self, gone: Sequence[str]) -> None:
        for member in gone:
            self._of_upstreams.forget(member)
            self._upstreams.forget(member)
            self._first_bytes.pop(member, None)

    async def make(self, slices: Slices) -> Frame:
        totals = Totals()
        if self._is_full:
            self._begin()
        members = self._next_members()
        for _ in totals.add_up(self._from.metrics.traffic, members):
            await slices.rest()
        inflight = await self._look_at_all(slices, members)
        for _ in self._look_at_upstreams(members, totals):
            await slices.rest()
        for _ in self._look_at_routes(totals):
            await slices.rest()
        more = await self._more_rows(slices)
        is_full, self._is_full = self._is_full, False
        self._number += 1
        upstreams = dict(self._upstreams.take())
        return Frame(
            self._from.info().id,
            self._number,
            is_full,
            self._instance(totals.all, inflight),
            upstreams,
            dict(self._routes.take()),
            list(self._pools())[:MOST_POOLS],
            list(self._queues())[:MOST_QUEUES],
            **more,
            since=dict(self._since(upstreams)),
            first_bytes={member: self._first_bytes[member] for member in upstreams if member in self._first_bytes},
            busy=self._busy[:MOST_UPSTREAMS],
            spared=self._spared[:MOST_UPSTREAMS],
            failing=self._from.hours.failing(totals)[:MOST_UPSTREAMS] if self._from.hours is not None else (),
            stuck=self._stuck[:MOST_UPSTREAMS],
            empty_since=dict(islice(self._empty_since(), MOST_ROUTES)),
            faults_since=dict(islice(self._faults_since(), MOST_ROUTES)),
        )

    def _empty_since(self) -> Iterator[tuple[str, float]]:
        for path, route in self._from.mirror.table.routes.items():
            if since := route.empty_since:
                yield path, round(since, 3)

    def _faults_since(self) -> Iterator[tuple[str, float]]:
        for path, since in self._from.mirror.effective.faults_since.items():
            if since:
                yield path, round(since, 3)

    def _next_members(self) -> set[str]:
        """Those whose figures are looked at now: some after those of the frame before, and all that are out."""
        members = list(self._from.mirror.upstreams)
        first = self._looked if self._looked < len(members) else 0
        part = members[first : first + _MOST_LOOKED_AT]
        self._looked = first + len(part)
        return set(part)

    async def _look_at_all(self, slices: Slices, members: set[str]) -> int:
        """Add to `members` those that are out, or were; the requests in flight at all."""
        total, out = 0, set[str]()
        self._busy, self._spared, self._stuck = [], [], []
        for count, live in enumerate(list(self._from.mirror.upstreams.values())):
            total += live.inflight
            if live.down or live.spared or not live.available:
                out.add(live.member)
            if live.spared:
                self._spared.append(live.member)
            if live.is_known_stuck:
                self._stuck.append(live.member)
            if live.set_aside:
                self._busy.append(live.member)
            if count % _LIGHT_STEP == 0:
                await slices.rest()
        self._urgent = out | self._out
        self._out = out
        members |= self._urgent
        return total

    async def _more_rows(self, slices: Slices) -> dict[str, Any]:
        sections = await self._more.sections(slices)
        for name, rows in self._rows_of_more.items():
            for each, shown in sections[name].items():
                rows.offer(each, shown)
            rows.keep(sections[name])
        return {name: dict(rows.take()) for name, rows in self._rows_of_more.items()}

    def _held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for _, of_pool in self._from.gates.held() if self._from.gates is not None else ():
            held.update(of_pool)
        return held

    def _look_at_upstreams(self, members: set[str], totals: Totals) -> Iterator[None]:
        upstreams, held, now = self._from.mirror.upstreams, self._held(), self._clock()
        for count, member in enumerate(members):
            live = upstreams.get(member)
            if live is not None:
                health = _health(live)
                row = self._upstream(live, health, totals, held[member], now)
                self._upstreams.offer(member, row, member in self._urgent)
            if count % _STEP == 0:
                yield

    def _upstream(self, live: LiveUpstream, health: int, totals: Totals, held: int, now: float) -> UpstreamRow:
        why = live.why[:_LONGEST_WHY] if health >= _EJECTED else _fails_by(live) if health == _FAILING else ""
        total = totals.upstreams.get(live.member)
        if total is None:
            return health, why, live.inflight, held, 0.0, 0.0, 0.0
        (requests, errors, sent, took, waited), seconds = self._of_upstreams.grown(live.member, now, total)
        rate, error_rate = per_second(requests, seconds), per_second(errors, seconds)
        latency = round(took / sent, 6) if sent and seconds else 0.0
        if sent and seconds:
            self._first_bytes[live.member] = round(waited / sent, 6)
        return health, why, live.inflight, held, rate, error_rate, latency

    def _since(self, rows: Mapping[str, UpstreamRow]) -> Iterator[tuple[str, float]]:
        for member, row in rows.items():
            live = self._from.mirror.upstream(member)
            if live is None:
                continue
            is_out = row[0] >= _EJECTED or (live.on_probation and not live.proven)
            if at := live.since if is_out else live.spared and live.spared_since:
                yield member, round(at, 3)

    def _look_at_routes(self, totals: Totals) -> Iterator[None]:
        now, panicking, routes = self._clock(), self._from.metrics.health.panicking, totals.routes
        for path, total in routes.items():
            if path:
                self._routes.offer(path, self._route(path, total, path in panicking, now), path in panicking)
            yield
        for path in panicking - routes.keys():
            self._routes.offer(path, (True, *NO_ROUTE_ROW[1:]), is_urgent=True)
        self._routes.keep(routes.keys() | panicking)
        self._of_routes.keep(routes)
        self._of_reasons.keep((path, name) for path, total in routes.items() for name in total.reasons)

    def _route(self, path: str, total: RouteTotal, panic: bool, now: float) -> RouteRow:
        counts = (total.requests, total.errors, *total.times)
        (requests, errors, *times), seconds = self._of_routes.grown(path, now, counts)
        reasons: dict[str, float] = {}
        for name, count in list(total.reasons.items())[:MOST_REASONS]:
            (grown,), over = self._of_reasons.grown((path, name), now, (count,))
            if rate := per_second(grown, over):
                reasons[name] = rate
        return (
            panic,
            per_second(requests, seconds),
            per_second(errors, seconds),
            tuple(round(each / seconds, 3) if each else 0 for each in times) if any(times) and seconds else (),
            reasons,
        )

    def _instance(self, total: RouteTotal, inflight: int) -> dict[str, Any]:
        it, metrics = self._from, self._from.metrics
        info = it.info()
        counts = (total.requests, total.errors, *total.times)
        (requests, errors, *times), seconds = self._of_all.grown("", self._clock(), counts)
        up = metrics.redis.answers
        return {
            "name": info.name,
            "version": info.version,
            "roles": info.role_names,
            "host": info.host,
            "pid": os.getpid(),
            "address": info.address,
            "api": info.api,
            "zone": info.zone,
            "started": info.started_at,
            "draining": it.draining(),
            "rate": per_second(requests, seconds),
            "inflight": inflight,
            "p50": quantile(times, 0.5) if seconds else None,
            "p99": quantile(times, 0.99) if seconds else None,
            "error_rate": per_second(errors, seconds),
            "connections": metrics.clients.connections(),
            "redis_up": up,
            "redis_mode": "fail_open" if not up else "polling" if metrics.redis.polling else "sync",
            "staleness": round(it.staleness(), 3) if it.staleness() < 1e9 else None,
            "group": it.group,
            "now": round(time.time(), 3),
            "polling_since": metrics.redis.polling_since,
        }

    def _pools(self) -> Iterator[PoolRow]:
        for name, pool in self._from.gates.shown()["pools"].items() if self._from.gates is not None else ():
            holders, queued = pool["holders"], pool["queued"]
            yield PoolRow(
                name,
                pool["mode"],
                pool["error"][:_LONGEST_WHY],
                -1 if holders is None else holders,
                -1 if queued is None else queued,
                sum(pool["held"].values()),
            )

    def _queues(self) -> Iterator[QueueRow]:
        if self._from.gates is not None:
            for pool, route, priority, depth, oldest in self._from.gates.queued():
                yield QueueRow(pool, route, priority, depth, oldest)


def _health(live: LiveUpstream) -> int:
    """As any route sees it: checks belong to routes, and all that name it show the worst."""
    if live.down:
        return _DOWN
    if not live.available:
        return _EJECTED
    if live.failures or live.spared:
        return _FAILING
    return _UP if live.answered_at or live.passing else _UNCHECKED


def _fails_by(live: LiveUpstream) -> str:
    """Why it is watched, though it is used."""
    if live.spared:
        return live.spared[:_LONGEST_WHY]
    if live.on_probation:
        return f"tried again after: {live.why.partition('; out for ')[0]}"[:_LONGEST_WHY]
    return "its last request failed" if live.failures == 1 else f"{live.failures} failures in a row"
