"""The short way answers as the long one does, and takes nothing that is not plain."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from slb.api.replies import Answered
from slb.api.shortcut import Shortcut
from slb.config import Settings
from slb.errors import RedisUnavailable, ScriptFailed
from slb.quotas import Admitted, Decision, Wait
from slb.tokens import Token, digest_of
from tests.support.waiting import eventually, soon
from tests.unit.api.conftest import Api, ApiMaker

CALLERS = {"/schedule": ("quota",)}
PLAIN = b"POST /schedule HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"


async def echo(body: bytes) -> Any:
    return {"body": body.decode()}


def shortcut(answered: list[Answered] | None = None, **settings: Any) -> Shortcut:
    made = Settings(**settings)
    return Shortcut({"/schedule": echo}, lambda: made, (answered if answered is not None else []).append, CALLERS)


def test_a_plain_request_with_the_right_token_is_read() -> None:
    asked = shortcut().read(PLAIN, "127.0.0.1")
    assert asked is not None
    assert (asked.path, asked.body) == ("/schedule", b"{}")
    assert re.fullmatch("[0-9a-f]{32}", asked.request_id)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"POST", b"GET"),
        (b"/schedule", b"/advice"),
        (b"/schedule", b"/schedule?x=1"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Host: 127.0.0.1\r\n", b""),
        (b"Host: 127.0.0.1", b"Host: 127.0.0.1\r\nHost: 127.0.0.1"),
        (b"Host: 127.0.0.1", b"Host: slb.example"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 2"),
        (b"Content-Length: 2", b"Content-Length: +2"),
        (b"Content-Length: 2", b"Content-Length: 3"),
        (b"Content-Length: 2", b"Content-Length: 1"),
        (b"Content-Length: 2", b"Content-Length : 2"),
        (b"Content-Length: 2", b"Content-Length: 2\r\n folded"),
        (b"Content-Length: 2\r\n", b"Content-Length: 2\n"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nTransfer-Encoding: chunked"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nExpect: 100-continue"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nUpgrade: h2c"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nConnection: close"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nX-Forwarded-For: 127.0.0.1"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nOrigin: http://evil.example"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nX: \xc3\xa4"),
        (b"Content-Length: 2", b"Content-Length: 2\r\nX: a\x00b"),
        (b"Content-Length: 2", b"Content-Length: 2\r\n" + b"X: " + b"a" * 5000),
        (b"{}", b"{}POST"),
    ],
)
def test_whatever_is_not_plain_or_not_allowed_is_for_the_long_way(old: bytes, new: bytes) -> None:
    assert shortcut().read(PLAIN.replace(old, new), "127.0.0.1") is None


def test_access_is_decided_for_every_peer_and_every_token_anew() -> None:
    short = shortcut()
    assert short.read(PLAIN, "127.0.0.1") is not None
    assert short.read(PLAIN, "10.0.0.1") is None
    settings = [Settings(api_token=SecretStr("one"))]
    guarded = Shortcut({"/schedule": echo}, lambda: settings[0], lambda _: None, CALLERS)
    bearer = PLAIN.replace(b"Host", b"Authorization: Bearer one\r\nHost")
    assert guarded.read(PLAIN, "127.0.0.1") is None
    assert guarded.read(bearer, "10.0.0.1") is not None
    settings[0] = Settings(api_token=SecretStr("two"))
    assert guarded.read(bearer, "10.0.0.1") is None


async def test_whose_token_it_is_is_told_and_one_without_the_right_is_for_the_long_way() -> None:
    tokens = {
        "caller": Token(rights=("quota",), sha256=(digest_of("one"),)),
        "grafana": Token(rights=("metrics",), sha256=(digest_of("two"),)),
    }
    answered: list[Answered] = []
    short = shortcut(answered, tokens=tokens)
    asked = short.read(PLAIN.replace(b"Host", b"Authorization: Bearer one\r\nHost"), "10.0.0.1")
    assert asked is not None
    await short.answer(asked, "10.0.0.1")
    assert [each.token for each in answered] == ["caller"]
    assert short.read(PLAIN.replace(b"Host", b"Authorization: Bearer two\r\nHost"), "10.0.0.1") is None


async def test_an_answer_is_whole_and_is_passed_on() -> None:
    answered: list[Answered] = []
    short = shortcut(answered)
    asked = short.read(PLAIN.replace(b"Host", b"X-Request-Id: mine\r\nHost"), "127.0.0.1")
    assert asked is not None
    head, _, body = (await short.answer(asked, "127.0.0.1")).partition(b"\r\n\r\n")
    assert orjson.loads(body) == {"body": "{}"}
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"X-Request-Id: mine" in head
    assert [(each.path, each.status, each.reason, each.request_id) for each in answered] == [
        ("/schedule", 200, "", "mine")
    ]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RedisUnavailable("gone"), b"503", "redis_down"),
        (ScriptFailed("WRONGTYPE"), b"500", "script_failed"),
        (ZeroDivisionError(), b"500", "internal"),
    ],
)
async def test_a_failure_has_its_name(error: Exception, status: bytes, reason: str) -> None:
    async def fail(_: bytes) -> Any:
        raise error

    answered: list[Answered] = []
    settings = Settings()
    short = Shortcut({"/schedule": fail}, lambda: settings, answered.append, CALLERS)
    asked = short.read(PLAIN, "127.0.0.1")
    assert asked is not None
    reply = await short.answer(asked, "127.0.0.1")
    assert reply.split()[1] == status
    assert orjson.loads(reply.partition(b"\r\n\r\n")[2])["error"] == reason
    assert (b"Retry-After: 1" in reply) is (status == b"503")
    assert answered[0].reason == reason


class Slow:
    """A quota router whose decisions wait until they are let go."""

    lease = 30_000

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.let_go = asyncio.Event()

    async def schedule(self, estimate: int, models: Any, key: str) -> Decision:
        self.asked.append(estimate)
        await self.let_go.wait()
        return Wait(estimate) if estimate > 5 else Admitted("m", f"t{estimate}")


Serve = Callable[[], Awaitable[tuple[Api, Slow]]]


@pytest.fixture
def slow(serve: ApiMaker) -> Serve:
    """The API in front of such a router."""

    async def start() -> tuple[Api, Slow]:
        router: Any = Slow()
        return await serve(quota=router), router

    return start


def request(estimate: int, more: bytes = b"") -> bytes:
    body = b'{"estimated_tokens": %d}' % estimate
    return b"POST /schedule HTTP/1.1\r\nHost: 127.0.0.1\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


async def test_requests_sent_ahead_are_answered_in_turn_by_whichever_way(slow: Serve) -> None:
    api, router = await slow()
    router.let_go.set()
    lines = (
        request(1)
        + request(700)
        + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        + request(2, b"X: \xc3\xa4\r\n")
    )
    reply = await api.raw(lines + request(3, b"Connection: close\r\n"))
    assert re.findall(rb'"(?:task_id|wait_for_ms|status)":"?(\w+)', reply) == [b"t1", b"700", b"ok", b"t2", b"t3"]


async def test_one_after_another_on_one_connection_while_the_first_is_decided(slow: Serve) -> None:
    api, router = await slow()
    reader, writer = await asyncio.open_connection(api.host, api.port)
    writer.write(request(1))
    await eventually(lambda: bool(router.asked))
    writer.write(request(2))
    writer.write(request(3)[:30])
    await asyncio.sleep(0.05)
    assert router.asked == [1]
    router.let_go.set()
    writer.write(request(3)[30:] + request(4, b"Connection: close\r\n"))
    reply = await soon(reader.read(), 20)
    writer.close()
    assert re.findall(rb'"task_id":"(\w+)', reply) == [b"t1", b"t2", b"t3", b"t4"]


async def test_a_refusal_is_the_same_by_both_ways(slow: Serve) -> None:
    api, router = await slow()
    router.let_go.set()
    bodies = []
    for more in (b"", b"X: \xc3\xa4\r\n"):
        bad = request(1, b"X-Request-Id: r\r\n" + more).replace(b"1}", b"x}")
        reply = await api.raw(bad + request(2, b"Connection: close\r\n"))
        bodies.append(reply.partition(b"\r\n\r\n")[2].partition(b"HTTP/1.1")[0])
        assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert bodies[0] == bodies[1]


async def test_a_connection_that_only_the_short_way_has_answered_ends_when_it_is_idle(serve: ApiMaker) -> None:
    router: Any = Slow()
    router.let_go.set()
    api = await serve(quota=router, settings={"keepalive_timeout": "200ms"})
    reply = await api.raw(request(1))
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n")
    assert reply.endswith(b'"lease_ttl_ms":30000}')
