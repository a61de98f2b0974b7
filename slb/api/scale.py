"""/scale/<path>: what an autoscaler asks, in numbers of the whole fleet."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiohttp import web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Jobs
from slb.api.replies import json_reply
from slb.api.routes import route_path
from slb.api.shapes import ScaleShown
from slb.control.demand import Demand, Demands
from slb.errors import BAD_REQUEST, NO_ROUTE, NOT_COUNTED, REDIS_DOWN, Refused
from slb.job import ModelConfig, ModelStats, model_of, route_of
from slb.routing.table import Route
from slb.tokens import Right

_PREFIX = "/scale"
_UNSURE = ("settling", "local")


class Room(NamedTuple):
    """`upstreams` that take requests now, and their `slots` together."""

    upstreams: int
    slots: int


class ScaleEndpoint:
    """Where a figure is not known it is refused: an autoscaler then leaves everything as it is."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._demands = Demands(parts.connection)

    def endpoints(self) -> list[Endpoint]:
        refused = (BAD_REQUEST, NO_ROUTE, NOT_COUNTED, REDIS_DOWN)
        rights: tuple[Right, ...] = ("read", "metrics")
        return [Endpoint("GET", f"{_PREFIX}/{{path}}", self.show, ScaleShown, None, refused, rights)]

    async def show(self, request: web.Request) -> web.Response:
        """How much is asked of a route's pool, beside what it can do; for autoscalers.

        Of all instances together, and of all routes that share the pool; only where requests need slots
        (docs/scaling.md#what-it-answers).
        """
        path = route_path(request, _PREFIX)
        route = self._parts.mirror.table.routes.get(path)
        if route is None:
            return json_reply(scale_shown(path, path, Demand(0, 0, 0), await self._jobs_alone(path), Room(0, 0)))
        if not route.is_counted:
            raise Refused(NOT_COUNTED, f"{path} needs no slots: set max_inflight, or policy=least_inflight")
        pool = route.settings.pool or path
        self._refuse_unsure(pool)
        routes = _sharing(pool, self._parts.mirror.table.counted.values())
        demand, jobs = await self._demands.of(pool), await self._waiting_jobs(routes)
        return json_reply(scale_shown(path, pool, demand, jobs, room_of(routes)))

    def _refuse_unsure(self, pool: str) -> None:
        known = self._parts.ledger()["pools"].get(pool)
        if known is not None and known["mode"] in _UNSURE:
            raise Refused(REDIS_DOWN, f"Redis may lack what instances hold of {pool}: {known['mode']}")

    async def _waiting_jobs(self, routes: Iterable[Route]) -> int | None:
        """Of the models whose GPUs are upstreams of these; None where this instance is told nothing of jobs."""
        jobs = self._parts.jobs
        return None if jobs is None else waiting_jobs(routes, await self._stats(jobs), jobs.models)

    async def _jobs_alone(self, path: str) -> int:
        """Of a model that has no GPU, and so no route. Raises Refused where there is no such model."""
        jobs, model = self._parts.jobs, model_of(path)
        if jobs is not None and model is not None:
            stats = await self._stats(jobs)
            if model in jobs.models or model in stats:
                return _waiting(stats, jobs.models, model)
        raise Refused(NO_ROUTE, f"there is no route {path}")

    async def _stats(self, jobs: Jobs) -> Mapping[str, ModelStats]:
        """As of a second ago, since reading them takes a command for each model; a new process reads them."""
        if self._parts.metrics.jobs.models:
            return self._parts.metrics.jobs.models
        await jobs.look()
        return await jobs.stats()


def _sharing(pool: str, routes: Iterable[Route]) -> list[Route]:
    return [route for route in routes if (route.settings.pool or route.path) == pool]


def room_of(routes: Iterable[Route]) -> Room:
    """Of one pool. A member of several routes counts once, with the highest cap; without a cap, with the slots that
    it is registered with."""
    slots: dict[str, int] = {}
    for route in routes:
        for each in route.serving:
            capacity = (route.settings.max_inflight or 1) * each.spec.slots
            slots[each.member] = max(capacity, slots.get(each.member, 0))
    return Room(len(slots), sum(slots.values()))


def waiting_jobs(
    routes: Iterable[Route], stats: Mapping[str, ModelStats], configs: Mapping[str, ModelConfig]
) -> int:
    """Jobs that wait to be begun at these routes, of models that are not paused."""
    paths = {route.path for route in routes}
    return sum(_waiting(stats, configs, model) for model in stats if route_of(model) in paths)


def _waiting(stats: Mapping[str, ModelStats], configs: Mapping[str, ModelConfig], model: str) -> int:
    if model not in stats or (model in configs and configs[model].paused):
        return 0
    each = stats[model]
    return each.buffered + each.queued + each.retrying


def scale_shown(path: str, pool: str, demand: Demand, jobs: int | None, room: Room) -> ScaleShown:
    """A few of the jobs that wait have tickets in the queue for slots: these are counted once."""
    waiting = demand.tickets - demand.of_jobs + max(jobs or 0, demand.of_jobs)
    asked = waiting + demand.in_flight
    return ScaleShown(
        path=path,
        pool=pool,
        queued=demand.tickets - demand.of_jobs,
        jobs=jobs,
        in_flight=demand.in_flight,
        demand=asked,
        upstreams=room.upstreams,
        slots=room.slots,
        load=round(asked / max(1, room.slots), 4),
    )
