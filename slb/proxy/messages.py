"""The heads slb sends: requests to upstreams, replies to clients."""

import time
from email.utils import formatdate
from functools import lru_cache

from slb.admission.entry import Entry
from slb.balance.upstream import LiveUpstream
from slb.proxy.headers import RequestHead
from slb.proxy.identity import Identity
from slb.proxy.request import Request
from slb.proxy.target import RequestLine
from slb.upstreams.replies import ReplyHead


def request_start(request: Request, upstream: LiveUpstream, identity: Identity) -> bytes:
    """The head of the request as the upstream gets it."""
    line, head, peer = request.line, request.head, request.peer
    return b"%b %b HTTP/1.1\r\n%b%b%b%b%b\r\n" % (
        line.method,
        line.forwarded_target,
        head.fields if head.host is not None else _own_host(upstream) + head.fields,
        peer.line if head.forwarding is None else peer.forwarded(head.forwarding),
        _what_heads_rarely_say(line, head) if head.upgrade or head.wants_trailers else b"",
        b"" if head.request_id and head.trace else _own_ids(request, identity),
        identity.own_line[line.minor],
    )


def _own_host(upstream: LiveUpstream) -> bytes:
    """For HTTP/1.0 clients, which may leave Host out."""
    return b"Host: %b\r\n" % upstream.spec.authority.encode()


def _what_heads_rarely_say(line: RequestLine, head: RequestHead) -> bytes:
    """What this hop asks the upstream for because the client did: an upgrade, or trailers."""
    if head.upgrade and line.minor == 1:
        return b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.upgrade
    return b"Connection: TE\r\nTE: trailers\r\n" if head.wants_trailers else b""


def _own_ids(request: Request, identity: Identity) -> bytes:
    """An id where the client gave none, and a trace where there is none."""
    if request.head.request_id:
        return identity.new_trace(identity.new_request_id())
    named = b"X-Request-Id: %b\r\n" % request.id
    return named if request.head.trace else named + identity.new_trace(request.id)


def reply_start(request: Request, head: ReplyHead, keep: bool, chunked: bool, timing: bytes) -> bytes:
    """The head of the reply to the client. `keep`: the connection stays open; `chunked`: the body is; `timing`: a
    line to be added, or empty."""
    line = request.line
    return b"%b%bX-Request-Id: %b\r\n%b%b%b\r\n" % (
        head.start,
        b"" if head.dated else date_line(),
        request.id,
        b"Transfer-Encoding: chunked\r\n" if chunked else b"",
        b"" if keep and line.minor else connection_line(line, request.head, keep),
        timing,
    )


def connection_line(line: RequestLine, head: RequestHead, keep: bool) -> bytes:
    """The Connection line of a reply; empty where it is the version's default."""
    keep = keep and keeps_open(line, head)
    if line.minor == 1:
        return b"" if keep else b"Connection: close\r\n"
    return b"Connection: keep-alive\r\n" if keep else b""


def keeps_open(line: RequestLine, head: RequestHead) -> bool:
    """Whether the client leaves the connection open behind this request (RFC 9112, 9.3)."""
    return line.minor == 1 if head.keep_alive is None else head.keep_alive


def date_line() -> bytes:
    """A Date of now (RFC 9110, 6.6.1)."""
    return _date_line(int(time.time()))


@lru_cache(2)
def _date_line(second: int) -> bytes:
    return b"Date: %b\r\n" % formatdate(second, usegmt=True).encode()


def switching_start(request: Request, head: ReplyHead, timing: bytes) -> bytes:
    """The head of a 101. `timing`: a line to be added, or empty."""
    return b"%bConnection: Upgrade\r\nUpgrade: %b\r\nX-Request-Id: %b\r\n%b\r\n" % (
        head.start,
        head.upgrade,
        request.id,
        timing,
    )


def server_timing(took: float, entry: Entry | None, attempts: int, tells_all: bool) -> bytes:
    """The Server-Timing line (milliseconds): how long the last attempt queued and behind how many requests; the
    rest of `took`, the seconds from the request's head to the reply's; how many attempts. Only the times where not
    `tells_all`."""
    queue = b""
    if entry is not None and entry.wait.position is not None:
        took -= entry.wait.waited
        behind = b';desc="%d"' % entry.wait.position if tells_all else b""
        queue = b"queue;dur=%.3f%b, " % (entry.wait.waited * 1000, behind)
    number = b', attempts;desc="%d"' % attempts if tells_all else b""
    return b"Server-Timing: %bupstream;dur=%.3f%b\r\n" % (queue, max(took, 0.0) * 1000, number)
