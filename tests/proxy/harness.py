"""Both ends of the proxy on real sockets: a raw client, an origin that plays a script, and the proxy between."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, cast

import orjson

from slb.addresses import AddressRules
from slb.admission.gates import Gates
from slb.control.connection import Connection
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.loading import load_settings
from slb.model import RouteRecord
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.observe.throttle import Throttle
from slb.proxy.listener import DrainTiming, ProxyServer
from slb.routing.mirror import Mirror
from slb.routing.rings import Rings
from tests.support.waiting import eventually, soon

PATIENCE = 10.0
NO_REDIS = "unix:///nowhere/redis.sock"
"""Only routes that the fleet counts need one, and tests of them bring their own."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Reply:
    """A reply as a client sees it, body decoded by its framing."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name: str) -> str | None:
        """The value of a header that stands at most once."""
        found = self.all(name)
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def reason(self) -> str:
        """slb's own reason code."""
        return str(orjson.loads(self.body)["error"])


class Wire:
    """One end of a connection: sends bytes, reads messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[str, list[tuple[str, str]]]:
        """First line and headers of the next message. Raises IncompleteReadError at the end of the connection."""
        raw = await soon(self.reader.readuntil(b"\r\n\r\n"))
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        return first, [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    async def reply(self, method: str = "GET") -> Reply:
        """The next reply, 1xx included; the body ends as RFC 9112 sends."""
        first, headers = await self.head()
        status = int(first.split(" ")[1])
        reply = Reply(status, headers, b"")
        if method != "HEAD" and status >= 200 and status not in (204, 304):
            reply.body = await self.body(reply)
        return reply

    async def body(self, message: Reply) -> bytes:
        """The body behind a head already read."""
        if message.one("Transfer-Encoding") is not None:
            return b"".join([piece async for piece in self.chunks()])
        length = message.one("Content-Length")
        if length is not None:
            return await soon(self.reader.readexactly(int(length)))
        return await soon(self.reader.read())

    async def chunks(self) -> Any:
        """Each chunk as it comes."""
        while True:
            size = int(await soon(self.reader.readuntil(b"\r\n")), 16)
            data = await soon(self.reader.readexactly(size + 2))
            if not size:
                return
            yield data[:-2]

    async def get(self, path: str = "/", **headers: str) -> Reply:
        """A GET and its reply."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        await self.send(f"GET {path} HTTP/1.1\r\nHost: example.test\r\n{lines}\r\n".encode())
        return await self.reply()

    async def ended(self) -> bool:
        """Whether the other side ends the connection, cleanly or not, with nothing more sent."""
        with contextlib.suppress(ConnectionError):
            return await soon(self.reader.read()) == b""
        return True

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """End the connection as a crash does."""
        self.writer.transport.abort()


class Request:
    """A request as an origin sees it."""

    def __init__(self, line: str, headers: list[tuple[str, str]], wire: Wire) -> None:
        self.line = line
        self.method, self.target, self.version = line.split(" ")
        self.headers = headers
        self.wire = wire
        self.whole = b""

    def all(self, name: str) -> list[str]:
        return Reply(0, self.headers, b"").all(name)

    def one(self, name: str) -> str | None:
        return Reply(0, self.headers, b"").one(name)

    async def body(self) -> bytes:
        """All of the request's body."""
        framed = self.one("Transfer-Encoding") is not None or self.one("Content-Length") is not None
        return await self.wire.body(Reply(0, self.headers, b"")) if framed else b""


Handler = Callable[[Request], Awaitable[None]]


async def answer_ok(request: Request) -> None:
    """Read the body, answer ok."""
    request.whole = await request.body()
    await request.wire.send(OK)


def sends(raw: bytes) -> Handler:
    """An upstream that reads the body, and answers with just these bytes."""

    async def handle(request: Request) -> None:
        await request.body()
        await request.wire.send(raw)

    return handle


async def wait_for_end(request: Request) -> None:
    """An upstream that never answers, until its request is taken back."""
    await request.wire.ended()


class Origin:
    """An upstream, of https where it has a `tls` context. `handle` is called for each request head; what it raises
    because a peer left is expected."""

    def __init__(self, handle: Handler = answer_ok, tls: ssl.SSLContext | None = None) -> None:
        self.handle = handle
        self._tls = tls
        self.requests: list[Request] = []
        self.connections = 0
        self.open = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, port: int = 0) -> "Origin":
        """Listen there; on a free port with 0."""
        self._server = await asyncio.start_server(self.accept, "127.0.0.1", port, limit=1 << 20, ssl=self._tls)
        scheme = "https://" if self._tls else ""
        self.member = f"{scheme}127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        wire = Wire(reader, writer)
        try:
            while True:
                first = await reader.readuntil(b"\r\n\r\n")
                line, *lines = first[:-4].decode("latin-1").split("\r\n")
                pairs = [(name, value.strip()) for name, _, value in (each.partition(":") for each in lines)]
                request = Request(line, pairs, wire)
                self.requests.append(request)
                await self.handle(request)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, TimeoutError):
            pass  # the other side left, or the test is over
        finally:
            self.open -= 1
            writer.close()
            self._tasks.discard(task)

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Mine(asyncio.Protocol):
    """An application that answers whatever it is given, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine")
        self._transport.close()


class Recorded:
    """An application, and what it is given."""

    def __init__(self, application: asyncio.Protocol, received: list[bytes]) -> None:
        self._application = application
        self._received = received

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._application.data_received(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._application, name)


QUICK = DrainTiming(handshakes=0.02, quiet=0.05)


class Proxy:
    """A ProxyServer on a free port with a mirror the test fills by hand. `redis`: the URL of the Redis in which it
    shares its slots; what follows Redis otherwise is not there. `name`: its id there. `patience`: how long it
    may be silent before this one decides alone, and half of it the budget; much more than by default, for the
    machine may be busy. `ahead`: seconds that the policies' clock is ahead of the others, for tests that need not
    wait."""

    def __init__(
        self,
        redis: str = NO_REDIS,
        name: str = "harness",
        patience: float = PATIENCE,
        drain: DrainTiming = QUICK,
        **settings: Any,
    ) -> None:
        self._drain = drain
        self._timing = LaneTiming(budget=patience / 2, silence=patience)
        self._redis = redis
        self._name = name
        self._tasks: list[asyncio.Task[None]] = []
        self.settings = load_settings({"access_log": "all", **settings}, {})
        self.rng = Random(7)
        self.ahead = 0.0
        self.mirror = Mirror(self.settings.route_settings, self.rng, self.clock, self.settings.zone)
        self.rings = Rings(self.mirror, self.clock)
        self.metrics = Metrics()
        self.lines: list[dict[str, Any]] = []
        self.handed_over: list[bytes] = []
        self.applications: Callable[[], asyncio.Protocol] | None = None
        self.own: list[tuple[str, int]] = []
        self._wires: list[Wire] = []

    async def start(self) -> "Proxy":
        self.log = AccessLog(
            self.settings.access_log, self.rng, self._write, refused=Throttle(self.settings.access_log_refused)
        )
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        self.address = bound.getsockname()
        rules = AddressRules((), lambda: self.own)
        self.connection = Connection(self._redis, self.metrics)
        self.ledger = Ledger(self.connection, self._name, self.metrics, self.rng, self._timing)
        self.gates = Gates(self.ledger, self.mirror, self.metrics, lambda: 1, self.rng)
        self.server = ProxyServer(
            self.settings,
            self.mirror,
            self.metrics,
            self.log,
            rules,
            self._serve_one,
            self.gates,
            self.rng,
            self._drain,
        )
        await self.server.start([bound])
        self._tasks.append(asyncio.create_task(self.rings.run()))
        if self._redis != NO_REDIS:
            self._tasks += [asyncio.create_task(self.ledger.run()), asyncio.create_task(self.gates.run())]
        return self

    def clock(self) -> float:
        """The policies' clock."""
        return time.monotonic() + self.ahead

    def _write(self, data: bytes) -> None:
        self.lines.extend(orjson.loads(line) for line in data.splitlines())

    def _serve_one(self) -> asyncio.Protocol:
        made = Mine() if self.applications is None else self.applications()
        return cast("asyncio.Protocol", Recorded(made, self.handed_over))

    def route(self, path: str, *upstreams: "Origin | str", **settings: str) -> None:
        """Make `path` lead to these alone."""
        members = frozenset(each if isinstance(each, str) else each.member for each in upstreams)
        self.mirror.update({path: RouteRecord(members, settings)}, {})

    async def connect(self, **options: Any) -> Wire:
        """A new connection; `ssl`, `server_hostname` and the like as asyncio has them."""
        reader, writer = await asyncio.open_connection(*self.address, limit=1 << 20, **options)
        self._wires.append(Wire(reader, writer))
        return self._wires[-1]

    async def get(self, path: str = "/", **headers: str) -> Reply:
        """A GET on a connection of its own."""
        wire = await self.connect()
        try:
            return await wire.get(path, **headers)
        finally:
            wire.close()

    def inflight(self) -> int:
        return sum(count for _, count in self.metrics.inflight())

    async def at_rest(self) -> None:
        """Wait until nothing is in flight."""
        await eventually(lambda: self.inflight() == 0, what="a slot was not given back")

    def counted(self) -> Mapping[tuple[int, str], int]:
        """(status, reason) -> requests."""
        found: dict[tuple[int, str], int] = {}
        for (_, _, status, reason), count in self.metrics.traffic.requests():
            found[status, reason] = found.get((status, reason), 0) + count
        return found

    def logged(self) -> list[dict[str, Any]]:
        """The access log so far."""
        self.log.flush()
        return self.lines

    async def stop(self) -> None:
        for wire in self._wires:
            wire.reset()
        await self.server.drain(0.5)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.connection.aclose()


MakeOrigin = Callable[..., Awaitable[Origin]]
MakeProxy = Callable[..., Awaitable[Proxy]]


def port_that_never_accepts() -> tuple[socket.socket, list[socket.socket], str]:
    """A listener whose backlog is full: connecting to it hangs, as to a host behind a silent firewall."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            filler.connect(listener.getsockname())
        fillers.append(filler)
    return listener, fillers, f"127.0.0.1:{listener.getsockname()[1]}"


def ask(proxy: Proxy, path: str = "/p", **headers: str) -> "asyncio.Task[Reply]":
    """A request that is sent meanwhile."""
    return asyncio.create_task(proxy.get(path, **headers))
