"""The body of one request on its way to the upstream: framed anew, and kept while it may still have to be sent.

The upstream's load statistics note which side waits: an upstream that waits for the rest of a body is not slow, one
that takes no more of it is.
"""

from slb.proxy.disconnect_watcher import acknowledged
from slb.proxy.interfaces import Uploading
from slb.upstreams.body import CHUNKED, LAST_CHUNK, chunk
from slb.upstreams.deadlines import Wheel
from slb.upstreams.flow import appended
from slb.upstreams.outbox import Outbox

_MOST_HELD = 64 * 1024
"""Bytes kept while a connection is made, or in case they must be sent again."""


class Upload:
    """`ended`: all of it has come. `held`: what has come, framed; None once that is too much to be sent twice."""

    __slots__ = ("_exchange", "_outbox", "_taken", "_wheel", "ended", "held")

    def __init__(self, exchange: Uploading, wheel: Wheel, outbox: Outbox, payload: bytes, ended: bool) -> None:
        """`payload` came with the head."""
        self._exchange = exchange
        self._wheel = wheel
        self._outbox = outbox
        self.held: bytes | None = self._framed(payload, ended)
        self._taken = 0

    def _framed(self, payload: bytes, ended: bool) -> bytes:
        exchange = self._exchange
        exchange.bytes_in += len(payload)
        self.ended = ended
        if exchange.request.head.length != CHUNKED:
            return payload
        return (chunk(payload) if payload else b"") + (LAST_CHUNK if ended else b"")

    def start(self) -> bytes:
        """What is sent with the head."""
        held = bytes(self.held or b"")
        self._hold(held)
        self._exchange.client.upload_may_go_on()
        self._is_turn_of_upstream(self.ended)
        return held

    def _hold(self, sent: bytes) -> None:
        self.held = sent if len(sent) <= _MOST_HELD else None

    def arrives(self, payload: bytes, ended: bool) -> None:
        exchange = self._exchange
        framed = self._framed(payload, ended)
        if exchange.connection is None:
            self.held = appended(self.held or b"", framed)
            if len(self.held) > _MOST_HELD:
                exchange.client.hold_upload()
            return
        if framed:
            if self.held is not None:
                self._hold(appended(self.held, framed))
            self._outbox.post(exchange.connection.transport, framed)
            due = self._wheel.now() + exchange.request.route.settings.first_byte_timeout
            self._wheel.arm(exchange.connection, due)
        if ended:
            self._is_turn_of_upstream(True)
            exchange.body_is_sent()

    def is_held_back(self, held: bool) -> None:
        """The upstream takes (`held` False) or does not take more of it for now."""
        if held:
            self._exchange.client.hold_upload()
            self._taken = self._acknowledged()
        else:
            self._exchange.client.upload_may_go_on()
        if not self.ended:
            self._is_turn_of_upstream(held)

    def is_taken_on(self) -> bool:
        """Whether the upstream has taken more of it since the last call, or since it was held back: megabytes may
        wait in the kernel while the upstream reads slowly."""
        before, self._taken = self._taken, self._acknowledged()
        return before != self._taken

    def _acknowledged(self) -> int:
        connection = self._exchange.connection
        return acknowledged(connection.transport) if connection is not None else 0

    def _is_turn_of_upstream(self, its: bool) -> None:
        exchange = self._exchange
        if exchange.handle is not None and not exchange.status:
            (exchange.handle.goes_on if its else exchange.handle.waits)()
