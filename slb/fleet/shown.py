"""Makes the state of what all processes have shown and of this process's own mirror, in steps."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slb.balance.upstream import LiveUpstream
from slb.control.instances import InstanceInfo, Instances
from slb.control.scores import Scores
from slb.fleet import merged
from slb.fleet.alerts import Alerts
from slb.fleet.collected import Collected
from slb.fleet.frame import QueueRow
from slb.fleet.hours import Failures
from slb.fleet.state import State
from slb.routing.mirror import Mirror
from slb.routing.table import Route, Table

MOST_UPSTREAMS = 5000
MOST_ROUTES = 500
"""That are shown, those of the first routes by name. `left_out` counts the others."""
_STEP = 20

Described = Mapping[str, Any]
Describe = Callable[[str], Described]
"""What does not change with traffic of a route: `settings`, `sources`, `faults`."""

_NO_PROCESS = {
    "draining": False,
    "rate": None,
    "inflight": None,
    "p50": None,
    "p99": None,
    "error_rate": None,
    "connections": None,
    "redis_up": None,
    "redis_mode": "",
    "staleness": None,
    "polling_since": None,
}


class Shown:
    """`update` brings `state` up to date. What it costs grows with the upstreams and routes of which a row came
    since the last time, times the processes that have rows of these; with the processes; and, after a change of
    the table, once with all that it shows."""

    def __init__(
        self,
        mirror: Mirror,
        collected: Collected,
        instances: Instances,
        describe: Describe,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = State()
        self.left_out = {"routes": 0, "upstreams": 0}
        self._describe = describe
        self._mirror = mirror
        self._collected = collected
        self._instances = instances
        self._clock = clock
        self._alerts = Alerts()
        self._table: Table | None = None
        self._described: dict[str, tuple[Route, Described]] = {}
        self._routes_of: dict[str, list[Route]] = {}
        self._pools: set[str] = set()
        self._fading: set[str] = set()
        self._scores: Mapping[str, Scores] = {}
        self._names: Mapping[str, str] = {}

    def pools_in_use(self) -> list[str]:
        """Those of which slots are held, and in which Redis decides, by what all have shown."""
        rows = [row for _, each in self._collected.living(self._clock()) for row in each.frame.pools]
        unsure = {row.name for row in rows if row.mode in merged.UNSURE}
        return sorted({row.name for row in rows if row.held > 0 and row.name in self._pools} - unsure)

    def update(self, alone_because: str = "", scores: Mapping[str, Scores] = {}) -> Iterator[None]:
        """In steps, each well under a millisecond. `alone_because`: why nothing is heard of others. `scores`: what
        Redis has of pools, where it was asked: in place of what frames of different moments add up to."""
        now, collected = self._clock(), self._collected
        yield from self._take_scores(scores)
        collected.leave_out(now, {each.id for each in self._instances.known})
        if self._table is not self._mirror.table:
            yield from self._follow_table()
        yield
        if (names := collected.names()) != self._names:
            self._names = names
            collected.touched_upstreams.update(collected.upstreams)
        yield from self._update_upstreams(now)
        yield from self._update_routes()
        yield from self._update_pools(now)
        yield
        self.state.replace("instances", dict(self._of_instances(now)))
        yield
        for section in ("jobs", "quota", "rings"):
            self.state.replace(section, self._first_with(section, now))
            yield
        self.state.replace("alerts", self._alerts_now(alone_because))

    def _take_scores(self, scores: Mapping[str, Scores]) -> Iterator[None]:
        before, self._scores = self._scores, scores
        touched = self._collected.touched_upstreams
        for pool in before.keys() & scores.keys():
            old, new = before[pool], scores[pool]
            touched.update(member for member in old.keys() | new.keys() if old.get(member) != new.get(member))
            yield
        for path, (route, _) in self._described.items() if before.keys() ^ scores.keys() else ():
            pool = route.settings.pool or path
            if (pool in before) is not (pool in scores):
                touched.update(live.member for live in route.members)
                yield

    def wants_failures(self, wall: float) -> Sequence[str]:
        """The routes and upstreams in trouble of which processes are to be asked what has failed; `wall`: seconds
        since 1970."""
        names = {name for _, process in self._collected.living(self._clock()) for name in process.failing}
        routes, upstreams = self.state.objects["routes"], self.state.objects["upstreams"]
        names.update(path for path, each in routes.items() if each["error_rate"])
        names.update(key for key, each in upstreams.items() if each["since"] or each["spared"])
        return self._alerts.history.wanted(names, wall)

    def take_failures(
        self, names: Sequence[str], told: Mapping[str, Mapping[str, Failures]], wall: float
    ) -> Iterator[None]:
        """What processes have told of these, by process; in steps."""
        return self._alerts.history.take(names, told, wall)

    def _alerts_now(self, alone_because: str) -> Mapping[str, Any]:
        return self._alerts.of(self.state.objects, time.time(), alone_because, self._collected.silent_after)

    # -- the table

    def _follow_table(self) -> Iterator[None]:
        table = self._table = self._mirror.table
        self._routes_of = {}
        self._pools = {route.settings.pool or path for path, route in table.routes.items()}
        yield
        shown: dict[str, Route] = {}
        for path in sorted(table.routes)[:MOST_ROUTES]:
            route = shown[path] = table.routes[path]
            for live in route.members:
                if live.member in self._routes_of or len(self._routes_of) < MOST_UPSTREAMS:
                    self._routes_of.setdefault(live.member, []).append(route)
            yield
        self.left_out = {
            "routes": len(table.routes) - len(shown),
            "upstreams": max(0, len(self._mirror.upstreams) - len(self._routes_of)),
        }
        self._collected.forget(self._mirror.upstreams, table.routes)
        for path in [path for path in self._described if path not in shown]:
            del self._described[path]
            self.state.drop("routes", path)
        for member in [each for each in self.state.objects["upstreams"] if each not in self._routes_of]:
            self.state.drop("upstreams", member)
        yield
        for path, route in shown.items():
            if self._described.get(path, (None,))[0] is not route:
                self._described[path] = route, self._describe(path)
            yield
        self._fading = {member for member, routes in self._routes_of.items() if any(map(_fades, routes))}
        self._collected.touched_upstreams.update(self._routes_of)

    # -- the sections

    def _update_upstreams(self, now: float) -> Iterator[None]:
        touched, self._collected.touched_upstreams = self._collected.touched_upstreams | self._fading, set()
        for count, member in enumerate(touched):
            live, routes = self._mirror.upstream(member), self._routes_of.get(member)
            if live is not None and routes:
                self.state.put("upstreams", member, self._upstream(live, routes, now))
            if count % _STEP == 0:
                yield

    def _upstream(self, live: LiveUpstream, routes: list[Route], now: float) -> dict[str, Any]:
        spec, member = live.spec, live.member
        fading = _share(live, routes, now)
        if fading is None:
            self._fading.discard(member)
        caps = {route.settings.pool or route.path: route.settings.max_inflight for route in routes}
        shown = merged.upstream(
            self._collected.upstreams.get(member, {}),
            self._names,
            self._collected.since(member),
            self._collected.first_bytes(member),
            self._collected.is_busy(member),
            self._collected.spared_by(member),
            self._collected.stuck_for(member),
        )
        if all(pool in self._scores for pool in caps) and all(route.is_counted for route in routes):
            shown["inflight"] = sum(self._scores[pool].get(member, 0) for pool in caps)
        return {
            "routes": [route.path for route in routes],
            "weight": spec.weight,
            "slots": spec.slots,
            "capacity": sum(caps.values()) * spec.slots,
            "zone": spec.zone,
            "node": spec.node,
            "drain": spec.drain,
            "joined": spec.joined,
            "fading": fading,
            **shown,
        }

    def _update_routes(self) -> Iterator[None]:
        upstreams = self.state.objects["upstreams"]
        self._collected.touched_routes.clear()
        for path, (route, described) in list(self._described.items()):
            members = [live.member for live in route.members]
            self.state.put(
                "routes",
                path,
                {
                    "policy": route.settings.policy,
                    "pool": route.settings.pool or path,
                    **described,
                    "members": members,
                    "names": route.names,
                    "empty_since": None if members else self._collected.empty_since(path),
                    "faults_since": self._collected.faults_since(path) if described.get("faults") else None,
                    "inflight": sum(upstreams[each]["inflight"] for each in members if each in upstreams),
                    **merged.route(self._collected.routes.get(path, {}).values()),
                },
            )
            yield

    def _update_pools(self, now: float) -> Iterator[None]:
        frames = [process.frame for _, process in self._collected.living(now)]
        pools = merged.pools(row for frame in frames for row in frame.pools if row.name in self._pools)
        yield
        upstreams, routes = self.state.objects["upstreams"], self.state.objects["routes"]
        served: dict[str, float] = {}
        for path, (route, _) in self._described.items():
            name = route.settings.pool or path
            served[name] = served.get(name, 0.0) + routes[path]["rate"]
            pool = pools.get(name)
            if pool is not None and name in self._scores:
                pool["inflight"] = sum(self._scores[name].values())
            if pool is not None and "routes" not in pool:
                pool["capacity"] = _capacity(route, upstreams)
            if pool is not None:
                pool.setdefault("routes", []).append(path)
            yield
        self.state.replace("pools", pools)
        yield
        queues = (row for frame in frames for row in frame.queues if self._is_known(row))
        self.state.replace("queues", merged.queues(queues, served))

    def _is_known(self, row: QueueRow) -> bool:
        """Of what the table lacks, any program could make up any number."""
        return row.pool in self._pools and self._table is not None and row.route in self._table.routes

    def _of_instances(self, now: float) -> Iterator[tuple[str, dict[str, Any]]]:
        processes = self._collected.processes
        for id_, process in processes.items():
            silent, off = round(now - process.at), round(process.clock_off)
            shown = {**process.frame.instance, "silent_for": silent, "clock_off": off}
            if since := shown.get("polling_since"):
                shown["polling_since"] = process.by_our_clock(since)
            yield id_, shown
        for info in self._instances.known:
            if info.id not in processes:
                yield info.id, _unheard(info)

    def _first_with(self, section: str, now: float) -> Mapping[str, Any]:
        """All that tell of it tell the same; the one with the lowest id, so that two do not take turns."""
        found = {id_: process.more[section] for id_, process in self._collected.living(now)}
        return next((found[id_] for id_ in sorted(found) if found[id_]), {})


def _unheard(info: InstanceInfo) -> dict[str, Any]:
    """Of one that beats, and has not shown anything yet, or is of a version that does not."""
    return {
        "name": info.name,
        "version": info.version,
        "roles": info.role_names,
        "host": info.host,
        "pid": info.process_id,
        "address": info.address,
        "api": info.api,
        "zone": info.zone,
        "started": info.started_at,
        "group": info.name.rpartition("/")[0] or info.name,
        **_NO_PROCESS,
        "silent_for": None,
    }


def _fades(route: Route) -> bool:
    return route.settings.fade_in > 0


def _share(live: LiveUpstream, routes: list[Route], now: float) -> float | None:
    """How far it has faded in, in the route that takes the longest; None once it has."""
    window = max(route.settings.fade_in for route in routes)
    passed = now - live.seen
    return round(max(0.0, passed) / window, 2) if passed < window else None


def _capacity(route: Route, upstreams: Mapping[str, Mapping[str, Any]]) -> int:
    """Slots of the upstreams that take requests now; 0 for any number."""
    shown = [upstreams[each.member] for each in route.members if each.member in upstreams]
    usable = [each for each in shown if not each["drain"] and each["health"] not in ("down", "ejected")]
    return route.settings.max_inflight * sum(int(each["slots"]) for each in usable)
