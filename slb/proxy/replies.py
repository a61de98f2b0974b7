"""Heads of replies: where the reply ends, and what of its head is passed on."""

import re

import httptools

from slb.proxy.body import CHUNKED, UNTIL_CLOSE
from slb.proxy.fields import KEPT_TOKENS, KINDS, NEVER_STRIPPED, Fields, Kind, connection_tokens, read_fields

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")


class MalformedReply(ValueError):
    """A reply head that is not HTTP/1.1."""


class ReplyHead:
    """What a reply's head says. start: status line and fields to pass on, without the empty line. length: bytes of
    body, CHUNKED or UNTIL_CLOSE (for a request whose method gives replies bodies)."""

    __slots__ = ("bodiless", "keep_alive", "length", "start", "status", "upgrade")

    def __init__(self, status: int, length: int, keep_alive: bool, start: bytes, upgrade: bytes) -> None:
        self.status = status
        self.upgrade = upgrade
        self.bodiless = status in (204, 304)
        self.length = 0 if self.bodiless else length
        self.keep_alive = keep_alive and self.length != UNTIL_CLOSE
        self.start = start


def parse_reply(head: bytes) -> ReplyHead:
    """`head` is a reply's whole head, the empty line included. Raises MalformedReply."""
    line = _STATUS_LINE.match(head)
    if line is None:
        raise MalformedReply("the status line is malformed")
    try:
        fields = read_fields(httptools.HttpResponseParser, head)
    except httptools.HttpParserError as error:
        raise MalformedReply(f"malformed head: {error}") from None
    minor, status, reason = line.groups(b"")
    tokens = connection_tokens(fields)
    length = _reply_length(fields)
    # HTTP/1.0 knows no chunks: read, but nothing behind them is trusted (RFC 9112, 6.1).
    keep_alive = b"close" not in tokens and (minor == b"1" or (b"keep-alive" in tokens and length != CHUNKED))
    without_length = status == b"204" or status < b"200"  # RFC 9110, 8.6
    passed_on = _passed_on(fields, tokens - KEPT_TOKENS - NEVER_STRIPPED, without_length)
    start = b"HTTP/1.1 %b %b\r\n%bVia: 1.%b slb\r\n" % (status, reason, passed_on, minor)
    upgrade = b"".join(value.rstrip(b" \t") for name, value in fields if KINDS[name] is Kind.UPGRADE)
    return ReplyHead(int(status), length, keep_alive, start, upgrade)


def _reply_length(fields: Fields) -> int:
    """RFC 9112, 6.3. Anything said twice is refused; llhttp has done so for a length, even where it is the same."""
    lengths = [value.rstrip(b" \t") for name, value in fields if KINDS[name] is Kind.LENGTH]
    codings = [value.rstrip(b" \t").lower() for name, value in fields if KINDS[name] is Kind.CODING]
    if codings:
        if lengths or codings != [b"chunked"]:
            raise MalformedReply("a transfer coding other than chunked, or beside a Content-Length")
        return CHUNKED
    if not lengths:
        return UNTIL_CLOSE
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise MalformedReply("Content-Length is not one number")
    return int(lengths[0])


_REPLY_OWN = frozenset({Kind.HOP, Kind.CONNECTION, Kind.CODING, Kind.REQUEST_ID, Kind.TE, Kind.UPGRADE})


def _passed_on(fields: Fields, named: set[bytes], without_length: bool) -> bytes:
    lines: list[bytes] = []
    for name, value in fields:
        kind = KINDS[name]
        if kind in _REPLY_OWN or (kind is Kind.LENGTH and without_length) or (named and name.lower() in named):
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)
