"""/routes and /routes/<path>: what is shown, and what a change of settings takes."""

from typing import Any

import pytest

from slb.api.parts import ApiParts
from slb.control import keys
from slb.control.connection import Connection
from slb.control.registry import Registry
from slb.model import HealthCheck, RouteSettings
from slb.observe.metrics import Metrics
from tests.unit.api.conftest import Api, ApiMaker


async def registered(api: Api, path: str = "/p1", target: str = "10.0.0.1:80") -> None:
    assert (await api.call("POST", "/register", {"path": path, "target": target, "weight": 3})).status == 200


async def test_no_routes_are_an_empty_list(api: Api) -> None:
    assert (await api.call("GET", "/routes")).json == {"routes": []}


async def test_a_route_is_shown_with_its_members_its_settings_and_where_they_come_from(serve: ApiMaker) -> None:
    api = await serve(settings={"defaults": {"retries": 2}, "routes": {"/p1": {"first_byte_timeout": "90s"}}})
    await registered(api)
    await api.call("PATCH", "/routes/p1", {"policy": "p2c"})
    route = (await api.call("GET", "/routes/p1")).json
    assert (route.pop("decision"), route.pop("leases")) == (None, {})
    assert route["path"] == "/p1"
    (member,) = route["members"]
    joined = member.pop("joined")
    assert member == {
        "member": "10.0.0.1:80",
        "weight": 3,
        "slots": 1,
        "zone": "",
        "node": "",
        "drain": False,
        "inflight": 0,
        "health": "unchecked",
        "failures": 0,
    }
    assert joined > 0
    shown = {name: (route["settings"][name], route["sources"][name]) for name in route["settings"]}
    assert shown["policy"] == ("p2c", "hash")
    assert shown["first_byte_timeout"] == ("90s", "file")
    assert shown["retries"] == (2, "defaults")
    assert shown["connect_timeout"] == ("1s", "built_in")
    assert shown.keys() == RouteSettings.model_fields.keys()
    assert (await api.call("GET", "/routes")).json == {
        "routes": [{**route, "members": [{**member, "joined": joined}]}]
    }


async def test_without_its_last_upstream_a_route_with_settings_stays_and_one_without_is_gone(api: Api) -> None:
    for path in ("/p1", "/p2"):
        await registered(api, path)
    await api.call("PATCH", "/routes/p1", {"policy": "round_robin"})
    for path in ("/p1", "/p2"):
        await api.call("DELETE", "/register", {"path": path, "target": "10.0.0.1:80"})
    assert [route["path"] for route in (await api.call("GET", "/routes")).json["routes"]] == ["/p1"]
    assert api.parts.mirror.table.routes.keys() == {"/p1"}


async def test_a_supervisor_shows_the_worst_health_that_any_of_its_workers_has_found(
    serve: ApiMaker,
) -> None:
    first = await serve()
    for number in (1, 2, 3):
        await registered(first, target=f"10.0.0.{number}:80")
    one, two = await seen(first, "up", "up"), await seen(first, "ejected", "up")
    one["members"][1]["failures"], two["panic"] = 2, True

    async def workers_answers(path: str) -> list[Any]:
        answers: dict[str, list[Any]] = {
            "/routes/p1": [one, None, two],
        }
        return answers[path]

    api = await serve(workers_answers=workers_answers)
    await registered(api)
    for route in (
        (await api.call("GET", "/routes/p1")).json,
        (await api.call("PATCH", "/routes/p1", {"retries": 2})).json,
    ):
        assert [member["health"] for member in route["members"]] == ["ejected", "up", "unchecked"]
        assert [member["failures"] for member in route["members"]] == [0, 2, 0]
        assert route["panic"] is True
    (route,) = (await api.call("GET", "/routes")).json["routes"]  # the workers are not asked for all routes
    assert {member["health"] for member in route["members"]} == {"unchecked"}


async def test_one_question_to_the_workers_gives_a_route_its_health_and_its_decision(serve: ApiMaker) -> None:
    first = await serve()
    await registered(first)
    answer, asked = await seen(first, "up"), []
    answer["decision"] = {"policy": "p2c", "seconds_ago": 1.5}

    async def workers_answers(path: str) -> list[Any]:
        asked.append(path)
        return [None, answer]

    api = await serve(workers_answers=workers_answers)
    route = (await api.call("GET", "/routes/p1")).json
    assert (route["members"][0]["health"], route["decision"]) == ("up", answer["decision"])
    assert asked == ["/routes/p1"]


async def seen(api: Api, *health: str) -> dict[str, Any]:
    """The route as a worker shows it that has the health of its first members."""
    shown: dict[str, Any] = (await api.call("GET", "/routes/p1")).json
    for member, known in zip(shown["members"], health, strict=False):
        member["health"] = known
    return shown


async def test_the_health_of_each_upstream_and_a_routes_panic_are_shown(api: Api) -> None:
    for number in (1, 2, 3):
        await registered(api, target=f"10.0.0.{number}:80")
    await api.call("PATCH", "/routes/p1", {"health_path": "/h"})
    mirror, check = api.parts.mirror, HealthCheck("/h", 5.0, 2, 3, 2.0)
    ejected, down, other = (mirror.upstreams[f"10.0.0.{number}:80"] for number in (1, 2, 3))
    ejected.available, ejected.failures = False, 5
    down.down, other.down = frozenset({check}), frozenset({check._replace(path="/other")})
    mirror.refresh([ejected.member, down.member])
    route = (await api.call("GET", "/routes/p1")).json
    assert [(each["health"], each["failures"]) for each in route["members"]] == [
        ("ejected", 5),
        ("down", 0),
        ("unchecked", 0),
    ]
    assert route["panic"] is True
    api.parts.metrics.health.panicking.add("/p1")
    assert (await api.call("GET", "/status")).json["health"] == {"down": 2, "ejected": 1, "panic": ["/p1"]}
    await api.call("PATCH", "/routes/p1", {"eject_after": 0})
    route = (await api.call("GET", "/routes/p1")).json
    assert [each["health"] for each in route["members"]] == ["failing", "down", "unchecked"]
    assert route["panic"] is False


async def test_requests_in_flight_and_draining_are_shown(api: Api) -> None:
    await registered(api)
    live = api.parts.mirror.upstream("10.0.0.1:80")
    assert live is not None
    live.inflight += 2
    await api.redis.hset(keys.upstream_key("10.0.0.1:80"), "drain", "1")
    await api.parts.watcher.shown(lambda mirror: mirror.attributes["10.0.0.1:80"].get("drain") == "1", 10)
    (member,) = (await api.call("GET", "/routes/p1")).json["members"]
    assert (member["inflight"], member["drain"]) == (2, True)


async def test_paths_are_those_of_the_key_form(api: Api) -> None:
    for path in ("/", "/a/b", "/caf%C3%A9"):
        await registered(api, path)
    for asked, path in (("/", "/"), ("/a/b", "/a/b"), ("/a//b/", "/a/b"), ("/caf%c3%a9", "/caf%C3%A9")):
        assert (await api.call("GET", "/routes" + asked)).json["path"] == path
    assert len((await api.call("GET", "/routes")).json["routes"]) == 3


@pytest.mark.parametrize("path", ["/a%2Fb", "/a%00", "/%zz", "/..", "/a/../../b"])
async def test_a_path_servers_could_disagree_about_is_refused(api: Api, path: str) -> None:
    answer = await api.call("GET", "/routes" + path)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_route_is_no_route(api: Api, method: str) -> None:
    answer = await api.call(method, "/routes/nowhere")
    assert (answer.status, answer.json["error"]) == (404, "no_route")
    assert answer.json["detail"] == "there is no route /nowhere"


async def test_put_replaces_the_settings_and_keeps_the_members(api: Api) -> None:
    await registered(api)
    await api.call("PUT", "/routes/p1", {"retries": 3, "policy": "random"})
    route = (await api.call("PUT", "/routes/p1", {"request_timeout": "2m", "strip_prefix": True})).json
    assert await api.redis.hgetall(keys.settings_key("/p1")) == {"request_timeout": "2m", "strip_prefix": "true"}
    assert [member["member"] for member in route["members"]] == ["10.0.0.1:80"]
    settings = api.parts.mirror.table.routes["/p1"].settings
    assert (settings.request_timeout, settings.strip_prefix, settings.retries) == (
        120.0,
        True,
        1,
    )
    assert (await api.call("GET", "/routes/p1")).json == {**route, "decision": None, "leases": {}}


async def test_patch_merges_and_null_resets(api: Api) -> None:
    await registered(api)
    await api.call("PUT", "/routes/p1", {"retries": 3, "policy": "random"})
    route = (await api.call("PATCH", "/routes/p1", {"retries": None, "connect_timeout": "250ms"})).json
    assert await api.redis.hgetall(keys.settings_key("/p1")) == {"policy": "random", "connect_timeout": "250ms"}
    assert (route["settings"]["retries"], route["sources"]["retries"]) == (1, "built_in")
    assert api.parts.mirror.table.routes["/p1"].settings.connect_timeout == 0.25


async def test_numbers_and_truth_may_be_written_as_text(api: Api) -> None:
    route = (await api.call("PATCH", "/routes/p1", {"retries": "3", "strip_prefix": "true"})).json
    assert (route["settings"]["retries"], route["settings"]["strip_prefix"]) == (3, True)


async def test_priorities_may_be_a_text_or_a_table_and_are_kept_as_text(api: Api) -> None:
    for written in ("batch=1,critical=8", {"batch": 1, "critical": 8}):
        route = (await api.call("PUT", "/routes/p1", {"priorities": written})).json
        assert route["settings"]["priorities"] == "critical=8,batch=1"
        assert await api.redis.hgetall(keys.settings_key("/p1")) == {"priorities": "critical=8,batch=1"}
        settings = api.parts.mirror.table.routes["/p1"].settings
        assert settings.priorities == (("critical", 8), ("batch", 1))
    assert (await api.call("PATCH", "/routes/p1", {"priorities": None})).json["settings"]["priorities"] == ""


async def test_a_setting_put_as_null_where_null_is_its_default_is_not_written(api: Api) -> None:
    answer = await api.call("PUT", "/routes/p1", {"pool": None, "health_path": None, "retries": 2})
    assert answer.status == 200
    assert await api.redis.hgetall(keys.settings_key("/p1")) == {"retries": "2"}


async def test_a_route_sets_none_where_it_is_to_have_no_checks_and_the_defaults_have_one(serve: ApiMaker) -> None:
    api = await serve(settings={"defaults": {"health_path": "/h"}})
    route = (await api.call("PATCH", "/routes/p1", {"health_path": "none"})).json
    assert (route["settings"]["health_path"], route["sources"]["health_path"]) == (None, "hash")
    assert await api.redis.hgetall(keys.settings_key("/p1")) == {"health_path": "none"}
    unset = (await api.call("PATCH", "/routes/p1", {"health_path": None})).json
    assert unset["settings"]["health_path"] == "/h"


IDLE = {"health_body": "ok", "health_json": "status=ok", "health_post": "/v1 {}"}
MEND = "without a health_path nothing is checked: set that too, to a path or to none"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("name", IDLE)
async def test_what_a_check_asks_for_is_refused_without_a_path(api: Api, method: str, name: str) -> None:
    answer = await api.call(method, "/routes/p1", {name: IDLE[name], "retries": 2})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert answer.json["detail"] == f"settings of /p1: {name} = {IDLE[name]!r}: {MEND}"
    assert await api.redis.hgetall(keys.settings_key("/p1")) == {}
    for path in ("/h", "none"):
        answer = await api.call(method, "/routes/p1", {name: IDLE[name], "health_path": path})
        assert (answer.status, answer.json["faults"]) == (200, [])


async def test_a_path_of_the_hash_or_of_the_file_will_do_and_cannot_be_taken_away_alone(serve: ApiMaker) -> None:
    api = await serve(settings={"routes": {"/p2": {"health_path": "/h"}}})
    assert (await api.call("PATCH", "/routes/p1", {"health_path": "/h"})).status == 200
    for route in ("/routes/p1", "/routes/p2"):
        assert (await api.call("PATCH", route, {"health_json": "status=ok"})).status == 200
    refused = await api.call("PATCH", "/routes/p1", {"health_path": None})
    mend = "health_json needs health_path: unset health_json with it, or set health_path to none"
    assert (refused.status, mend in refused.json["detail"]) == (400, True)
    assert (await api.call("PATCH", "/routes/p1", {"health_path": None, "health_json": None})).status == 200
    put = await api.call("PUT", "/routes/p1", {"health_path": None, "health_json": "status=ok"})
    assert (put.status, MEND in put.json["detail"]) == (400, True)


async def test_what_stands_in_redis_without_a_path_is_a_fault_and_hinders_no_other_change(api: Api) -> None:
    await registered(api)
    await api.redis.hset(keys.settings_key("/p1"), mapping={"health_body": "ok"})
    assert await api.parts.watcher.shown(lambda mirror: "/p1" in mirror.faults, 10)
    changed = await api.call("PATCH", "/routes/p1", {"retries": 2})
    assert (changed.status, changed.json["faults"]) == (200, [f"health_body = 'ok': {MEND}"])
    assert (await api.call("GET", "/status")).json["mirror"]["faults"] == {"/p1": changed.json["faults"]}
    mended = await api.call("PATCH", "/routes/p1", {"health_path": "/h"})
    assert (mended.status, mended.json["faults"]) == (200, [])


async def test_settings_come_before_the_first_member_and_make_a_route(api: Api) -> None:
    assert (await api.call("PUT", "/routes/", {"retries": 0})).json["members"] == []
    assert (await api.call("GET", "/routes/")).json["settings"]["retries"] == 0


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"colour": "red"}, "colour: there is no route setting of this name"),
        ({"polcy": "p2c"}, "polcy: there is no route setting of this name; is policy meant?"),
        ({"workers": 2}, "workers: there is no route setting of this name; it is a setting of the whole process"),
        ({"retries": 11}, "retries = 11: "),
        ({"retries": "many"}, "retries = 'many': "),
        ({"policy": "best"}, "policy = 'best': "),
        ({"connect_timeout": "0"}, "connect_timeout = '0': "),
        ({"connect_timeout": 5}, "connect_timeout = 5: "),
        ({"connect_timeout": []}, "connect_timeout = []: "),
        ({"retries": 2, "idle_timeout": "soon"}, "idle_timeout = 'soon': "),
        ({"max_inflight": -1}, "max_inflight = -1: "),
        ({"max_inflight": 10**9}, "max_inflight = 1000000000: "),
        ({"queue_limit": 0}, "queue_limit = 0: "),
        ({"priorities": "critical"}, "priorities = 'critical': 'critical' is not written CLASS=WEIGHT"),
        ({"priorities": {"critical": 0}}, "priorities = {'critical': 0}: the weight of 'critical' is 0, "),
        ({"pool": "gpus"}, "pool = 'gpus': path 'gpus' does not start with '/'"),
        ([], "body: has to be an object"),
        (1, "body: has to be an object"),
    ],
)
async def test_a_bad_change_names_setting_and_value_and_the_old_settings_stay(
    api: Api, method: str, body: object, fault: str
) -> None:
    await api.call("PUT", "/routes/p1", {"retries": 3})
    answer = await api.call(method, "/routes/p1", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert answer.json["detail"].startswith(fault)
    assert await api.redis.hgetall(keys.settings_key("/p1")) == {"retries": "3"}


async def test_null_is_only_for_patch_and_only_for_settings_there_are(api: Api) -> None:
    assert (await api.call("PUT", "/routes/p1", {"retries": None})).status == 400
    answer = await api.call("PATCH", "/routes/p1", {"colour": None, "retries": None})
    assert (answer.status, answer.json["detail"]) == (400, "colour: there is no route setting of this name")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_only_for_the_first_names_one_is_looked_for_that_may_be_meant(api: Api, method: str) -> None:
    answer = await api.call(method, "/routes/p1", {f"client_percentages{number:03}": 1 for number in range(500)})
    assert answer.json["detail"].count("there is no route setting of this name") == 500
    assert answer.json["detail"].count("; is client_percentage meant?") == 10


async def test_every_fault_is_named(api: Api) -> None:
    answer = await api.call("PATCH", "/routes/p1", {"retries": 99, "policy": "best"})
    assert "retries = 99: " in answer.json["detail"]
    assert "policy = 'best': " in answer.json["detail"]


async def test_delete_removes_members_and_settings(api: Api) -> None:
    await registered(api)
    await api.call("PUT", "/routes/p1", {"retries": 3})
    answer = await api.call("DELETE", "/routes/p1")
    assert (answer.status, answer.json) == (200, {"path": "/p1", "removed": True})
    assert not await api.redis.exists("slb_p1", keys.settings_key("/p1"))
    assert "/p1" not in api.parts.mirror.records


async def test_settings_broken_by_hand_are_shown_as_faults(api: Api) -> None:
    await registered(api)
    name, value = b"n\xff", b"\xfe"
    await api.redis.hset(keys.settings_key("/p1"), mapping={"retries": "many", "policy": "p2c", name: value})
    await api.parts.watcher.shown(lambda mirror: len(mirror.faults.get("/p1", ())) == 2, 10)
    route = (await api.call("GET", "/routes/p1")).json
    assert (route["settings"]["policy"], route["settings"]["retries"]) == ("p2c", 1)
    assert len(route["faults"]) == 2
    assert len((await api.call("GET", "/routes")).json["routes"]) == 1
    # They do not stand in the way of a change.
    assert (await api.call("PATCH", "/routes/p1", {"retries": 4})).json["settings"]["retries"] == 4


async def test_a_setting_that_turns_bad_by_hand_is_shown_and_what_it_was_holds_on(api: Api) -> None:
    await api.call("PUT", "/routes/p1", {"max_inflight": 4, "policy": "least_inflight"})
    for name, bad in (("max_inflight", "-1"), ("policy", "best"), ("priorities", "critical")):
        await api.redis.hset(keys.settings_key("/p1"), name, bad)
    await api.parts.watcher.shown(lambda mirror: len(mirror.faults.get("/p1", ())) == 3, 10)
    route = (await api.call("GET", "/routes/p1")).json
    assert [route["settings"][name] for name in ("max_inflight", "policy", "priorities")] == [
        4,
        "least_inflight",
        "",
    ]
    assert [fault.split(": ")[0] for fault in sorted(route["faults"])] == [
        "max_inflight = '-1'",
        "policy = 'best'",
        "priorities = 'critical'",
    ]


async def test_without_redis_routes_are_shown_and_not_changed(serve: ApiMaker, parts: ApiParts) -> None:
    nowhere = Connection("redis://127.0.0.1:1/0", Metrics())
    await registered(await serve())
    api = await serve(registry=Registry(nowhere))
    assert (await api.call("GET", "/routes/p1")).status == 200
    for method, body in (("PUT", {}), ("PATCH", {"retries": 1}), ("DELETE", None)):
        answer = await api.call(method, "/routes/p1", body)
        assert (answer.status, answer.json["error"]) == (503, "redis_down")
    await nowhere.aclose()


async def test_many_routes_are_all_shown(api: Api) -> None:
    async with api.redis.pipeline(transaction=False) as pipe:
        for index in range(230):
            pipe.sadd(f"slb_r{index:03}", f"10.1.0.{index}:80")
        await pipe.execute()
    await api.parts.watcher.shown(lambda mirror: len(mirror.records) == 230, 10)
    routes = (await api.call("GET", "/routes")).json["routes"]
    assert [route["path"] for route in routes] == [f"/r{index:03}" for index in range(230)]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_of_too_many_faults_only_their_number_is_answered(api: Api, method: str) -> None:
    answer = await api.call(method, "/routes/p1", {f"x{number}": 1 for number in range(60_000)})
    assert (answer.status, answer.json["detail"]) == (400, "body: 60000 faults, and only up to 1000 are listed")


async def test_a_name_in_dns_is_shown_as_a_name_and_not_as_a_member_with_its_lease(api: Api) -> None:
    body = {"path": "/p1", "target": "dns+srv://_http._tcp.Flux.test.", "ttl": 30}
    name = "dns+srv://_http._tcp.flux.test"
    assert (await api.call("POST", "/register", body)).json == {**body, "target": name, "added": True}
    await registered(api)
    route = (await api.call("GET", "/routes/p1")).json
    assert route["names"] == [name]
    assert [each["member"] for each in route["members"]] == ["10.0.0.1:80"]
    assert route["leases"].keys() == {name}
    assert (await api.call("GET", f"/upstreams/{name}")).status == 400
    assert [each["member"] for each in (await api.call("GET", "/upstreams")).json["upstreams"]] == ["10.0.0.1:80"]
    assert (await api.call("DELETE", "/register", {"path": "/p1", "target": name})).json["removed"] is True
    assert (await api.call("GET", "/routes/p1")).json["names"] == []
