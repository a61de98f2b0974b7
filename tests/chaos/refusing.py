"""A relay in front of Redis that makes it refuse commands, as a server does while a cluster or a failover moves.

It stands for a proxy or a managed service in front of one Redis, which hands such replies on while it changes what
is behind it. What is refused is turned into a script that answers so: the reply comes from the real server, in its
order among the others.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

REPLIES = (
    "MOVED 1234 127.0.0.1:1",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN The cluster is down",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
)
"""As servers write them."""

_SERVED = frozenset(b"PING SELECT AUTH HELLO CLIENT CONFIG SUBSCRIBE PSUBSCRIBE UNSUBSCRIBE MULTI EXEC".split())
"""Commands without keys: any server serves them."""

_PIECE = 1 << 16


class Refusing:
    """Use with `async with`: listens on `path`. `reply`: what keyed commands are answered with, None: passes on."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.reply: str | None = None
        self.refused = 0
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Refusing":
        self._server = await asyncio.start_unix_server(self._accepted, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cuts all its connections."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.close()
            return
        self._writers += [back, writer]
        for passing in (self._commands(reader, back), _replies(there, writer)):
            task = asyncio.create_task(passing)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _commands(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                words = await _command(source)
                if self.reply is not None and words[0].upper() not in _SERVED:
                    self.refused += 1
                    words = [b"EVAL", b"return redis.error_reply(ARGV[1])", b"0", self.reply.encode()]
                sink.write(b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)]))
        sink.close()


async def _command(source: asyncio.StreamReader) -> list[bytes]:
    """The words of the next one. Clients send arrays of bulk strings."""
    count = int((await source.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await source.readuntil(b"\r\n"))[1:])
        words.append((await source.readexactly(size + 2))[:-2])
    return words


async def _replies(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_PIECE):
            sink.write(piece)
    sink.close()
