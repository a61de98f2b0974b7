"""/upstreams/<member>: drained, weighed, shown."""

import time
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from slb.api.shapes import UpstreamShown
from slb.api.show_route import show_attributes
from slb.api.silent import agreed, silence
from slb.api.upstreams import UpstreamsEndpoint
from slb.balance.upstream import LiveUpstream
from slb.control.connection import Connection
from slb.control.registry import Registry
from slb.model import HealthCheck, Upstream
from slb.observe.metrics import Metrics
from tests.unit.api.conftest import Answer, Api, ApiMaker

MEMBER = "10.0.0.1:80"


@pytest.fixture
async def registered(api: Api) -> Api:
    """With one upstream that two routes name."""
    for path in ("/p2", "/p1"):
        await api.call("POST", "/register", {"path": path, "target": MEMBER, "weight": 3})
    return api


def serving(api: Api, path: str = "/p1") -> list[str]:
    return [live.member for live in api.parts.mirror.table.routes[path].serving]


async def test_a_drained_upstream_is_sent_nothing_by_any_route_until_that_is_taken_back(registered: Api) -> None:
    await registered.call("POST", "/register", {"path": "/p1", "target": "10.0.0.2:80"})
    answer = await registered.call("PATCH", f"/upstreams/{MEMBER}", {"drain": True})
    assert (answer.status, answer.json["drain"], answer.json["weight"]) == (200, True, 3)
    assert answer.json["routes"] == ["/p1", "/p2"]
    assert serving(registered) == ["10.0.0.2:80"]
    assert serving(registered, "/p2") == []
    assert (await registered.stored())[f"slb:upstream:{MEMBER}"]["drain"] == "true"
    answer = await registered.call("PATCH", f"/upstreams/{MEMBER}", {"drain": False})
    assert answer.json["drain"] is False
    assert serving(registered) == [MEMBER, "10.0.0.2:80"]
    assert "drain" not in (await registered.stored())[f"slb:upstream:{MEMBER}"]


async def test_the_routes_in_which_no_other_upstream_takes_requests_are_named(registered: Api) -> None:
    async def last_of(query: str = "") -> list[Any]:
        found: list[Any] = (await registered.call("GET", f"/upstreams/{MEMBER}{query}")).json["last_of"]
        return found

    assert await last_of() == [{"path": "/p1", "others": 0}, {"path": "/p2", "others": 0}]
    for other in ("10.0.0.2:80", "10.0.0.3:80"):
        await registered.call("POST", "/register", {"path": "/p1", "target": other})
    assert await last_of() == [{"path": "/p2", "others": 0}]
    assert await last_of("?besides=10.0.0.2:80,10.0.0.3") == await last_of("?besides=10.0.0.3:80,10.0.0.2")
    assert await last_of("?besides=10.0.0.2,10.0.0.3") == [
        {"path": "/p1", "others": 0},
        {"path": "/p2", "others": 0},
    ]
    await registered.call("PATCH", "/upstreams/10.0.0.2:80", {"drain": True})
    sick = registered.parts.mirror.upstreams["10.0.0.3:80"]
    sick.on_probation = True
    assert [each["path"] for each in await last_of()] == ["/p1", "/p2"]
    sick.on_probation = False
    sick.failures = 1
    assert [each["path"] for each in await last_of()] == ["/p1", "/p2"], "its last request failed"
    sick.failures, sick.available = 0, False
    answer = await registered.call("PATCH", f"/upstreams/{MEMBER}", {"drain": True})
    assert answer.json["last_of"] == [{"path": "/p1", "others": 1}, {"path": "/p2", "others": 0}]


async def test_attributes_change_and_null_takes_one_back(registered: Api) -> None:
    body = {"weight": None, "slots": 4, "node": "gpu-7"}
    with capture_logs() as lines:
        answer = await registered.call("PATCH", f"/upstreams/{MEMBER}", body)
    changed = {"event": "upstream_changed", "log_level": "info", "upstream": MEMBER, **body}
    assert [line for line in lines if line["event"] == "upstream_changed"] == [changed]
    assert (answer.json["weight"], answer.json["slots"], answer.json["node"]) == (1, 4, "gpu-7")
    shown = (await registered.call("GET", f"/upstreams/{MEMBER}")).json
    assert {**shown, "known_for": answer.json["known_for"]} == answer.json


@pytest.mark.parametrize("written", ["https://gpu.test:443", "https%3A%2F%2Fgpu.test", "HTTPS://gpu.test"])
async def test_an_upstream_over_tls_is_named_with_or_without_escapes(api: Api, written: str) -> None:
    await api.call("POST", "/register", {"path": "/p1", "target": "https://gpu.test"})
    answer = await api.call("GET", f"/upstreams/{written}")
    assert (answer.status, answer.json["member"]) == (200, "https://gpu.test:443")


@pytest.mark.parametrize(
    ("member", "body", "status", "fault"),
    [
        ("10.9.9.9:80", {"drain": True}, 404, "no route names 10.9.9.9:80"),
        ("a b", {"drain": True}, 400, "a b"),
        (MEMBER, {"drain": "yes"}, 400, "drain: "),
        (MEMBER, {"weight": 0}, 400, "weight: "),
        (MEMBER, {"colour": "red"}, 400, "colour: there is no field of this name"),
        (MEMBER, [], 400, "body: has to be an object"),
    ],
)
async def test_what_cannot_be_is_refused_by_name_and_writes_nothing(
    registered: Api, member: str, body: object, status: int, fault: str
) -> None:
    before = await registered.stored()
    answer = await registered.call("PATCH", f"/upstreams/{member.replace(' ', '%20')}", body)
    assert answer.status == status
    assert fault in answer.json["detail"]
    assert await registered.stored() == before


async def test_without_redis_it_answers_with_that_reason(serve: ApiMaker) -> None:
    away = Connection("unix:///nowhere/valkey.sock", Metrics())
    api = await serve(registry=Registry(away))
    await api.redis.sadd("slb_p1", MEMBER)
    await api.parts.watcher.shown(lambda mirror: mirror.uses(MEMBER) == 1, 10)
    answer = await api.call("PATCH", f"/upstreams/{MEMBER}", {"drain": True})
    assert (answer.status, answer.json["error"]) == (503, "redis_down")
    await away.aclose()


def silent(answer: Answer) -> list[str]:
    return [each["member"] for each in answer.json["upstreams"]]


async def test_silent_upstreams_are_those_that_nothing_has_found_alive(registered: Api) -> None:
    members = [f"10.0.0.{number}:80" for number in range(2, 6)]
    for member in members:
        await registered.call("POST", "/register", {"path": "/p1", "target": member})
    long_ago = time.monotonic() - 3600
    alive = registered.parts.mirror.upstreams
    for each in alive.values():
        each.seen = long_ago
    answered, checked, fell, busy = (alive[member] for member in members)
    answered.answered_at = time.monotonic()
    checked.passing = frozenset({HealthCheck("/", 1.0, 1, 1, 1.0)})
    fell.passed_at = fell.answered_at = long_ago
    fell.failures = 1
    busy.inflight = 1
    assert len(silent(await registered.call("GET", "/upstreams"))) == 5
    endpoint = UpstreamsEndpoint(registered.parts)
    endpoint._since = long_ago  # an instance that has run for an hour
    shown = {each["member"]: each for each in await endpoint._silent(600)}
    assert sorted(shown) == [MEMBER, fell.member]
    assert shown[MEMBER]["alive_ago"] is None
    assert shown[MEMBER]["routes"] == ["/p1", "/p2"]
    assert (shown[fell.member]["alive_ago"] or 0) >= 3600
    assert (shown[MEMBER]["failing"], shown[fell.member]["failing"]) == (False, True)
    assert silent(await registered.call("GET", "/upstreams?silent=600")) == []  # it has not run for so long


async def test_silent_is_a_number_of_seconds(api: Api) -> None:
    for text in ("x", "-1", "nan", "inf"):
        answer = await api.call("GET", f"/upstreams?silent={text}")
        assert (answer.status, answer.json["error"]) == (400, "bad_request")


def seen(member: str, alive_ago: float | None, failing: bool = False) -> UpstreamShown:
    live = LiveUpstream(Upstream.of(member))
    more = {"routes": ["/p"], "alive_ago": alive_ago, "known_for": 900.0, "failing": failing}
    return cast("UpstreamShown", {**show_attributes(live), **more})


def test_several_agree_on_what_none_of_them_has_found_alive() -> None:
    one = [seen("a:80", None), seen("b:80", 700.0)]
    other = [seen("b:80", 650.0, failing=True), seen("c:80", None)]
    (both,) = agreed([one, other])
    assert (both["member"], both["alive_ago"], both["failing"]) == ("b:80", 650.0, True)
    assert agreed([one, []]) == []
    assert silence(both) == 650.0


async def test_a_lease_is_shown_with_the_upstream_and_with_its_route(registered: Api) -> None:
    body = {"path": "/p1", "target": MEMBER, "ttl": 60}
    answer = await registered.call("POST", "/register", body)
    assert answer.json == {"path": "/p1", "target": MEMBER, "added": False, "ttl": 60}
    leases = (await registered.call("GET", f"/upstreams/{MEMBER}")).json["leases"]
    assert leases.keys() == {"/p1"}
    assert 0 < leases["/p1"] <= 60
    assert (await registered.call("GET", "/routes/p1")).json["leases"].keys() == {MEMBER}
    assert (await registered.call("GET", "/routes/p2")).json["leases"] == {}
    await registered.call("POST", "/register", {"path": "/p1", "target": MEMBER})
    assert (await registered.call("GET", "/routes/p1")).json["leases"] == {}


@pytest.mark.parametrize(
    ("ttl", "fault"),
    [
        (4.9, "ttl: has to be from 5 to 86400 seconds"),
        (86401, "ttl: has to be from 5 to 86400 seconds"),
        ("30s", "ttl: "),
        (True, "ttl: "),
    ],
)
async def test_a_ttl_is_a_number_of_seconds_within_bounds(api: Api, ttl: object, fault: str) -> None:
    for body in (
        {"path": "/p1", "target": MEMBER, "ttl": ttl},
        [{"path": "/p1", "ip_address": "10.0.0.1", "ttl": ttl}],
    ):
        answer = await api.call("POST", "/register", body)
        assert (answer.status, fault in answer.json["detail"]) == (400, True), answer.json


async def test_a_list_takes_a_ttl_for_each(api: Api) -> None:
    body = [{"path": "/p1", "ip_address": "10.0.0.1", "ttl": 60}, {"path": "/p1", "ip_address": "10.0.0.2"}]
    answer = await api.call("POST", "/register", body)
    assert [each.get("ttl") for each in answer.json] == [60, None]
    assert (await api.call("GET", "/routes/p1")).json["leases"].keys() == {"10.0.0.1:80"}


async def test_a_dry_run_is_refused_like_a_change_and_writes_nothing(registered: Api) -> None:
    before, told = await registered.stored(), {"dry_run": True}
    at = {"path": "/p1", "target": MEMBER}
    for method, path, body in (
        ("PATCH", f"/upstreams/{MEMBER}", {"drain": True}),
        ("POST", "/register", {"path": "/p3", "target": MEMBER, "weight": 9}),
        ("DELETE", "/register", at),
        ("PUT", "/routes/p1", {"policy": "p2c"}),
        ("PATCH", "/routes/p1", {"policy": "p2c"}),
        ("DELETE", "/routes/p1", None),
    ):
        answer = await registered.call(method, f"{path}?dry_run=true", body)
        assert (answer.status, answer.json) == (200, told), (method, path)
    assert await registered.stored() == before
    refused: tuple[tuple[str, str, object], ...] = (
        ("PATCH", f"/upstreams/{MEMBER}", {"weight": 0}),
        ("POST", "/register", {"path": "/p3", "target": "169.254.1.1"}),
        ("PATCH", "/routes/p1", {"policy": "none"}),
        ("PUT", "/routes/p1", {"health_body": "ok"}),
        ("DELETE", "/routes/none", None),
    )
    for method, path, wrong in refused:
        dry = await registered.call(method, f"{path}?dry_run=true", wrong)
        wet = await registered.call(method, path, wrong)
        assert wet.status in (400, 404)
        assert (dry.status, dry.json["detail"]) == (wet.status, wet.json["detail"])
    unclear = await registered.call("PATCH", "/routes/p1?dry_run=yes", {"policy": "p2c"})
    assert (unclear.status, unclear.json["detail"]) == (400, "dry_run: has to be true or false")
    assert await registered.stored() == before
