"""A proxy between a strict witness and a strict client, kept over thousands of examples on one event loop."""

import asyncio
import os
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.proxy.harness import Proxy
from tests.proxy.strict import Message, read_body, read_reply, read_request
from tests.support.waiting import eventually

_STEP = 0.002
"""Seconds of silence after which, everything being on one loop, nothing more is on its way."""

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request. False: the connection is to be closed."""


class Witness:
    """The only upstream. Keeps what it was sent; answers each request with its target. `play` is the answer
    to requests for `/play`."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.play: Play | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> "Witness":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.member = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the proxy takes requests back by closing
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        message = await read_request(reader)
        if message is None:
            return False
        self.seen.append(message)
        if message.faults:
            return False
        target = message.first.split(b" ")[1]
        if target == b"/play" and self.play is not None:
            return await self.play(reader, writer)
        if message.all(b"expect"):
            send(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
        await read_body(reader, message, bodiless=False)
        if message.faults or not message.whole:
            return False
        body = b"" if message.first.startswith(b"HEAD ") else target
        send(writer, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), body))
        await writer.drain()
        return True


class Rig:
    """`complaints`: whatever came to the event loop's handler of last resort."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._clean = 0

    async def start(self, **settings: Any) -> "Rig":
        asyncio.get_running_loop().set_exception_handler(self._complain)
        self.sockets = open_sockets()
        self.witness = await Witness().start()
        self.proxy = await Proxy(access_log="off", **settings).start()
        return self

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        trace = traceback.format_exception(error) if error is not None else []
        self.complaints.append(f"{context.get('message')}: {''.join(trace)}"[-2000:])

    def route(self, **settings: str) -> None:
        self.proxy.route("/", self.witness.member, **settings)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.proxy.address, limit=1 << 20)

    async def exchange(
        self, pieces: Sequence[bytes], to_head: bool, enough: Callable[[int], bool]
    ) -> list[Message]:
        """Send on a new connection; what came back until it closed, or nothing more came and `enough(final
        replies)` held."""
        reader, writer = await self.connect()
        replies: list[Message] = []
        collecting = asyncio.create_task(self._collect(reader, to_head, replies))
        with suppress(ConnectionError):
            for piece in pieces:
                send(writer, piece)
                await asyncio.sleep(0)
        before = -1
        for _ in range(1000):
            await asyncio.sleep(_STEP)
            if collecting.done() or (before == len(replies) and enough(len(final(replies)))):
                break
            before = len(replies)
        else:
            raise AssertionError(f"neither an answer nor an end: {replies}")
        writer.transport.abort()
        await collecting
        return replies

    async def _collect(self, reader: asyncio.StreamReader, to_head: bool, replies: list[Message]) -> None:
        while (reply := await read_reply(reader, to_head)) is not None:
            replies.append(reply)
            if not reply.whole:
                return

    async def check_clean(self) -> None:
        """A plain request gets its own answer, and nothing has complained."""
        self._clean += 1
        target = b"/clean-%d" % self._clean
        request = b"GET %b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % target
        replies = await self.exchange([request], False, lambda count: count > 0)
        assert [(reply.status, reply.body, reply.faults) for reply in replies] == [(200, target, [])]
        assert self.complaints == []

    async def at_rest(self) -> None:
        """No slot, no client and no busy upstream connection is left; deadlines only of idle ones."""
        await self.proxy.at_rest()
        server = self.proxy.server
        await eventually(lambda: not server.clients.connections, what="client connections are left")
        pools = server.context.pools
        await eventually(lambda: all(pool.open == len(pool.idle) for pool in pools), what="busy connections")
        idle = {connection for pool in pools for connection in pool.idle}
        assert {item for slot in server.context.wheel._slots for item in slot} <= idle

    async def abandon(self) -> None:
        """End everything, whatever its state."""
        await self.proxy.stop()
        await self.witness.stop()

    async def stop(self) -> None:
        """All ended, all sockets closed."""
        await self.at_rest()
        await self.abandon()
        await eventually(lambda: not any(self.proxy.server.context.wheel._slots), what="the wheel holds something")
        await eventually(lambda: open_sockets() <= self.sockets, what="sockets are left")
        assert self.complaints == []


def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, unless the other side has ended the connection: uvloop raises RuntimeError then."""
    if not writer.is_closing():
        writer.write(data)


def open_sockets() -> int:
    """How many this process has; other descriptors are the event loop's own affair."""
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    return sum(link.is_symlink() and str(link.readlink()).startswith("socket:") for link in links)


def final(replies: Sequence[Message]) -> list[Message]:
    """Those that are not 1xx."""
    return [reply for reply in replies if not reply.faults and reply.first[9:10] != b"1"]
