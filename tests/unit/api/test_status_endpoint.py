"""Health, readiness, status, instances, metrics."""

import os
from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter

from slb.api.application import make_data_api
from slb.api.parts import ApiParts
from slb.api.shapes import InstancesShown, Status
from slb.build import build
from slb.control import keys
from slb.control.connection import Connection
from slb.control.instances import InstanceInfo, Instances
from slb.observe.metrics import Metrics
from tests.support.waiting import until_found
from tests.unit.api.conftest import Answer, Api, ApiMaker


async def test_a_process_that_runs_is_healthy(api: Api, data_api: Api) -> None:
    for asked, path in ((api, "/healthz"), (data_api, "/_slb/healthz")):
        answer = await asked.call("GET", path)
        assert (answer.status, answer.json) == (200, {"status": "ok"})
        assert (await asked.call("HEAD", path)).status == 200


async def test_ready_is_an_instance_that_has_a_table(serve: ApiMaker) -> None:
    api = await serve()
    assert (await api.call("GET", "/readyz")).json == {"status": "ready"}
    api.parts.mirror.ready = False
    answer = await api.call("GET", "/readyz")
    assert (answer.status, answer.json["error"], answer.headers["Retry-After"]) == (503, "not_ready", "1")
    assert (await api.call("GET", "/healthz")).status == 200


async def test_a_supervisor_without_a_worker_that_serves_is_not_ready_and_does_not_drain(serve: ApiMaker) -> None:
    api = await serve(serving=lambda: False)
    answer = await api.call("GET", "/readyz")
    assert (answer.status, answer.json["error"], answer.json["detail"]) == (
        503,
        "not_ready",
        "traffic is not listened for here",
    )
    assert (await api.call("GET", "/status")).json["draining"] is False


@pytest.mark.parametrize("path", ["/readyz", "/_slb/readyz"])
async def test_an_instance_that_drains_is_not_ready(serve: ApiMaker, path: str) -> None:
    options = {"make": make_data_api} if path.startswith("/_slb") else {}
    api = await serve(**options, draining=lambda: True)
    answer = await api.call("GET", path)
    assert (answer.status, answer.json["error"]) == (503, "draining")


async def test_readiness_does_not_flip_when_redis_is_lost(api: Api) -> None:
    api.connection.mark_down("gone")
    assert (await api.call("GET", "/readyz")).status == 200


async def test_status_shows_the_process_its_redis_and_its_traffic(serve: ApiMaker) -> None:
    api = await serve(status_extra=lambda: {"workers": [{"pid": 7}]})
    await api.call("POST", "/register", {"path": "/p1", "target": "10.0.0.1"})
    for route, outcome in [("/p1", (200, ""))] * 5 + [("", (404, "no_route"))] * 2:
        api.metrics.traffic.refused(route, outcome)
    api.metrics.retries["upstream_connect"] += 1
    status = (await api.call("GET", "/status")).json
    assert status.pop("workers") == [{"pid": 7}]
    TypeAdapter(Status).validate_python(status, strict=True, extra="forbid")
    assert (status["version"], status["pid"], status["id"]) == (build(), os.getpid(), "id-1")
    assert status["uptime_seconds"] >= 0
    assert status["mirror"] == {"ready": True, "routes": 1, "upstreams": 1, "skipped": {}, "faults": {}}
    assert status["traffic"]["requests"] == 7
    assert status["traffic"]["by_code"] == {"200": 5, "404": 2}
    assert status["traffic"]["by_reason"] == {"no_route": 2}
    assert sum(status["traffic"]["by_route"].values()) == status["traffic"]["requests"]
    assert status["traffic"]["retries"] == 1


async def test_the_mode_of_redis_has_a_name(api: Api) -> None:
    async def mode() -> str:
        return str((await api.call("GET", "/status")).json["redis"]["mode"])

    api.connection.mark_up()
    assert await mode() == "sync"

    async def polls() -> bool:
        api.metrics.redis.polling = True  # the watcher takes it back at its first sync
        return await mode() == "polling"

    assert await until_found(polls)
    api.connection.mark_down("gone")
    assert await mode() == "fail_open"


async def test_the_password_of_redis_is_not_shown(serve: ApiMaker) -> None:
    secret = Connection("redis://user:hush@127.0.0.1:1/0", Metrics())
    api = await serve(connection=secret)
    answer = await api.call("GET", "/status")
    assert b"hush" not in answer.body
    assert answer.json["redis"]["url"].endswith("@127.0.0.1:1/0")
    await secret.aclose()


async def test_instances_are_those_that_beat(api: Api, connection: Connection) -> None:
    info = InstanceInfo(
        "id-2", "two", "10.0.0.2:8080", "10.0.0.2:8081", "0.1.0", "proxy", "1730000000.5", "42", "there"
    )
    await Instances(connection, info).beat()
    answer = (await api.call("GET", "/instances")).json
    TypeAdapter(InstancesShown).validate_python(answer, strict=True)
    assert answer["stale"] is False
    assert [each["id"] for each in answer["instances"]] == ["id-1", "id-2"]
    assert answer["instances"][1] == {
        "id": "id-2",
        "name": "two",
        "address": "10.0.0.2:8080",
        "api": "10.0.0.2:8081",
        "version": "0.1.0",
        "roles": ["proxy"],
        "started": 1730000000.5,
        "pid": 42,
        "host": "there",
    }


async def test_an_instance_written_by_hand_breaks_nothing(api: Api) -> None:
    await api.redis.hset(keys.INSTANCE + "odd", mapping={"pid": "x", "started": "nan", b"name": b"\xff"})
    await api.redis.zadd(keys.INSTANCES, {"odd": 1e15})
    answer = await api.call("GET", "/instances")
    assert answer.status == 200
    (odd,) = [each for each in answer.json["instances"] if each["id"] == "odd"]
    assert (odd["pid"], odd["started"]) == (0, 0.0)
    assert (await api.call("POST", "/register", {"path": "/p1", "target": "10.0.0.1"})).status == 200


async def test_without_redis_the_last_instances_known_are_shown_as_stale(serve: ApiMaker, parts: ApiParts) -> None:
    class Fading:
        """Instances whose Redis goes away."""

        def __init__(self, real: Instances, gone: Instances) -> None:
            self.now = real
            self.gone = gone
            self.info, self.count = real.info, 1
            self.known: Sequence[InstanceInfo] = ()

        async def list(self) -> Sequence[InstanceInfo]:
            self.known = await self.now.list()
            return self.known

    nowhere = Connection("redis://127.0.0.1:1/0", Metrics())
    assert isinstance(parts.instances, Instances)
    fading = Fading(parts.instances, Instances(nowhere, parts.instances.info))
    api = await serve(instances=fading)
    before = (await api.call("GET", "/instances")).json
    fading.now = fading.gone
    after = (await api.call("GET", "/instances")).json
    assert after == {**before, "stale": True}
    await nowhere.aclose()


async def test_metrics_are_prometheus_text(api: Api) -> None:
    answer: Answer = await api.call("GET", "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.body == b"slb_redis_up 1.0\n"
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"}
    answer = await api.call("GET", "/metrics", headers=accept)
    assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
