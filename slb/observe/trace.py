"""What is known of a traced request once it has ended. Its spans are made of that later, in spans.py."""

from typing import NamedTuple

_SAMPLED, _RANDOM = 0x01, 0x02
"""Bits of a traceparent's flags (W3C Trace Context, level 2, 3.2.2.5)."""
_MOST_BITS = 63
"""Of the random id of a span: with an attempt's number added it has 64 at most."""


class Place(NamedTuple):
    """Where a request stands in its trace. `trace`: the trace's id, 32 hexadecimal digits; `parent`: the id of the
    client's span, 16 of them, empty where the trace begins here; `span`: the id of the request's own span, and
    those of its attempts follow; `flags`: of traceparent; `state`: the client's tracestate."""

    trace: bytes
    parent: bytes
    span: int
    flags: int
    state: bytes = b""

    def traceparent(self, attempt: int) -> bytes:
        """What the upstream of the attempt with this number, from 0 on, is sent."""
        return b"00-%b-%016x-%02x" % (self.trace, self.attempt_span(attempt), self.flags)

    def attempt_span(self, attempt: int) -> int:
        return self.span + 1 + attempt


def is_sampled(traceparent: bytes) -> bool:
    """`traceparent`: a valid one."""
    return int(traceparent[53:55], 16) & _SAMPLED != 0


def place_below(traceparent: bytes, state: bytes, bits: int) -> Place:
    """The place of a request that came with this valid traceparent, and is recorded. `bits`: random."""
    flags = int(traceparent[53:55], 16) & _RANDOM | _SAMPLED
    return Place(traceparent[3:35], traceparent[36:52], span_id(bits), flags, state)


def place_at_start(trace: bytes, bits: int) -> Place:
    """The place of a request whose trace begins here. `bits`: random."""
    return Place(trace, b"", span_id(bits), _SAMPLED)


def span_id(bits: int) -> int:
    """An id, which is not 0, of random `bits`."""
    return (bits & ((1 << _MOST_BITS) - 1)) + 1


class Attempt(NamedTuple):
    """One attempt, or what there was of one. Times are a clock's, 0 for never. `scheme`, `host`, `port`: of its
    upstream `member`; empty where it came to none. `arrived`: at the gate; `waited`: seconds that the request had
    queued until then, earlier attempts included; `position`: how many were before it, None where it did not have
    to queue; `priority`: its class. `connecting_at`: when a new connection was begun. `status`: of the reply, 0 for
    none; `error`: the name of what went wrong."""

    member: str
    scheme: str
    host: str
    port: int
    arrived: float
    waited: float
    position: int | None
    priority: str
    connecting_at: float
    sent_at: float
    first_byte_at: float
    ended: float
    status: int
    error: str


class Ended(NamedTuple):
    """A request that has ended. `target`: the path that upstreams were sent. `peer`: who connected; `client`: who
    made the request. `detail`: as in the access log. `attempts`: all, the last one too."""

    place: Place
    started: float
    ended: float
    method: str
    path: str
    target: str
    scheme: str
    host: str
    minor: int
    route: str
    status: int
    reason: str
    detail: str
    request_id: str
    client: str
    peer: str
    bytes_in: int
    bytes_out: int
    attempts: tuple[Attempt, ...]

    @property
    def most_spans(self) -> int:
        """How many spans it may become: its own, and of each attempt five."""
        return 1 + 5 * len(self.attempts)

    @property
    def size(self) -> int:
        """Bytes, about: of what a client may make as long as it likes, and of the rest."""
        return len(self.path) + len(self.target) + len(self.place.state) + len(self.host) + 1024


class Rate:
    """At most `most` in a second; 0 means no limit. Seconds are those of the clock that `now` is of."""

    __slots__ = ("_left", "_until", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = 0
        self._until = 0.0

    def allows(self, now: float) -> bool:
        """Whether one more may be, which counts as one."""
        if now >= self._until:
            self._until, self._left = now + 1.0, self.most
        self._left -= 1
        return self._left >= 0 or not self.most
