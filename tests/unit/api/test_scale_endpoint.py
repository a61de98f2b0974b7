"""/scale/<path>: what an autoscaler is told, and what is refused since it is not known."""

from collections.abc import Collection
from typing import Any

import pytest

from slb.admission.shown import LedgerShown, Mode, PoolShown
from slb.api.scale import Room, scale_shown, waiting_jobs
from slb.control.demand import Demand
from slb.job import ModelConfig, ModelStats
from slb.observe.metrics import Metrics
from slb.routing.table import Route
from tests.unit.api.conftest import Api, ApiMaker

CAPPED = {"policy": "least_inflight", "max_inflight": 2, "when_full": "queue"}


async def capped(api: Api, path: str = "/p1", **settings: Any) -> None:
    """A route with a cap and three upstreams: one of two slots, one that drains, one more."""
    assert (await api.call("PATCH", f"/routes{path}", {**CAPPED, **settings})).status == 200
    for number, slots in (("1", 2), ("2", 1), ("3", 1)):
        body = {"path": path, "target": f"10.0.0.{number}:80", "slots": slots}
        assert (await api.call("POST", "/register", body)).status == 200
    assert (await api.call("PATCH", "/upstreams/10.0.0.3:80", {"drain": True})).status == 200


async def asked(api: Api, pool: str = "/p1") -> None:
    """What the ledger would hold of six requests, two of which wait, and of a job that waits."""
    await api.redis.zadd(f"slb:{{{pool}}}:inflight", {"10.0.0.1:80": 3, "10.0.0.3:80": 1})
    await api.redis.hset(f"slb:{{{pool}}}:queue:tickets", mapping={"i/1": "[]", "i/2": "[]", "i/3": "[]"})
    await api.redis.zadd(f"slb:{{{pool}}}:queue:class:jobs", {"i/3": 3})


async def test_the_figures_are_those_of_the_ledger_and_of_what_takes_requests(api: Api) -> None:
    await capped(api)
    await asked(api)
    assert (await api.call("GET", "/scale/p1")).json == {
        "path": "/p1",
        "pool": "/p1",
        "queued": 2,
        "jobs": None,
        "in_flight": 4,
        "demand": 7,
        "upstreams": 2,
        "slots": 6,
        "load": 1.1667,
    }


async def test_routes_of_one_pool_have_the_same_figures(api: Api) -> None:
    await capped(api, "/p1", pool="/gpus")
    await capped(api, "/p2", pool="/gpus", max_inflight=3)
    await asked(api, "/gpus")
    first, second = [(await api.call("GET", f"/scale/{path}")).json for path in ("p1", "p2")]
    assert first == {**second, "path": "/p1"}
    assert (first["pool"], first["slots"], first["upstreams"]) == ("/gpus", 9, 2)


async def test_without_a_cap_the_slots_are_those_of_the_upstreams(api: Api) -> None:
    await capped(api, max_inflight=0, when_full="shed")
    assert (await api.call("GET", "/scale/p1")).json["slots"] == 3


async def test_a_route_that_is_not_there_or_needs_no_slots_is_refused(api: Api) -> None:
    assert (await api.call("POST", "/register", {"path": "/p1", "target": "10.0.0.1:80"})).status == 200
    for path, status, reason in (("nowhere", 404, "no_route"), ("p1", 409, "not_counted")):
        answer = await api.call("GET", f"/scale/{path}")
        assert (answer.status, answer.json["error"]) == (status, reason)


@pytest.mark.parametrize("mode", ["settling", "local"])
async def test_nothing_is_told_while_redis_may_lack_what_is_held(serve: ApiMaker, mode: Mode) -> None:
    pool = PoolShown(mode=mode, error="", holders=None, queued=None, held={}, waiting={}, scores=None)
    api = await serve(ledger=lambda: LedgerShown(pools={"/p1": pool}))
    await capped(api)
    answer = await api.call("GET", "/scale/p1")
    assert (answer.status, answer.json["error"]) == (503, "redis_down")


async def test_where_the_ledgers_key_is_damaged_the_answer_is_refused(api: Api) -> None:
    await capped(api)
    await api.redis.set("slb:{/p1}:inflight", "damaged")
    answer = await api.call("GET", "/scale/p1")
    assert (answer.status, answer.json["error"]) == (503, "redis_down")


def stats(**counts: int) -> ModelStats:
    none = dict.fromkeys(("buffered", "queued", "retrying", "processing", "callbacks", "dead", "ended"), 0)
    return ModelStats(**{**none, **counts}, oldest="", since=0.0, counts={})


async def test_jobs_that_wait_count_for_the_route_of_their_model(serve: ApiMaker) -> None:
    metrics, jobs = Metrics(), _Jobs()
    metrics.jobs.models = {"flux": stats(queued=5, retrying=2, processing=3, dead=9), "other": stats(queued=70)}
    api = await serve(metrics=metrics, jobs=jobs)
    await capped(api, "/jobs/flux")
    await asked(api, "/jobs/flux")
    shown = (await api.call("GET", "/scale/jobs/flux")).json
    assert (shown["queued"], shown["jobs"], shown["in_flight"], shown["demand"]) == (2, 7, 4, 13)


async def test_a_model_that_never_had_a_gpu_has_no_slots_and_its_jobs_are_asked_for(serve: ApiMaker) -> None:
    metrics, jobs = Metrics(), _Jobs()
    metrics.jobs.models = {"flux": stats(queued=5), "other": stats(queued=70)}
    jobs.models["set"] = ModelConfig()
    api = await serve(metrics=metrics, jobs=jobs)
    shown = (await api.call("GET", "/scale/jobs/flux")).json
    assert (shown["jobs"], shown["demand"], shown["upstreams"], shown["slots"], shown["load"]) == (5, 5, 0, 0, 5.0)
    assert (await api.call("GET", "/scale/jobs/set")).json["demand"] == 0
    assert (await api.call("GET", "/scale/jobs/nobody")).status == 404


class _Jobs:
    def __init__(self) -> None:
        self.models: dict[str, ModelConfig] = {}

    def check_room(self, models: Collection[str]) -> None:
        """There is room."""


def test_jobs_of_a_paused_model_do_not_count() -> None:
    class _Route(Route):
        def __init__(self) -> None:
            self.path = "/jobs/flux"

    seen = {"flux": stats(queued=5)}
    assert waiting_jobs([_Route()], seen, {}) == 5
    assert waiting_jobs([_Route()], seen, {"flux": ModelConfig(paused=True)}) == 0


def test_jobs_that_have_a_ticket_are_counted_once() -> None:
    def demand(jobs: int | None, of_jobs: int) -> int:
        return scale_shown("/p", "/p", Demand(1, 4 + of_jobs, of_jobs), jobs, Room(1, 1))["demand"]

    assert demand(jobs=10, of_jobs=3) == 15
    assert demand(jobs=2, of_jobs=3) == 8
    assert demand(jobs=None, of_jobs=3) == 8


def test_without_upstreams_the_load_is_what_is_asked_for() -> None:
    assert scale_shown("/p", "/p", Demand(0, 0, 0), 9, Room(0, 0))["load"] == 9
    assert scale_shown("/p", "/p", Demand(0, 0, 0), 0, Room(0, 0))["load"] == 0
