"""The heads slb sends: requests to upstreams, replies to clients. What was read, plus what this hop says itself."""

import time
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING

from slb.proxy.replies import ReplyHead

if TYPE_CHECKING:
    from slb.proxy.exchange import Exchange
    from slb.proxy.headers import RequestHead
    from slb.proxy.plane import Plane
    from slb.proxy.target import RequestLine


def request_start(exchange: "Exchange", plane: "Plane") -> bytes:
    """The head of the request as the upstream gets it."""
    line, head, peer = exchange.line, exchange.head, exchange.client.peer
    return b"%b %b HTTP/1.1\r\n%b%b%b%b%b\r\n" % (
        line.method,
        line.forwarded_target,
        head.fields if head.host is not None else _own_host(exchange) + head.fields,
        peer.forwarded(head) if head.is_forwarded else peer.line,
        b"" if head.plain else _what_heads_rarely_say(exchange),
        b"" if head.request_id and head.trace else _identity(exchange, plane),
        plane.own_line[line.minor],
    )


def _own_host(exchange: "Exchange") -> bytes:
    """HTTP/1.0 clients may leave it out, HTTP/1.1 upstreams may not be left without."""
    assert exchange.handle is not None
    return b"Host: %b\r\n" % exchange.handle.upstream.spec.authority.encode()


def _what_heads_rarely_say(exchange: "Exchange") -> bytes:
    """What is this hop's to say, and is said again because the client said it: trailers wanted, an upgrade."""
    head = exchange.head
    if head.upgrade and exchange.line.minor == 1:
        return b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.upgrade
    return b"Connection: TE\r\nTE: trailers\r\n" if head.wants_trailers else b""


def _identity(exchange: "Exchange", plane: "Plane") -> bytes:
    """An id where the client gave none, and a trace begun where there is none."""
    if exchange.head.request_id:
        return plane.new_trace(plane.new_request_id())
    named = b"X-Request-Id: %b\r\n" % exchange.request_id
    return named if exchange.head.trace else named + plane.new_trace(exchange.request_id)


def reply_start(exchange: "Exchange", head: ReplyHead, now: float) -> bytes:
    """The head of the reply as the client gets it."""
    line = exchange.line
    keeps = exchange.keep_client and not exchange.head.close
    return b"%b%bX-Request-Id: %b\r\n%b%b%b\r\n" % (
        head.start,
        b"" if head.dated else date_line(),
        exchange.request_id,
        b"Transfer-Encoding: chunked\r\n" if exchange.chunks_reply else b"",
        b"" if keeps and line.minor else connection_line(line, exchange.head, exchange.keep_client),
        _timing(exchange, now) if exchange.head.wants_timing else b"",
    )


def connection_line(line: "RequestLine", head: "RequestHead", keep: bool) -> bytes:
    """The Connection line of a reply: said only where it is not the version's default."""
    keep = keep and keeps_open(line, head)
    if line.minor == 1:
        return b"" if keep else b"Connection: close\r\n"
    return b"Connection: keep-alive\r\n" if keep else b""


def keeps_open(line: "RequestLine", head: "RequestHead") -> bool:
    """Whether the client leaves the connection open behind this request (RFC 9112, 9.3)."""
    return not head.close and (line.minor == 1 or head.keep_alive)


def date_line() -> bytes:
    """A Date of now: whoever has a clock gives it to a reply that comes without (RFC 9110, 6.6.1)."""
    return _date_line(int(time.time()))


@lru_cache(2)
def _date_line(second: int) -> bytes:
    return b"Date: %b\r\n" % formatdate(second, usegmt=True).encode()


def switching_start(exchange: "Exchange", head: ReplyHead, now: float) -> bytes:
    """The head of a 101."""
    return b"%bConnection: Upgrade\r\nUpgrade: %b\r\nX-Request-Id: %b\r\n%b\r\n" % (
        head.start,
        head.upgrade,
        exchange.request_id,
        _timing(exchange, now) if exchange.head.wants_timing else b"",
    )


def _timing(exchange: "Exchange", now: float) -> bytes:
    """Server-Timing (milliseconds): of the last attempt, how long it queued and behind how many; from the request's
    head to the reply's without that; how many upstreams it took."""
    took, entry = now - exchange.started, exchange.entry
    queue = b""
    if entry is not None and entry.position is not None:
        took -= entry.waited
        queue = b'queue;dur=%.3f;desc="%d", ' % (entry.waited * 1000, entry.position)
    attempts = len(exchange.tried) + 1
    return b'Server-Timing: %bupstream;dur=%.3f, attempts;desc="%d"\r\n' % (queue, max(took, 0.0) * 1000, attempts)
