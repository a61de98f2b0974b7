"""Every answer is in one form: with the request's id, and every failure by its name."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from slb.api.application import make_data_api
from slb.api.replies import Answered, outage_reply
from slb.errors import RedisUnavailable
from tests.unit.api.conftest import Api, ApiMaker

CLOSES = b"\r\nConnection: close\r\n"
"""Stands in each answer that ends its connection (RFC 9112, 9.6)."""


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/routes", 200), ("/nowhere", 404)])
async def test_the_requests_id_is_echoed_on_every_answer(api: Api, path: str, status: int) -> None:
    answer = await api.call("GET", path, headers={"X-Request-Id": "abc-1"})
    assert (answer.status, answer.headers["X-Request-Id"]) == (status, "abc-1")
    assert answer.headers["Server"] == "slb"


async def test_a_request_without_a_usable_id_is_given_one(api: Api) -> None:
    given = [
        (await api.call("GET", "/healthz", headers=headers)).headers["X-Request-Id"]
        for headers in ({}, {"X-Request-Id": ""}, {"X-Request-Id": "a b"}, {"X-Request-Id": "x" * 129})
    ]
    assert len(set(given)) == 4
    assert all(len(each) == 32 for each in given)


async def test_an_unknown_endpoint_and_an_unknown_method_are_named(api: Api) -> None:
    unknown = await api.call("GET", "/nowhere", headers={"X-Request-Id": "abc-1"})
    assert (unknown.status, unknown.json) == (
        404,
        {"error": "no_route", "detail": "there is no endpoint /nowhere", "request_id": "abc-1"},
    )
    wrong = await api.call("GET", "/register")
    assert (wrong.status, wrong.json["error"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "DELETE,POST"
    assert (await api.call("PUT", "/status")).status == 405


async def test_an_unexpected_exception_is_logged_and_the_client_gets_its_id_only(serve: ApiMaker) -> None:
    async def broken(open_metrics: bool) -> bytes:
        raise ValueError("hush")

    api = await serve(metrics_text=broken)
    with capture_logs() as logs:
        answer = await api.call("GET", "/metrics", headers={"X-Request-Id": "abc-1"})
    assert (answer.status, answer.json["error"], answer.json["request_id"]) == (500, "internal", "abc-1")
    assert b"hush" not in answer.body
    (line,) = [each for each in logs if each["event"] == "unexpected_exception"]
    assert (line["log_level"], line["request_id"], line["exc_info"]) == ("error", "abc-1", True)


@pytest.mark.parametrize(
    ("method", "reached", "detail"),
    [
        ("GET", True, "Refused"),
        ("PUT", True, "Refused; it may or may not have been written, asking again is safe"),
        ("PUT", False, "Refused; nothing was written, asking again is safe"),
    ],
)
def test_while_redis_is_away_the_detail_is_what_may_have_been_written(
    method: str, reached: bool, detail: str
) -> None:
    reply = outage_reply(RedisUnavailable("Refused.", reached), method, "id")
    assert isinstance(reply.body, bytes)
    assert orjson.loads(reply.body)["detail"] == detail


async def test_answers_to_handed_over_connections_close(data_api: Api) -> None:
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/_slb/healthz", None),
        ("POST", "/register", {"path": "/p1", "target": "10.0.0.1"}),
        ("POST", "/register", {}),
        ("GET", "/nowhere", None),
    ]
    for method, path, body in asked:
        assert (await data_api.call(method, path, body)).headers["Connection"] == "close"


async def test_the_data_listener_offers_nothing_else(data_api: Api) -> None:
    for path in ("/status", "/routes", "/metrics", "/healthz"):
        assert (await data_api.call("GET", path)).status == 404


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
    b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: wonders\r\nContent-Length: 2\r\n\r\n{}",
]


@pytest.mark.parametrize("make", [None, make_data_api])
@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
async def test_what_is_not_http_gets_a_4xx_in_our_form_and_no_traceback(
    serve: ApiMaker, make: Callable[..., Any] | None, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    api = await (serve(make) if make else serve())
    with capture_logs() as logs, caplog.at_level(logging.DEBUG, "aiohttp"):
        answer = await api.raw(data + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4")
    assert b'"error":' in body
    assert b"X-Request-Id: " in head
    assert CLOSES in answer
    assert not [each for each in logs if each.get("exc_info") or each["log_level"] == "error"]
    assert not caplog.records


OTHER_VERSIONS = [
    b"GET /healthz\r\n\r\n",
    b"GET /healthz\n",
    b"GET /healthz HTTP/1.2\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /healthz HTTP/2.0\r\n\r\n",
    b"GET /healthz HTTP/3\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\nGET /healthz HTTP/0.9\r\n\r\n",
]


@pytest.mark.parametrize("make", [None, make_data_api])
@pytest.mark.parametrize("data", OTHER_VERSIONS, ids=range(len(OTHER_VERSIONS)))
async def test_other_versions_of_http_are_refused(
    serve: ApiMaker, make: Callable[..., Any] | None, data: bytes
) -> None:
    answer = await (await (serve(make) if make else serve())).raw(data)
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert b'"error":"http_version"' in answer
    assert CLOSES in answer


@pytest.mark.parametrize("version", [b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3"])
async def test_other_versions_are_refused_behind_a_first_request_too(api: Api, version: bytes) -> None:
    reader, writer = await asyncio.open_connection(api.host, api.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
    writer.write(b"GET / " + version + b"\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert CLOSES in answer
    writer.close()


async def test_answers_are_in_the_version_slb_speaks(api: Api) -> None:
    answer = await api.raw(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert CLOSES in answer, "an HTTP/1.1 reply without it keeps the connection (RFC 9112, 9.3)"


@pytest.mark.parametrize("line", [b"CONNECT h:1 HTTP/1.1", b"POST /healthz HTTP/1.0"])
async def test_a_refused_method_is_answered_with_close(api: Api, line: bytes) -> None:
    answer = await api.raw(line + b"\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4")
    assert CLOSES in answer


async def test_a_first_line_may_come_in_pieces_behind_empty_lines(api: Api) -> None:
    reader, writer = await asyncio.open_connection(api.host, api.port)
    for piece in (b"\r\n", b"G", b"ET /heal", b"thz HTTP/1.1\r", b"\nHost: 127.0.0.1\r\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    writer.close()


@pytest.mark.parametrize("data", [b"", b"GET", b"GET / HTTP/1.1\r\nHo"])
async def test_a_first_head_that_does_not_come_is_a_timeout(serve: ApiMaker, data: bytes) -> None:
    answer = await (await serve(settings={"head_timeout": "100ms"})).raw(data)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"error":"request_timeout"' in answer


async def test_a_connection_may_be_idle_between_requests_for_longer_than_a_head_may_take(serve: ApiMaker) -> None:
    api = await serve(settings={"head_timeout": "50ms"})
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    reader, writer = await asyncio.open_connection(api.host, api.port)
    writer.write(request + b"\r\n")
    await reader.readuntil(b"}")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    writer.write(request + b"Connection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_first_line_without_end_is_too_long(serve: ApiMaker) -> None:
    answer = await (await serve(settings={"max_request_line": 100})).raw(b"GET /" + b"x" * 200)
    assert answer.startswith(b"HTTP/1.1 414 ")
    assert b'"error":"uri_too_long"' in answer


@pytest.mark.parametrize("make", [None, make_data_api])
async def test_every_answer_is_passed_on(serve: ApiMaker, make: Callable[..., Any] | None) -> None:
    answered: list[Answered] = []
    api = await serve(*([make] if make else []), on_answer=answered.append, settings={"api_token": SecretStr("t")})
    path = "/_slb/healthz" if make else "/healthz"
    token = {"Authorization": "Bearer t"}
    await api.call("GET", f"{path}?a=b", headers={"X-Request-Id": "abc-1"})
    await api.call("POST", "/register", {"path": "/p"}, headers={"X-Request-Id": "abc-2", **token})
    await api.call("POST", "/register", headers={"X-Request-Id": "abc-3"})
    await api.raw(
        b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer t\r\nExpect: wonders\r\n"
        b"Connection: close\r\n\r\n"
    )
    await api.raw(b"GET / HTTP/2.0\r\n\r\n")
    assert [each[:4] for each in answered] == [
        ("GET", path, 200, ""),
        ("POST", "/register", 400, "bad_request"),
        ("POST", "/register", 401, "unauthorized"),
        ("POST", "/register", 400, "bad_request"),
        ("", "", 505, "http_version"),
    ]
    assert [each.request_id for each in answered[:3]] == ["abc-1", "abc-2", "abc-3"]
    assert all(each.client == "127.0.0.1" and each.seconds >= 0 for each in answered)


async def test_a_client_that_leaves_in_the_middle_of_its_body_breaks_nothing(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logs, caplog.at_level(logging.WARNING):
        _, writer = await asyncio.open_connection(api.host, api.port)
        writer.write(b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await api.call("GET", "/healthz")).status == 200
    assert not [each for each in logs if each["log_level"] == "error"]
    assert not caplog.records
