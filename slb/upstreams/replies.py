"""Heads of replies: where the reply ends, and what of its head is passed on."""

import re

from slb.backoff import asked_for
from slb.upstreams.body import CHUNKED, UNTIL_CLOSE
from slb.upstreams.fields import (
    CODING,
    CONNECTION,
    HOP,
    KEPT_TOKENS,
    LENGTH,
    NEVER_STRIPPED,
    REQUEST_ID,
    TE,
    UPGRADE,
    Field,
    MalformedField,
    connection_tokens,
    fields_of,
)

_EVENT_STREAM = re.compile(rb"(?i)\ncontent-type:[ \t]*+text/event-stream[ \t]*+[;\r]")
_RETRY_AFTER = re.compile(rb"(?i)\nretry-after:([^\r\n]*+)")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*+))?\r\n")
MAX_INTERIMS = 100
"""1xx replies to one request; a broken upstream may never stop."""


class MalformedReply(ValueError):
    """A reply head that is not HTTP/1.1."""


class ReplyHead:
    """start: status line and fields to pass on, without the empty line. length: bytes of body, CHUNKED or
    UNTIL_CLOSE (for a method that has reply bodies). keep_alive: the connection stays open behind the reply. dated:
    it has a Date."""

    __slots__ = ("_is_event_stream", "bodiless", "dated", "keep_alive", "length", "start", "status", "upgrade")

    def __init__(
        self, status: int, length: int, keep_alive: bool, start: bytes, upgrade: bytes, dated: bool
    ) -> None:
        self.status = status
        self.dated = dated
        self.upgrade = upgrade
        self.bodiless = status in (204, 304)
        self.length = 0 if self.bodiless else length
        self.keep_alive = keep_alive
        self.start = start
        self._is_event_stream: bool | None = None

    @property
    def is_event_stream(self) -> bool:
        """Whether it is server-sent events, which may go on for ever."""
        if self._is_event_stream is None:  # a head is kept, and most are never asked
            self._is_event_stream = self.status == 200 and _EVENT_STREAM.search(self.start) is not None
        return self._is_event_stream

    def retry_after(self, now: float) -> float | None:
        """Seconds after which the upstream asks for the request again; None where it does not say. `now`: since
        1970."""
        found = _RETRY_AFTER.search(self.start)
        return asked_for(found[1].strip().decode("latin-1"), now) if found is not None else None


def parse_reply(head: bytes) -> ReplyHead:
    """`head`: a whole head, the empty line included. Raises MalformedReply."""
    line = _STATUS_LINE.match(head)
    if line is None:
        raise MalformedReply("the status line is malformed")
    lines = head[line.end() : -4].split(b"\r\n") if len(head) > line.end() + 2 else []
    minor, status, reason = line.groups(b"")
    try:
        found = fields_of(lines)
    except MalformedField as error:
        raise MalformedReply(str(error)) from None
    tokens = connection_tokens(found)
    length = _reply_length(found)
    # HTTP/1.0 knows no chunks: read, but nothing behind them is trusted (RFC 9112, 6.1).
    keep_alive = b"close" not in tokens and (minor == b"1" or (b"keep-alive" in tokens and length != CHUNKED))
    without_length = status == b"204" or status < b"200"  # RFC 9110, 8.6
    passed_on = _passed_on(lines, found, tokens - KEPT_TOKENS - NEVER_STRIPPED, without_length)
    upgrade = b", ".join(_values(found, UPGRADE))
    offer = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % upgrade if status == b"426" and upgrade else b""
    start = b"HTTP/1.1 %b %b\r\n%b%bVia: 1.%b slb\r\n" % (status, reason, passed_on, offer, minor)
    dated = any(name == b"date" for _, _, name in found)
    return ReplyHead(int(status), length, keep_alive, start, upgrade, dated)


def _values(found: list[Field], wanted: int) -> list[bytes]:
    return [value for kind, value, _ in found if kind == wanted]


def _reply_length(found: list[Field]) -> int:
    """RFC 9112, 6.3. A length that is given twice is refused, even where it is the same."""
    lengths = _values(found, LENGTH)
    codings = _values(found, CODING)
    if codings:
        if lengths or [coding.lower() for coding in codings] != [b"chunked"]:
            raise MalformedReply("a transfer coding other than chunked, or beside a Content-Length")
        return CHUNKED
    if not lengths:
        return UNTIL_CLOSE
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise MalformedReply("Content-Length is not one number")
    return int(lengths[0])


_OWN = frozenset({HOP, CONNECTION, CODING, REQUEST_ID, TE, UPGRADE})


def _passed_on(lines: list[bytes], found: list[Field], named: set[bytes], without_length: bool) -> bytes:
    kept: list[bytes] = []
    for line, (kind, value, name) in zip(lines, found, strict=True):
        if kind == LENGTH:
            if not without_length:
                kept.append(b"Content-Length: %d\r\n" % int(value))
        elif kind not in _OWN and name not in named:
            kept.append(line + b"\r\n")
    return b"".join(kept)
