"""Heads that come byte by byte: none of their bytes is searched or copied again with each that follows."""

import asyncio
from typing import Any, cast

import pytest

from slb.proxy import reader
from slb.proxy.downstream import Downstream
from slb.proxy.upload import Upload
from slb.upstreams import reply_reader
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request
from tests.support.waiting import eventually

GROWTH = 2.5


class Watched(bytearray):
    """Counts the bytes of it that are searched or copied."""

    touched = 0

    def find(self, wanted: Any, start: Any = 0, end: Any = None, /) -> int:
        found = super().find(wanted, start)
        self.touched += (found if found >= 0 else len(self)) - start
        return found

    def __add__(self, other: Any) -> "Watched":
        self.touched += len(self) + len(other)
        return self._with(other)

    def __iadd__(self, other: Any) -> "Watched":
        self.touched += len(other)
        self.extend(other)
        return self

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.touched += len(found) if isinstance(index, slice) else 1
        return found

    def _with(self, other: Any) -> "Watched":
        both = Watched(bytes(self) + bytes(other))
        both.touched = self.touched
        return both


class WatchedPattern:
    """A pattern that looks at all behind where it begins."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def search(self, data: Any, start: int = 0) -> Any:
        if isinstance(data, Watched):
            data.touched += len(data) - start
        return self._pattern.search(data, start)


@pytest.fixture(autouse=True)
def _patterns_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reader, reply_reader):
        monkeypatch.setattr(module, "_BARE_LF", WatchedPattern(cast("Any", module)._BARE_LF))


def touched(owner: Any, name: str, receive: Any, piece: bytes, times: int) -> int:
    """Bytes touched while `receive(piece)` is called so often, and `owner` holds what has come."""
    for _ in range(2):
        receive(piece)
    assert isinstance(getattr(owner, name), bytearray)  # which grows in place
    setattr(owner, name, Watched(getattr(owner, name)))
    for _ in range(times - 2):
        receive(piece)
    assert isinstance(getattr(owner, name), Watched)
    return int(getattr(owner, name).touched)


def the_client(proxy: Proxy) -> Downstream:
    (client,) = proxy.server.clients.connections
    return client


async def test_a_request_head_that_drips_is_read_once(proxy: Proxy) -> None:
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-Long: ")
    await eventually(lambda: bool(proxy.server.clients.connections) and bool(the_client(proxy)._buffer))
    client = the_client(proxy)
    first = touched(client, "_buffer", client.data_received, b"a", 4000)
    assert touched(client, "_buffer", client.data_received, b"a", 8000) <= GROWTH * first
    await wire.send(b"\r\n\r\n")
    assert (await wire.reply()).status == 200


async def test_requests_that_drip_in_behind_another_are_copied_once(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def wait(request: Request) -> None:
        await over.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    over = asyncio.Event()
    proxy = await proxies()
    origin: Origin = await origins(wait)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2")
    await eventually(lambda: bool(origin.requests) and bool(the_client(proxy)._buffer))
    client = the_client(proxy)
    first = touched(client, "_buffer", client.data_received, b"a", 4000)
    assert touched(client, "_buffer", client.data_received, b"a", 8000) <= GROWTH * first
    over.set()
    await wire.send(b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [(await wire.reply()).status for _ in range(2)] == [200, 200]
    assert [request.target for request in origin.requests] == ["/", "/2" + "a" * 12_000]


async def test_a_reply_head_that_drips_is_read_once(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def begin(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Long: ")
        await over.wait()
        await request.wire.send(b"\r\n\r\n")

    over = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(begin))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")

    def connection() -> Any:
        exchange = the_client(proxy).exchange if proxy.server.clients.connections else None
        return exchange.connection if exchange is not None else None

    await eventually(lambda: connection() is not None and bool(connection()._partial))
    first = touched(connection(), "_partial", connection().data_received, b"a", 4000)
    assert touched(connection(), "_partial", connection().data_received, b"a", 8000) <= GROWTH * first
    over.set()
    reply = await wire.reply()
    assert (reply.status, reply.one("X-Long")) == (200, "a" * 12_000)


async def test_a_body_that_drips_while_it_is_held_is_copied_once(proxies: MakeProxy, origins: MakeOrigin) -> None:
    origin = await origins()
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 12002\r\n\r\na")
    await eventually(lambda: bool(origin.requests))
    client = the_client(proxy)
    upload = cast("Upload", client.exchange and client.exchange.upload)
    first = touched(upload, "held", client.data_received, b"a", 4000)
    assert touched(upload, "held", client.data_received, b"a", 8000) <= GROWTH * first
    await wire.send(b"b")
    assert (await wire.reply()).status == 200
    assert origin.requests[0].whole == b"a" * 12_001 + b"b"
