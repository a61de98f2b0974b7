"""The answers slb gives itself, and how they are counted and logged where there is no exchange."""

from http import HTTPStatus

from slb.answers import refusal_body
from slb.errors import LOOP, NO_ROUTE, NO_ROUTE_HERE, NOT_READY, Reason, Refused
from slb.proxy.context import ProxyContext
from slb.proxy.messages import date_line
from slb.proxy.reader import RefusedBody
from slb.proxy.target import RequestLine

_PHRASES = {each.value: each.phrase.encode() for each in HTTPStatus}
_PHRASES |= {413: b"Content Too Large", 414: b"URI Too Long"}  # RFC 9110, which Python 3.11 does not know


def answer(
    reason: Reason, detail: str, request_id: bytes, connection: bytes, with_body: bool, tells_all: bool = False
) -> bytes:
    """A whole reply; its body, and what of `detail` it shows: `refusal_body`. `connection`: a Connection line with
    its CRLF, or empty. `with_body` is False for HEAD."""
    body = refusal_body(reason, detail, request_id.decode(), tells_all)
    lines = [
        b"HTTP/1.1 %d %b" % (reason.status, _PHRASES[reason.status]),
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        b"X-Request-Id: %b" % request_id,
    ]
    if reason.retry_after is not None:
        lines.append(b"Retry-After: %d" % reason.retry_after)
    return b"\r\n".join(lines) + b"\r\n" + date_line() + connection + b"\r\n" + (body if with_body else b"")


def no_way(looped: bool, ready: bool) -> tuple[Reason, str]:
    """Why a request has no upstream: it has `looped`, or has no route. `ready`: the routes are known."""
    if looped:
        return LOOP, "this request has passed here before"
    if not ready:
        return NOT_READY, "the routes are not known yet"
    return NO_ROUTE, NO_ROUTE_HERE


def note(
    context: ProxyContext,
    reason: Reason,
    detail: str,
    request_id: bytes,
    client: str,
    seconds: float,
    line: RequestLine | None = None,
) -> None:
    """Count and log a refusal without an exchange, `seconds` after the request began to come. `line`: None where
    there was none that could be read."""
    route = line.route.path if line is not None and line.route is not None else ""
    context.metrics.traffic.refused(route, (reason.status, reason.name))
    context.metrics.decisions.refused.append(
        (request_id, route, reason.status, reason.name, detail, context.clock() - seconds)
    )
    if context.access_log.wants(reason.status, reason.name, reached=False):
        context.access_log.write(
            reached=False,
            method=line.method.decode() if line is not None else "",
            path=line.path.decode() if line is not None else "",
            status=reason.status,
            reason=reason.name,
            detail=detail,
            route=route,
            duration=seconds,
            client=client,
            request_id=request_id.decode(),
        )


def unreadable(context: ProxyContext, refusal: Refused, client: str, seconds: float) -> bytes:
    """The answer to what could not be read as a request, counted and logged. The connection ends with it."""
    reason, detail = refusal.reason, refusal.detail
    line, request_id = refusal.about if isinstance(refusal, RefusedBody) else (None, b"")
    request_id = request_id or context.identity.new_request_id()
    note(context, reason, detail, request_id, client, seconds, line)
    return answer(reason, detail, request_id, b"Connection: close\r\n", True, context.tells_all)
