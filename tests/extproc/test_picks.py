"""Where requests are sent, by the same rules as the proxy's, and how Envoy is told."""

from collections import Counter
from typing import Any

import orjson
import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from tests.extproc.rig import UNAVAILABLE, EndOfStream, Envoy, Picker, header, headers_of, set_headers

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


async def test_the_longest_prefix_of_whole_segments_takes_the_request(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    picker.route("/p/q", B)
    assert await envoy.get("/p/q/x?y=/p") == [B]
    assert await envoy.get("/p/qq") == [A]


async def test_a_policy_takes_turns_as_in_the_proxy(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A, B, C, retries="0")
    assert Counter([(await envoy.get())[0] for _ in range(6)]) == {A: 2, B: 2, C: 2}


@pytest.mark.parametrize(
    ("key", "path", "headers"),
    [
        ("header:X-Session", "/p", {"x-session": "{}"}),
        ("cookie:s", "/p", {"cookie": "a=b; s={}"}),
        ("query:s", "/p?a=b&s={}", {}),
        ("path", "/p/{}", {}),
        ("ip", "/p", {"x-forwarded-for": "1.2.3.4, 10.9.8.{}"}),
        ("ip", "/p", {"x-forwarded-for": "1.2.3.4", "x-envoy-external-address": "11.1.1.{}"}),
    ],
)
async def test_requests_of_one_key_go_to_one_upstream(
    picker: Picker, envoy: Envoy, key: str, path: str, headers: dict[str, str]
) -> None:
    members = [f"10.0.0.{each}:80" for each in range(1, 9)]
    picker.route("/p", *members, policy="consistent_hash", hash_key=key, load_signal="off", retries="0")
    seen = []
    for each in range(12):
        filled = {name: value.format(each) for name, value in headers.items()}
        hosts = [await envoy.get(path.format(each), headers=filled) for _ in range(2)]
        assert hosts[0] == hosts[1]
        seen.append(hosts[0][0])
    assert len(set(seen)) > 2


async def test_an_upstream_that_is_down_or_drains_gets_nothing(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A, B, retries="0", panic_threshold="0")
    (upstream,) = (each for each in picker.mirror.upstreams.values() if each.member == A)
    upstream.available = False
    list(picker.mirror.refresh(frozenset({A})))
    assert {(await envoy.get())[0] for _ in range(4)} == {B}


async def test_a_stripped_prefix_is_left_out_of_the_path(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A, strip_prefix="true")
    stream = await envoy.ask("/p/x?y=1")
    assert set_headers(await stream.answer())[":path"] == "/x?y=1"
    await stream.end()


async def test_a_path_that_goes_on_as_it_came_is_not_touched(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    stream = await envoy.ask("/p/x?y=1")
    assert ":path" not in set_headers(await stream.answer())
    await stream.end()


async def test_retries_have_other_upstreams_to_go_to_as_many_as_the_route_allows(
    picker: Picker, envoy: Envoy
) -> None:
    picker.route("/p", A, B, C, retries="1")
    lists = [await envoy.get() for _ in range(12)]
    assert all(len(set(each)) == 2 for each in lists)
    picker.route("/p", A, B, C, retries="5")
    assert set(await envoy.get()) == {A, B, C}


async def test_a_retry_of_a_key_goes_where_the_ring_goes_next(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A, B, C, policy="consistent_hash", load_signal="off", retries="2")
    lists = [await envoy.get("/p/key") for _ in range(3)]
    assert lists[0] == lists[1] == lists[2]
    assert set(lists[0]) == {A, B, C}


@pytest.mark.parametrize("policy", ["p2c", "consistent_hash"])
async def test_a_retry_goes_to_another_node_first(picker: Picker, envoy: Envoy, policy: str) -> None:
    nodes = {A: {"node": "n1"}, B: {"node": "n1"}, C: {"node": "n2"}}
    picker.route("/p", A, B, C, policy=policy, load_signal="off", retries="2")
    picker.mirror.update({}, nodes)
    for number in range(12):
        first, second, third = await envoy.get(f"/p/{number}")
        assert nodes[first] != nodes[second], "the other node, where there is one"
        assert {first, second, third} == {A, B, C}


@pytest.mark.parametrize("subset", [[B, C], f"{B}, {C}"])
async def test_only_what_the_subset_names_is_picked(picker: Picker, envoy: Envoy, subset: Any) -> None:
    picker.route("/p", A, B, C, retries="2")
    for _ in range(6):
        assert set(await envoy.get(subset=subset)) == {B, C}


async def test_without_an_upstream_in_the_subset_the_answer_is_503(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    response = await envoy.refusal(subset=[B])
    assert response.status.code == 503
    assert orjson.loads(response.body)["error"] == "no_upstream"
    assert (await envoy.refusal(subset=[])).status.code == 503


@pytest.mark.parametrize(
    ("path", "method", "status", "reason"),
    [
        ("/other", "GET", 404, "no_route"),
        ("/p/../../x", "GET", 400, "bad_request"),
        ("/p", "CONNECT", 405, "method_not_allowed"),
        ("/empty", "GET", 503, "no_upstream"),
    ],
)
async def test_what_cannot_be_served_is_answered_as_the_proxy_would(
    picker: Picker, envoy: Envoy, path: str, method: str, status: int, reason: str
) -> None:
    picker.route("/p", A)
    picker.route("/empty")
    response = await envoy.refusal(path, method=method)
    body = orjson.loads(response.body)
    assert (response.status.code, body["error"], body["request_id"]) == (status, reason, "an-id")
    assert header(response, "content-type") == "application/json"
    assert header(response, "x-request-id") == "an-id"
    assert header(response, "retry-after") == ("1" if status == 503 else "")
    assert picker.logged()[-1]["reason"] == reason


async def test_upstreams_are_named_to_clients_only_where_that_is_set(pickers: Any) -> None:
    plain, full = await pickers(), await pickers(client_detail="full")
    for picker in (plain, full):
        picker.route("/p")
    plainly, fully = [orjson.loads((await each.envoy().refusal()).body)["detail"] for each in (plain, full)]
    assert "/p" not in plainly
    assert "/p" in fully


async def test_before_there_is_a_table_envoy_is_left_to_itself(picker: Picker, envoy: Envoy) -> None:
    stream = await envoy.ask()
    with pytest.raises(EndOfStream) as ended:
        await stream.answer()
    assert ended.value.args == (UNAVAILABLE,)


async def test_a_retry_that_asks_again_avoids_where_the_request_has_failed(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A, B, C, retries="0")
    failed = set()
    for attempt in ("1", "2"):
        stream = await envoy.ask(headers={"x-envoy-attempt-count": attempt, "x-request-id": "r"})
        (host,) = await stream.hosts()
        failed.add(host)
        await stream.replied(503)
        await stream.end()
    assert len(failed) == 2
    for _ in range(6):
        again = {"x-envoy-attempt-count": "3", "x-request-id": "r"}
        assert set(await envoy.get(headers=again)) == {A, B, C} - failed
    assert {(await envoy.get(headers={"x-request-id": "r"}))[0] for _ in range(6)} == {A, B, C}  # a new request


async def test_a_body_that_is_streamed_both_ways_comes_back_behind_the_headers(
    picker: Picker, envoy: Envoy
) -> None:
    picker.route("/p", A)
    asked = headers_of("/p", "POST")
    asked.protocol_config.request_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
    stream = envoy.open()
    await stream.show(asked)
    for piece, is_last in ((b"one", False), (b"two", True)):
        body = ProcessingRequest()
        body.request_body.body, body.request_body.end_of_stream = piece, is_last
        await stream.show(body)
    assert await stream.hosts() == [A]
    for piece, is_last in ((b"one", False), (b"two", True)):
        back = (await stream.answer()).request_body.response.body_mutation.streamed_response
        assert (back.body, back.end_of_stream) == (piece, is_last)
    await stream.end()


async def test_a_body_that_envoy_only_shows_goes_on_as_it_is(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    stream = await envoy.ask(method="POST")
    await stream.hosts()
    body = ProcessingRequest()
    body.request_body.body = b"all of it"
    await stream.show(body)
    answer = await stream.answer()
    assert answer.WhichOneof("response") == "request_body"
    assert not answer.request_body.response.HasField("body_mutation")
    await stream.end()
