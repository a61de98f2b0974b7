"""The answers slb gives itself."""

from email.utils import formatdate

import orjson

from slb.errors import Reason

_PHRASES = {
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
    508: b"Loop Detected",
}


def answer(reason: Reason, detail: str, request_id: bytes, connection: bytes, with_body: bool) -> bytes:
    """A whole reply: `{"error", "detail", "request_id"}`. `connection` is a Connection line with its CRLF, or
    empty; a reply to HEAD says how long its body would have been and carries none."""
    body = orjson.dumps({"error": reason.name, "detail": detail, "request_id": request_id.decode()}) + b"\n"
    lines = [
        b"HTTP/1.1 %d %b" % (reason.status, _PHRASES[reason.status]),
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        b"Date: %b" % formatdate(usegmt=True).encode(),
        b"X-Request-Id: %b" % request_id,
    ]
    if reason.retry_after is not None:
        lines.append(b"Retry-After: %d" % reason.retry_after)
    return b"\r\n".join(lines) + b"\r\n" + connection + b"\r\n" + (body if with_body else b"")
