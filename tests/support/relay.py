"""A relay in front of Redis whose target can be changed: what a failover is to a client."""

import asyncio
from pathlib import Path
from types import TracebackType

_PIECE = 1 << 16


class Relay:
    """Use with `async with`. Listens on `socket`; each connection goes to `target`, as it was when it came."""

    def __init__(self, socket: Path, target: Path) -> None:
        self._socket = socket
        self._target: Path | None = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """For `redis_url`."""
        return f"unix://{self._socket}"

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_unix_server(self._serve, self._socket)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.point_to(None)

    def point_to(self, target: Path | None) -> None:
        """Close all connections; the next go there, or nowhere."""
        self._target = target
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._target is None:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        self._open |= {writer, up_writer}
        await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))
        self._open -= {writer, up_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # the other end has gone: so does this one
    finally:
        writer.close()
