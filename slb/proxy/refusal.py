"""The answers slb gives itself."""

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
    head = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %b\r\n" % (
        reason.status,
        _PHRASES[reason.status],
        len(body),
        request_id,
    )
    if reason.retry_after is not None:
        head += b"Retry-After: %d\r\n" % reason.retry_after
    return head + connection + b"\r\n" + (body if with_body else b"")
