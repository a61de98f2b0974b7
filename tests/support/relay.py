"""A relay in front of a unix socket: passes bytes on late, as a distant network would, and at any time to somewhere
else, as a failover does."""

import asyncio
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

_PIECE = 1 << 16


class Relay:
    """Use with `async with`. `url`: for `redis_url`; each byte takes `delay` seconds each way. Each connection goes
    where `target` was when it came."""

    def __init__(self, target: Path, delay: float = 0.0) -> None:
        self._delay = delay
        self._target: Path | None = target
        self._directory = TemporaryDirectory(prefix="slb-relay-")
        self._path = Path(self._directory.name) / "relay.sock"
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self._path}"

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_unix_server(self._accepted, self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.point_to(None)
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        self._directory.cleanup()

    async def _refuse(self) -> None:
        """Take no more connections. Those that have come are accepted first, in three turns of the loop: where
        a server is closed in between, Python 3.11 forgets the connection without closing it."""
        self._path.unlink()
        for _ in range(3):
            await asyncio.sleep(0)
        self._server.close()

    def point_to(self, target: Path | None) -> None:
        """Close all connections; the next go there, or nowhere."""
        self._target = target
        for writer in self._writers:
            writer.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            if self._target is None:
                raise ConnectionRefusedError
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:  # nothing listens there
            writer.close()
            return
        self._writers.append(back)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the other end has gone: so does this one
            while piece := await source.read(_PIECE):
                loop.call_later(self._delay, sink.write, piece)
        loop.call_later(self._delay, sink.close)
