"""The process that runs: gives its listening sockets to one that asks, and lets go of them once that one serves."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from slb.control import processes
from slb.control.private import make_private
from slb.errors import ConfigError
from slb.given_sockets import place_of
from slb.listening import Sockets, has_left
from slb.takeover.messages import (
    LEFT,
    LONGEST,
    MOST_SOCKETS,
    NAME,
    READY,
    UNDER_WAY,
    Answer,
    Hello,
    Stranger,
    Take,
    process_at,
    remove_if_dead,
    short_name,
)

_AT_ONCE = 8
"""Processes that are attended to; others are turned away."""
_TO_TAKE = 10.0
"""Seconds from the hello within which one has to say what it takes."""

_log = structlog.get_logger("slb.takeover")


class Offer:
    """`name`: of this instance. `on_shared` is called when it has changed which of `sockets` are shared, and
    `on_left` with a process id once that process serves with those it was given."""

    def __init__(
        self, sockets: Sockets, name: str, on_shared: Callable[[], None], on_left: Callable[[int], None]
    ) -> None:
        self._sockets = sockets
        self._name = name
        self._on_shared = on_shared
        self._on_left = on_left
        self._taker = 0
        self._path: Path | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._attending: set[asyncio.Task[None]] = set()

    def start(self, data_dir: Path) -> None:
        """Where the directory cannot be used, that is logged, and nothing is offered."""
        try:
            listener = self._listener(data_dir)
        except (OSError, ConfigError) as error:
            _log.warning("takeover_not_possible", error=str(error))
            return
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listener), name="takeover")

    def _listener(self, data_dir: Path) -> socket.socket:
        """It has its name once it listens: a socket that refuses is taken for one of a process that was killed."""
        make_private(data_dir, "data_dir")
        for left in data_dir.glob(NAME.format("*")):
            remove_if_dead(left)
        self._path = data_dir / NAME.format(secrets.token_hex(8))
        unnamed = self._path.with_suffix(".new")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_name(unnamed) as name:
                listener.bind(name)
            listener.listen(_AT_ONCE)
            listener.setblocking(False)
            unnamed.rename(self._path)
        except OSError:
            listener.close()
            raise
        return listener

    async def close(self) -> None:
        """Offer nothing any more. A process that has been given sockets, and does not serve yet, is left alone."""
        running = [each for each in (self._accepting, *self._attending) if each is not None]
        self._accepting = None
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    peer, _ = await loop.sock_accept(listener)
                except OSError as error:  # no descriptors left
                    _log.warning("accept_failed", listener="takeover", error=error.strerror, again_in=1.0)
                    await asyncio.sleep(1.0)
                    continue
                if len(self._attending) >= _AT_ONCE:
                    peer.close()
                    continue
                attending = loop.create_task(self._attend(peer))
                self._attending.add(attending)
                attending.add_done_callback(self._attending.discard)
        finally:
            listener.close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    async def _attend(self, peer: socket.socket) -> None:
        try:
            peer.setblocking(False)
            pid = process_at(peer)
            async with asyncio.timeout(_TO_TAKE):
                await self._greet(peer)
                wanted = Take.model_validate_json(await _line(peer)).take
            await self._give(peer, pid, wanted)
        except (OSError, ValueError, EOFError, Stranger, TimeoutError) as error:
            _log.debug("takeover_not_asked_for", error=str(error) or type(error).__name__)
        finally:
            peer.close()

    async def _greet(self, peer: socket.socket) -> None:
        places = [place_of(each) for each in self._sockets.offered()[:MOST_SOCKETS]]
        hello = Hello(name=self._name, network=processes.network(), places=places)
        await asyncio.get_running_loop().sock_sendall(peer, hello.to_line())

    async def _give(self, peer: socket.socket, pid: int, wanted: list[int]) -> None:
        offered = self._sockets.offered()[:MOST_SOCKETS]
        if not wanted or not set(wanted) <= set(range(len(offered))):
            raise ValueError("it wants what is not offered")
        if self._taker:
            socket.send_fds(peer, [Answer(refused=UNDER_WAY, by=self._taker).to_line()], [])
            return
        given = [offered[number] for number in wanted]
        lent = set(given) - self._sockets.shared
        self._taker, is_ready = pid or -1, False
        try:
            self._share(lent)
            socket.send_fds(peer, [Answer().to_line()], [each.fileno() for each in given])
            _log.info("takeover_begins", pid=pid, sockets=len(given))
            is_ready = await _line(peer) == READY and not has_left(peer)
        finally:
            self._taker = 0
            if not is_ready and self._accepting is not None:
                _log.warning("takeover_failed", pid=pid)
                self._share(set(), lent)
        if is_ready:
            self._on_left(pid)
            peer.send(LEFT)

    def _share(self, more: set[socket.socket], less: set[socket.socket] | None = None) -> None:
        self._sockets.shared.update(more)
        self._sockets.shared.difference_update(less or ())
        self._on_shared()


async def _line(peer: socket.socket) -> bytes:
    """Raises EOFError where it ends before, ValueError where it is too long, OSError."""
    line = b""
    while not line.endswith(b"\n"):
        if len(line) >= LONGEST:
            raise ValueError("the line is too long")
        more = await asyncio.get_running_loop().sock_recv(peer, LONGEST - len(line))
        if not more:
            raise EOFError
        line += more
    return line
