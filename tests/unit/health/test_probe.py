"""One active check on a real socket: what passes, what fails, where it never goes."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from slb.addresses import AddressRules
from slb.health.probe import Prober
from slb.model import HealthCheck, Upstream

NOWHERE = HealthCheck("/h?full=1", 1.0, 1, 1, timeout=5.0)


class Target:
    """A listener that answers each connection's first request with `answer`; None keeps it waiting."""

    def __init__(self) -> None:
        self.answer: bytes | None = b""
        self.asked: list[bytes] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> "Target":
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(Served(head).names.get("content-length", "0"))
            self.asked.append(head + await reader.readexactly(length))
            if self.answer is None:
                await reader.read()
            else:
                writer.write(self.answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the prober has left
        finally:
            writer.close()

    async def stop(self) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def target() -> AsyncIterator[Target]:
    made = await Target().start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def prober() -> AsyncIterator[Prober]:
    made = Prober(AddressRules((), lambda: ()))
    yield made
    await made.aclose()


class Served:
    """What the listener has read of one request."""

    def __init__(self, asked: bytes) -> None:
        head, _, self.body = asked.partition(b"\r\n\r\n")
        self.line, *fields = head.decode().split("\r\n")
        pairs = (field.partition(":") for field in fields)
        self.names = {name.lower(): value.strip() for name, _, value in pairs}


def reply(status: str, *lines: str, body: str = "") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", body)).encode()


async def fault(prober: Prober, member: str, check: HealthCheck = NOWHERE) -> str | None:
    return await prober.fault(Upstream.of(member), check)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(reply("200 OK", body="fine"), None, id="200"),
        pytest.param(reply("204 No Content"), None, id="204"),
        pytest.param(reply("302 Found", "Location: http://127.0.0.1:1/"), None, id="a redirect, not followed"),
        pytest.param(reply("399 Odd"), None, id="399"),
        pytest.param(reply("404 Not Found"), "status 404", id="404"),
        pytest.param(reply("500 No"), "status 500", id="500"),
        pytest.param(reply("503 No"), "status 503", id="503"),
    ],
)
async def test_2xx_and_3xx_pass(prober: Prober, target: Target, answer: bytes, expected: str | None) -> None:
    target.answer = answer
    assert await fault(prober, f"127.0.0.1:{target.port}") == expected


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200"], ids=["nothing", "ssh", "half"])
async def test_what_is_no_answer_is_a_failure(prober: Prober, target: Target, answer: bytes) -> None:
    target.answer = answer
    assert await fault(prober, f"127.0.0.1:{target.port}")


async def test_an_endless_body_is_not_waited_for(prober: Prober, target: Target) -> None:
    target.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nand so on"
    assert await fault(prober, f"127.0.0.1:{target.port}") is None


async def test_an_upstream_that_does_not_answer_fails_when_its_time_is_over(prober: Prober, target: Target) -> None:
    target.answer = None
    found = await fault(prober, f"127.0.0.1:{target.port}", NOWHERE._replace(timeout=0.05))
    assert found == "no answer within 0.05 s"


async def test_its_time_is_what_is_set_and_not_rounded(
    prober: Prober, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    call_at = loop.call_at
    waits: list[float] = []

    def noted(when: float, *rest: Any, **named: Any) -> asyncio.TimerHandle:
        waits.append(when - loop.time())
        return call_at(when, *rest, **named)

    monkeypatch.setattr(loop, "call_at", noted)
    target.answer = reply("200 OK")
    assert await fault(prober, f"127.0.0.1:{target.port}", NOWHERE._replace(timeout=5.001)) is None
    assert waits
    assert max(waits) <= 5.001


async def test_time_in_which_this_process_stood_still_is_not_the_upstreams(prober: Prober) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        time.sleep(0.5)  # noqa: ASYNC251  the loop stands still
        writer.write(reply("200 OK"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    member = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await fault(prober, member, NOWHERE._replace(timeout=0.4)) is None
    server.close()
    await server.wait_closed()


async def test_a_port_without_a_listener_is_a_failure(prober: Prober) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert "onnect" in str(await fault(prober, f"127.0.0.1:{bound.getsockname()[1]}"))


async def test_it_is_a_plain_get_of_the_path_as_written_on_a_connection_of_its_own(
    prober: Prober, target: Target
) -> None:
    target.answer = reply("200 OK", "Set-Cookie: a=b")
    check = NOWHERE._replace(path="/h%2Fx?a=%20b")
    for _ in range(2):
        assert await fault(prober, f"127.0.0.1:{target.port}", check) is None
    assert len(target.asked) == 2
    served = Served(target.asked[1])
    assert served.line == "GET /h%2Fx?a=%20b HTTP/1.1"
    assert served.names["host"] == f"127.0.0.1:{target.port}"
    assert served.names["user-agent"].startswith("slb/")
    assert served.names["accept-encoding"] == "identity"
    assert not {"cookie", "content-type", "content-length"} & served.names.keys()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(reply("200 OK", body="all is ready here"), None, id="it says so"),
        pytest.param(reply("200 OK", body="loading"), "no 'is ready' in the answer: 'loading'", id="it says else"),
        pytest.param(reply("204 No Content"), "no 'is ready' in the answer: ''", id="nothing"),
        pytest.param(reply("500 No", body="is ready"), "status 500", id="a status that fails"),
        pytest.param(
            reply("200 OK", body="\x1b[2J" + "x" * 9000),
            f"no 'is ready' in the answer: '\\x1b[2J{'x' * 96}...'",
            id="long, and what moves a cursor",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nit is ready, and goes on",
            None,
            id="an answer that goes on",
        ),
    ],
)
async def test_an_answer_has_the_text_in_it(
    prober: Prober, target: Target, answer: bytes, expected: str | None
) -> None:
    target.answer = answer
    check = NOWHERE._replace(body="is ready")
    assert await fault(prober, f"127.0.0.1:{target.port}", check) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param('{"status": "ok"}', None, id="it has it"),
        pytest.param('{"status": "loading"}', "status is 'loading', not 'ok'", id="it has another"),
        pytest.param('{"state": 1}', "no status in the answer: '{\"state\": 1}'", id="it has none"),
        pytest.param("ok", "the answer is no JSON: 'ok'", id="no JSON"),
        pytest.param('["ok"]', "no status in the answer: '[\"ok\"]'", id="a list"),
        pytest.param("[" * 9000, f"the answer is no JSON: '{'[' * 100}...'", id="deep"),
        pytest.param(f'{{"status": "ok", "x": "{"y" * 66000}"}}', "the answer is longer than 64 KiB", id="long"),
    ],
)
async def test_an_answer_in_json_has_the_value(
    prober: Prober, target: Target, body: str, expected: str | None
) -> None:
    target.answer = reply("200 OK", body=body)
    check = NOWHERE._replace(json="status=ok")
    assert await fault(prober, f"127.0.0.1:{target.port}", check) == expected


async def test_of_a_body_without_end_the_beginning_decides(prober: Prober, target: Target) -> None:
    target.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000
    found = await fault(prober, f"127.0.0.1:{target.port}", NOWHERE._replace(body="is ready"))
    assert found == f"no 'is ready' in the answer: '{'x' * 100}...'"


async def test_an_answer_that_breaks_off_before_it_says_enough_is_a_failure(prober: Prober, target: Target) -> None:
    target.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nis re"
    assert await fault(prober, f"127.0.0.1:{target.port}", NOWHERE._replace(body="is ready"))


async def test_a_check_may_post_json(prober: Prober, target: Target) -> None:
    target.answer = reply("200 OK", body='{"choices": [{"finish_reason": "length"}]}')
    post = '/v1/completions?x=%20 {"model": "m", "prompt": "\u00e9", "max_tokens": 1}'
    check = NOWHERE._replace(post=post, json="choices.0.finish_reason=length")
    assert await fault(prober, f"127.0.0.1:{target.port}", check) is None
    served = Served(target.asked[0])
    assert served.line == "POST /v1/completions?x=%20 HTTP/1.1"
    assert served.names["content-type"] == "application/json"
    assert served.names["content-length"] == str(len(served.body))
    assert served.body == '{"model": "m", "prompt": "\u00e9", "max_tokens": 1}'.encode()


async def test_addresses_that_are_never_upstreams_are_not_asked(target: Target) -> None:
    """Neither written as such nor hidden behind a name."""
    prober = Prober(AddressRules((), lambda: [("127.0.0.1", target.port)]))
    try:
        for host in ("127.0.0.1", "localhost"):
            assert "own listener" in str(await fault(prober, f"{host}:{target.port}"))
        assert "link-local" in str(await fault(prober, "169.254.169.254:80"))
    finally:
        await prober.aclose()
    assert target.asked == []


async def test_a_name_that_does_not_resolve_is_a_failure(prober: Prober) -> None:
    assert await fault(prober, "nowhere.invalid:80")


async def test_checks_of_one_name_wait_for_one_lookup_and_do_not_leave_one_behind_each(
    prober: Prober, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    answered = asyncio.Event()

    async def resolve(_: object, host: str, port: int, family: int) -> list[dict[str, object]]:
        nonlocal asked
        asked += 1
        await answered.wait()
        found = {"hostname": host, "host": "127.0.0.1", "port": port, "proto": 0, "flags": 0}
        return [{**found, "family": socket.AF_INET}]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", resolve)
    upstream = Upstream.of(f"slow.test:{target.port}")
    for _ in range(3):
        assert await prober.fault(upstream, NOWHERE._replace(timeout=0.02)) == "no answer within 0.02 s"
    assert asked == 1
    answered.set()
    target.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert await prober.fault(upstream, NOWHERE) is None
