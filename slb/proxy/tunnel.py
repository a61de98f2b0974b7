"""After 101 Switching Protocols: bytes both ways, until both sides have ended."""

import asyncio
from collections.abc import Callable

from slb.proxy.disconnect_watcher import RESET, DisconnectWatcher
from slb.proxy.interfaces import Client
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.deadlines import Timed, Wheel
from slb.upstreams.flow import FULL_READ, Flow

OnEnd = Callable[[int, int], None]
"""Is called with the bytes that went up and down."""
_UNREAD = 2
"""Why reading is paused, besides a turn that is over: the other side takes no more."""


class _End(asyncio.Protocol, Flow):
    """One side: what it sends is written to the other, and not read faster than that takes it."""

    def __init__(self, tunnel: "Tunnel", transport: asyncio.Transport) -> None:
        Flow.__init__(self)
        self._tunnel = tunnel
        self.transport = transport
        self.other: _End
        self.bytes = 0
        self.silent = False
        self.lost = False

    def data_received(self, data: bytes) -> None:
        if len(data) > FULL_READ:
            self._end_turn()
        self.bytes += len(data)
        self.other.transport.write(data)
        self._tunnel.moved()

    def go_on(self) -> None: ...

    def eof_received(self) -> bool:
        """This side has ended; the other may still send."""
        self.silent = True
        other = self.other
        if other.silent or not (other.transport.can_write_eof() and self.transport.can_write_eof()):
            other.transport.close()
            return False
        other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.hold()

    def hold(self) -> None:
        """Stop reading: the other side takes no more for now."""
        self._pause(_UNREAD)
        self._tunnel.unread.watch(self.transport)

    def resume_writing(self) -> None:
        self.other.release()

    def release(self) -> None:
        self._tunnel.unread.forget(self.transport)
        self._resume(_UNREAD)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._tunnel.unread.forget(self.transport)
        if self.other.lost:
            self._tunnel.ended()
        elif error is not None or not (self.silent or self.other.silent):  # cut off: neither side had ended it
            self.other.transport.abort()
        else:
            self.other.transport.close()


class Tunnel(Timed):
    """`on_end` is called once, when both connections are gone. Both are cut where no byte moves for `idle`
    seconds."""

    def __init__(
        self,
        client: asyncio.Transport,
        upstream: asyncio.Transport,
        wheel: Wheel,
        idle: float,
        on_end: OnEnd,
    ) -> None:
        Timed.__init__(self)
        self._client, self._upstream = _End(self, client), _End(self, upstream)
        self._client.other, self._upstream.other = self._upstream, self._client
        self._wheel = wheel
        self._idle = idle
        self._on_end = on_end
        self.unread = DisconnectWatcher(wheel, RESET)  # a peer that closes one half of a tunnel has not left

    def open(self) -> None:
        """Take both connections over."""
        for end in (self._client, self._upstream):
            end.transport.set_protocol(end)
            if not end.transport.is_closing():
                end.transport.resume_reading()
        self.moved()

    def moved(self) -> None:
        self._wheel.arm(self, self._wheel.now() + self._idle)

    def expired(self) -> None:
        self._client.transport.abort()
        self._upstream.transport.abort()

    def ended(self) -> None:
        self._wheel.forget(self)
        self._on_end(self._client.bytes, self._upstream.bytes)


def open_tunnel(
    client: Client,
    upstream: UpstreamConnection,
    wheel: Wheel,
    idle: float,
    answer: bytes,
    on_end: Callable[[int, int], None],
) -> None:
    """Join both connections; `answer` is what the client gets first. `idle` and `on_end` are those of Tunnel."""
    early = client.becomes_tunnel()
    upstream.becomes_tunnel()

    def ended(up: int, down: int) -> None:
        upstream.tunnel_ended()
        on_end(up, down)
        client.tunnel_ended()

    Tunnel(client.transport, upstream.transport, wheel, idle, ended).open()
    # A side that does not take all of it holds up the tunnel from here on, and no exchange any more.
    client.transport.write(answer)
    if early:
        upstream.transport.write(early)
