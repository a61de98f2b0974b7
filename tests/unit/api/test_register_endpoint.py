"""/register over HTTP: what is written, when it is answered, and that bad input writes nothing."""

import asyncio
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.api.bodies import MAX_BODY
from slb.api.parts import ApiParts
from slb.api.replies import Answered
from slb.control import keys
from slb.control.connection import Connection
from slb.control.instances import InstanceInfo, Instances
from slb.control.registry import Registry
from slb.names import is_normal_path
from slb.observe.metrics import Metrics
from tests.support.fuzzing import examples
from tests.unit.api.conftest import OWN_LISTENER, Api, ApiMaker

P1 = {"path": "/p1", "target": "10.0.0.1:80"}


async def test_a_registered_target_is_in_redis_and_in_the_mirror_when_it_is_answered(api: Api) -> None:
    answer = await api.call("POST", "/register", {"path": "/p1/", "target": "10.0.0.1"})
    assert (answer.status, answer.json) == (200, {"path": "/p1", "target": "10.0.0.1:80", "added": True})
    assert await api.redis.smembers("slb_p1") == {"10.0.0.1:80"}
    assert api.parts.mirror.records["/p1"].members == {"10.0.0.1:80"}


async def test_registering_again_adds_nothing(api: Api) -> None:
    await api.call("POST", "/register", P1)
    answer = await api.call("POST", "/register", P1)
    assert answer.json == {**P1, "added": False}


async def test_attributes_are_written_and_shown(api: Api) -> None:
    answer = await api.call("POST", "/register", {**P1, "weight": 3, "slots": 2, "zone": "a", "node": "n1"})
    assert answer.status == 200
    written = await api.redis.hgetall(keys.upstream_key("10.0.0.1:80"))
    assert {name: written[name] for name in ("weight", "slots", "zone", "node")} == {
        "weight": "3",
        "slots": "2",
        "zone": "a",
        "node": "n1",
    }
    live = api.parts.mirror.upstream("10.0.0.1:80")
    assert live is not None
    assert (live.spec.weight, live.spec.slots, live.spec.zone) == (3, 2, "a")


async def test_attributes_of_a_known_target_change_with_its_next_registration(api: Api) -> None:
    await api.call("POST", "/register", {**P1, "weight": 3})
    await api.call("POST", "/register", {**P1, "weight": 5})
    live = api.parts.mirror.upstream("10.0.0.1:80")
    assert live is not None
    assert live.spec.weight == 5


async def test_a_removed_target_is_gone_when_it_is_answered(api: Api) -> None:
    await api.call("POST", "/register", P1)
    answer = await api.call("DELETE", "/register", P1)
    assert (answer.status, answer.json) == (200, {**P1, "removed": True})
    assert "/p1" not in api.parts.mirror.records
    assert (await api.call("DELETE", "/register", P1)).json == {**P1, "removed": False}


async def test_a_list_is_answered_by_a_list(api: Api) -> None:
    asked = [
        {"ip_address": "10.0.0.1", "port": 81, "path": "/p1"},
        {"ip_address": "10.0.0.2", "port": 82, "path": "/p2"},
    ]
    added = await api.call("POST", "/register", asked)
    assert added.json == [{**each, "added": True} for each in asked]
    assert await api.redis.smembers("slb_p2") == {"10.0.0.2:82"}
    removed = await api.call("DELETE", "/register", asked)
    assert removed.json == [{**each, "removed": True} for each in asked]
    assert not api.parts.mirror.records


async def test_an_empty_list_is_answered_by_an_empty_list(api: Api) -> None:
    assert (await api.call("POST", "/register", [])).json == []
    assert (await api.call("DELETE", "/register", [])).json == []


async def test_one_bad_element_writes_nothing_of_the_list(api: Api) -> None:
    before = await api.stored()
    asked = [{"ip_address": "10.0.0.1", "port": 81, "path": "/p1"}, {"ip_address": "0.0.0.0", "path": "/p2"}]
    answer = await api.call("POST", "/register", asked)
    assert answer.status == 400
    assert answer.json["detail"].startswith("[1].ip_address: 0.0.0.0 is unspecified")
    assert await api.stored() == before


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("169.254.169.254", "link-local"),
        ("[::ffff:169.254.169.254]:80", "link-local"),
        ("0.0.0.0:8080", "unspecified"),
        ("{}:{}".format(*OWN_LISTENER), "slb's own listener"),
        ("127.0.0.8:8080", "a listener of the slb instance id-1"),
    ],
)
async def test_addresses_that_are_never_targets_are_refused(api: Api, target: str, fault: str) -> None:
    answer = await api.call("POST", "/register", {"path": "/p1", "target": target})
    assert answer.status == 400
    assert answer.json["error"] == "bad_request"
    assert answer.json["detail"].startswith("target: ")
    assert fault in answer.json["detail"]
    assert not await api.redis.exists("slb_p1")


async def test_another_instances_listener_is_no_target_either(serve: ApiMaker, connection: Connection) -> None:
    other = Instances(connection, InstanceInfo("id-2", address="10.7.0.1:8080", api="0.0.0.0:8081", host="there"))
    await other.beat()
    api = await serve()
    await api.call("GET", "/instances")
    refused = await api.call("POST", "/register", {"path": "/p1", "target": "10.7.0.1:8080"})
    assert (refused.status, "id-2" in refused.json["detail"]) == (400, True)
    # 0.0.0.0 of another machine is none of the addresses here.
    assert (await api.call("POST", "/register", {"path": "/p1", "target": "127.0.0.1:8081"})).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b'{"path": NaN}', b"\xff", b'{"path": "/p1",}', b"[" * 100_000])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_what_is_not_json_is_refused_as_such(api: Api, method: str, body: bytes) -> None:
    answer = await api.call(method, "/register", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert answer.json["detail"].startswith("the body is not JSON: ")


async def test_the_content_type_is_not_looked_at(api: Api) -> None:
    body = b'{"path": "/p1", "target": "10.0.0.1"}'
    answer = await api.call("POST", "/register", body, headers={"Content-Type": "text/plain"})
    assert answer.status == 200


async def test_a_body_over_the_limit_is_refused(api: Api) -> None:
    answer = await api.call("POST", "/register", io.BytesIO(b" " * (MAX_BODY + 1)))
    assert (answer.status, answer.json["error"]) == (413, "body_too_large")
    assert str(MAX_BODY) in answer.json["detail"]


async def test_a_client_that_waits_for_100_continue_gets_it(api: Api) -> None:
    body = b'{"path":"/p1","target":"10.0.0.1"}'
    head = b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nConnection: close\r\n"
    answer = await api.raw(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_a_body_that_does_not_come_is_given_up(serve: ApiMaker) -> None:
    api = await serve(settings={"head_timeout": "100ms"})
    answer = await api.raw(b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"error":"request_timeout"' in answer


async def test_a_path_no_request_can_carry_is_refused(api: Api) -> None:
    longest = api.parts.settings.max_request_line
    answer = await api.call("POST", "/register", {"path": "/" + "a" * longest, "target": "10.0.0.1"})
    assert answer.status == 400
    assert answer.json["detail"].startswith("path: is longer")


async def test_a_key_that_holds_something_else_is_named(api: Api) -> None:
    await api.redis.set("slb_p1", "a string")
    answer = await api.call("POST", "/register", P1)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "slb_p1" in answer.json["detail"]


async def test_without_redis_nothing_is_promised(serve: ApiMaker, parts: ApiParts) -> None:
    nowhere = Connection("redis://127.0.0.1:1/0", Metrics())
    api = await serve(registry=Registry(nowhere), instances=Instances(nowhere, InstanceInfo("id-1")))
    for method in ("POST", "DELETE"):
        answer = await api.call(method, "/register", P1)
        assert (answer.status, answer.json["error"]) == (503, "redis_down")
        assert answer.headers["Retry-After"] == "1"
        assert answer.json["detail"].endswith("; nothing was written, asking again is safe")
    await nowhere.aclose()


async def test_it_answers_at_last_even_if_the_mirror_does_not_follow(serve: ApiMaker) -> None:
    class Blind:
        async def shown(self, predicate: Any, timeout: float = 1.0) -> bool:
            return False

        def staleness(self) -> float:
            return 9.0

    api = await serve(watcher=Blind())
    answer = await api.call("POST", "/register", P1)
    assert (answer.status, answer.json["added"]) == (202, True)
    answer = await api.call("DELETE", "/register", P1)
    assert (answer.status, answer.json["removed"]) == (202, True)


async def test_many_at_once_are_all_shown(api: Api) -> None:
    bodies = [{"path": f"/p{index % 7}", "target": f"10.0.1.{index}:80"} for index in range(60)]
    answers = await asyncio.gather(*(api.call("POST", "/register", body) for body in bodies))
    assert all(answer.json["added"] for answer in answers)
    assert len(api.parts.mirror.upstreams) == 60


PATHS = st.one_of(st.sampled_from(["/", "/p1", "//a/./b", "p", "/%2f", "/\x00", "/é"]), st.text(max_size=8))
TARGETS = st.one_of(
    st.sampled_from(["10.0.0.1", "h:81", "https://h", "0.0.0.0", "[::1]:9", "127.1", "h:0", "127.0.0.9:8080"]),
    st.text(max_size=8),
)
ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}))
OBJECTS = st.one_of(
    st.fixed_dictionaries(
        {"path": PATHS | ODD, "target": TARGETS | ODD},
        optional={"weight": st.integers(-1, 2000) | ODD, "slots": ODD, "zone": ODD, "other": ODD},
    ),
    st.dictionaries(st.sampled_from(["path", "target", "port", "x"]), ODD, max_size=3),
)
ELEMENTS = st.fixed_dictionaries(
    {"ip_address": st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "0.0.0.0", "h"]), "path": PATHS},
    optional={"port": st.integers(0, 70000) | ODD, "weight": ODD},
)
BODIES = st.one_of(OBJECTS, st.lists(ELEMENTS | ODD, max_size=4), ODD)


def members_stored(stored: dict[str, Any]) -> set[tuple[str, str]]:
    sets = {key: value for key, value in stored.items() if key.startswith(keys.MEMBERS)}
    return {(key, member) for key, members in sets.items() for member in members}


@settings(max_examples=examples(150))
@given(body=BODIES, method=st.sampled_from(["POST", "DELETE"]))
async def test_no_body_breaks_it_or_is_half_written(api: Api, body: Any, method: str) -> None:
    before = await api.stored()
    answer = await api.call(method, "/register", json.dumps(body).encode())
    after = await api.stored()
    if answer.status == 400:
        assert answer.json["error"] == "bad_request"
        assert answer.json["detail"]
        assert after == before
        return
    assert answer.status == 200
    replies = answer.json if isinstance(answer.json, list) else [answer.json]
    assert len(replies) == (len(body) if isinstance(body, list) else 1)
    changed = members_stored(after) ^ members_stored(before)
    assert len(changed) == sum(reply["added" if method == "POST" else "removed"] for reply in replies)
    assert all(is_normal_path(reply["path"]) or reply["path"] == "/" for reply in replies)
    assert (members_stored(after) > members_stored(before)) is bool(changed and method == "POST")


@settings(max_examples=60)
@given(body=st.binary(max_size=40))
async def test_no_bytes_break_it(api: Api, body: bytes) -> None:
    answer = await api.call("POST", "/register", body)
    assert answer.status == 400


async def test_a_registration_that_changes_nothing_is_known_for_a_renewal(serve: ApiMaker) -> None:
    seen: list[Answered] = []
    api = await serve(on_answer=seen.append)
    pod = {"path": "/p", "target": "10.0.0.1", "ttl": 30}
    for body in (pod, pod, {**pod, "weight": 2}, {**pod, "weight": 2}, {**pod, "path": "/q"}):
        assert (await api.call("POST", "/register", body)).status == 200
    await api.call("DELETE", "/register", pod)
    assert [each.renews for each in seen] == [False, True, False, True, False, False]
