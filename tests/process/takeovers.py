"""What tests of a takeover share: clients that count what fails, and a process that is held before it serves."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from slb.control.disk import table_file
from slb.demo.processes import Process
from tests.process.commands import Commands, Serving
from tests.process.serving import events
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

_GET = b"GET /p HTTP/1.1\r\nHost: h\r\n"


def hosts(serving: Serving) -> list[str]:
    """The flags that let another process listen where `serving` does."""
    return ["--listen", urlsplit(serving.url).netloc, "--api", urlsplit(serving.api).netloc]


async def take_over(
    slb: Commands, valkey: Valkey, before: Serving, *arguments: str, env: Mapping[str, str] | None = None
) -> Serving:
    return await slb.serve(*hosts(before), "--takeover", *arguments, redis=valkey.url, env=env)


async def begin_takeover(slb: Commands, valkey: Valkey, before: Serving, *arguments: str) -> Process:
    """A process that has the sockets and does not serve: Redis is away, and it finds no table on the disk."""
    valkey.kill()
    _spoil(table_file(slb.directory / "data", valkey.url))
    begun = len(events(before, "takeover_begins"))
    process = await start_takeover(slb, valkey, before, *arguments)
    await eventually(lambda: len(events(before, "takeover_begins")) > begun, 30)
    return process


def _spoil(table: Path) -> None:
    """Let no process read a table there, nor write one: the old one may be about to."""
    while not table.is_dir():
        table.unlink(missing_ok=True)
        with suppress(FileExistsError):
            table.mkdir()


async def start_takeover(slb: Commands, valkey: Valkey, before: Serving, *arguments: str) -> Process:
    flags = [*hosts(before), "--data-dir", str(slb.directory / "data"), "--redis", valkey.url]
    return await slb.start("serve", *flags, "--takeover", *arguments)


class Traffic:
    """Clients of one address, of which half make each connection anew. `answers`: how many requests had one;
    `failed`: what the others met instead."""

    def __init__(self, serving: Serving) -> None:
        parts = urlsplit(serving.url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self.answers = 0
        self.failed: list[str] = []

    async def more(self, count: int = 200) -> None:
        """Wait for so many more answers."""
        wanted = self.answers + count
        await eventually(lambda: self.answers >= wanted, 30, f"{count} more answers, {self.failed[:3]}")

    async def client(self, keeps: bool) -> None:
        while True:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            is_new = True
            try:
                while await self._request(reader, writer, keeps, is_new):
                    is_new = False
            finally:
                writer.close()

    async def _request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keeps: bool, is_new: bool
    ) -> bool:
        """Whether the connection is to be used again. One that was closed while it was idle is no failure."""
        reply = b""
        with suppress(OSError, asyncio.IncompleteReadError):
            writer.write(_GET + (b"" if keeps else b"Connection: close\r\n") + b"\r\n")
            reply = await reader.readuntil(b"\r\n\r\n")
            length = int(reply.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        if reply.startswith(b"HTTP/1.1 200 "):
            self.answers += 1
        elif reply or is_new:
            self.failed.append(reply[:40].decode() or "no answer")
        return keeps and bool(reply) and b"connection: close" not in reply.lower()


@asynccontextmanager
async def traffic(serving: Serving, clients: int = 8) -> AsyncIterator[Traffic]:
    """Without a break, until the end of the block."""
    running = Traffic(serving)
    tasks = [asyncio.create_task(running.client(number % 2 == 0)) for number in range(clients)]
    try:
        await running.more()
        yield running
        await running.more()
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.exception() for task in ended] == [], "a client could not connect"


def offers(directory: Path) -> list[str]:
    return sorted(each.name for each in (directory / "data").glob("takeover-*"))
