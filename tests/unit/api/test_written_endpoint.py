"""/written: what stands in Redis of routes, and where each member is from."""

from slb.control import keys
from slb.control.connection import Connection
from slb.control.registry import Registry
from slb.observe.metrics import Metrics
from tests.support.waiting import until
from tests.unit.api.conftest import Api, ApiMaker


async def test_what_is_written_is_shown_without_what_files_and_defaults_add(serve: ApiMaker) -> None:
    api = await serve(settings={"defaults": {"retries": 2}, "routes": {"/p1": {"first_byte_timeout": "90s"}}})
    for body in (
        {"path": "/p1", "target": "10.0.0.1", "weight": 3, "zone": "z1"},
        {"path": "/p1", "target": "https://gpu.test", "ttl": 60},
        {"path": "/p2", "target": "dns://flux.internal:8000"},
    ):
        assert (await api.call("POST", "/register", body)).status == 200
    changes = {"health_path": "none", "connect_timeout": "0.25s", "priorities": {"low": 1, "high": 8}}
    assert (await api.call("PATCH", "/routes/p1", changes)).status == 200
    await api.call("PATCH", "/upstreams/10.0.0.1:80", {"drain": True})
    assert (await api.call("GET", "/written")).json == {
        "routes": {
            "/p1": {
                "settings": {"connect_timeout": "250ms", "health_path": "none", "priorities": "high=8,low=1"},
                "faults": [],
                "members": {"10.0.0.1:80": "static", "https://gpu.test:443": "lease"},
            },
            "/p2": {"settings": {}, "faults": [], "members": {"dns://flux.internal:8000": "static"}},
        },
        "upstreams": {"10.0.0.1:80": {"weight": 3, "zone": "z1"}},
    }


async def test_what_cannot_be_used_is_no_setting_and_is_reported(api: Api) -> None:
    await api.redis.hset(keys.settings_key("/p1"), mapping={"policy": "p2c", "retries": "many", "colour": "red"})
    await api.redis.hset(keys.upstream_key("10.0.0.1:80"), mapping={"weight": "heavy", "slots": "2"})
    await api.redis.sadd(keys.route_key("/p1"), "10.0.0.1:80")
    found = await until(
        lambda: api.call("GET", "/written"),
        lambda answer: bool(answer.json["routes"].get("/p1", {}).get("members")) and answer.json["upstreams"] != {},
        what="the route is read",
    )
    route = found.json["routes"]["/p1"]
    assert route["settings"] == {"policy": "p2c"}
    assert sorted(fault.partition(" ")[0] for fault in route["faults"]) == ["colour:", "retries"]
    assert found.json["upstreams"] == {"10.0.0.1:80": {"slots": 2}}


async def test_no_answer_is_taken_for_an_empty_fleet(serve: ApiMaker) -> None:
    nowhere = Connection("redis://127.0.0.1:1/0", Metrics())
    registration = {"path": "/p", "target": "10.0.0.1"}
    assert (await (await serve()).call("POST", "/register", registration)).status == 200
    api = await serve(registry=Registry(nowhere))
    answer = await api.call("GET", "/written")
    assert (answer.status, answer.json["error"]) == (503, "redis_down")
    api.parts.mirror.ready = False
    answer = await api.call("GET", "/written")
    assert (answer.status, answer.json["error"]) == (503, "not_ready")
    await nowhere.aclose()
