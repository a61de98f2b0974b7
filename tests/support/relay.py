"""A relay in front of a unix socket that passes bytes on late, as a distant network would."""

import asyncio
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

_PIECE = 1 << 16


class Relay:
    """Use with `async with`. `url`: for `redis_url`; each byte takes `delay` seconds each way, which may be changed
    while it runs."""

    def __init__(self, socket: Path, delay: float) -> None:
        self.delay = delay
        self._socket = socket
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
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        self._directory.cleanup()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self._socket))
        self._writers += [back, writer]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while piece := await source.read(_PIECE):
                loop.call_later(self.delay, sink.write, piece)
        loop.call_later(self.delay, sink.close)
