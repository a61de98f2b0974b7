"""Spans of traced requests as OTLP has them in JSON, named by OpenTelemetry's semantic conventions for HTTP.

GET /models/llama                 SERVER: the request
  queue                           INTERNAL: it waited for a slot
  GET                             CLIENT: one attempt; its id is in the traceparent that the upstream got
    connect                       INTERNAL: a connection was made, none was idle
    first byte                    INTERNAL: from when it was sent to the reply's head
    body                          INTERNAL: from there to the reply's end
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from slb.observe.trace import Attempt, Ended
from slb.setting_values import host_port

INTERNAL, SERVER, CLIENT = 1, 2, 3  # kinds of spans
_ERROR = {"code": 2}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
"""Others are `_OTHER`: a client may make up any number of them."""
LONGEST = 1024
"""Characters of an attribute's text; more is cut off."""
_BELOW = 64
"""Ids from here on behind the request's own are those of the parts of attempts: of these are there 11 at most."""

Value = str | int | None
Span = dict[str, Any]


def export_body(
    ended: Iterable[Ended], epoch: int, resource: Mapping[str, str], scope: tuple[str, str]
) -> tuple[int, bytes]:
    """How many spans, and an ExportTraceServiceRequest of them. `epoch`: nanoseconds since 1970 at which the clock
    of all times was 0. `scope`: name and version."""
    # Each span is text as soon as it is made: ten thousand dicts at once would keep the garbage collector busy.
    spans = [orjson.Fragment(orjson.dumps(span)) for each in ended for span in spans_of(each, epoch)]
    body = orjson.dumps(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [{"scope": {"name": scope[0], "version": scope[1]}, "spans": spans}],
                }
            ]
        }
    )
    return len(spans), body


def spans_of(ended: Ended, epoch: int) -> list[Span]:
    """All spans of one request, its own first."""
    return _Spans(ended, epoch).all()


class _Spans:
    def __init__(self, ended: Ended, epoch: int) -> None:
        self._ended = ended
        self._epoch = epoch
        self._common: Span = {"traceId": ended.place.trace.decode(), "flags": ended.place.flags}
        if ended.place.state:
            self._common["traceState"] = ended.place.state.decode("latin-1")
        self._next = ended.place.span + _BELOW

    def all(self) -> list[Span]:
        found, waited = [self._request()], 0.0
        for number, attempt in enumerate(self._ended.attempts):
            if attempt.position is not None and attempt.waited > waited:
                found.append(self._queue(attempt, attempt.waited - waited))
                waited = attempt.waited
            if attempt.connecting_at or attempt.sent_at:
                found += self._attempt(attempt, number)
        return found

    def _request(self) -> Span:
        ended = self._ended
        span = self._span(SERVER, f"{_name(ended.method)} {ended.route}", ended.started, ended.ended)
        span["spanId"], parent = _hex(ended.place.span), ended.place.parent.decode()
        span["parentSpanId"] = parent
        span["attributes"] = _attributes(_of_request(ended))
        if ended.status >= 500 or (ended.reason and ended.status < 400):
            span["status"] = {**_ERROR, "message": _cut(ended.detail)}
        return span

    def _queue(self, attempt: Attempt, seconds: float) -> Span:
        """The clock of the gate goes in milliseconds, and may be a little behind."""
        began = max(self._ended.started, attempt.arrived)
        return self._part(
            "queue",
            began,
            began + seconds,
            self._ended.place.span,
            {"slb.queue.position": attempt.position, "slb.queue.class": attempt.priority},
        )

    def _attempt(self, attempt: Attempt, number: int) -> Iterator[Span]:
        own = self._ended.place.attempt_span(number)
        connecting, sent, first, end = (
            *(attempt.connecting_at, attempt.sent_at, attempt.first_byte_at),
            attempt.ended,
        )
        began = connecting or sent
        if sent < began:  # that was on an earlier connection, which had closed
            sent = 0.0
        span = self._span(CLIENT, _name(self._ended.method), began, end)
        span["spanId"], span["parentSpanId"] = _hex(own), _hex(self._ended.place.span)
        span["attributes"] = _attributes(_of_attempt(self._ended, attempt, number))
        if attempt.error or attempt.status >= 400:
            span["status"] = _ERROR
        yield span
        if connecting:
            yield self._part("connect", connecting, sent or end, own)
        if sent:
            yield self._part("first byte", sent, first or end, own)
        if first and end > first:
            yield self._part("body", first, end, own)

    def _part(
        self, name: str, began: float, ended: float, parent: int, attributes: Mapping[str, Value] | None = None
    ) -> Span:
        span = self._span(INTERNAL, name, began, ended)
        span["spanId"], span["parentSpanId"] = _hex(self._next), _hex(parent)
        span["attributes"] = _attributes(attributes or {})
        self._next += 1
        return span

    def _span(self, kind: int, name: str, began: float, ended: float) -> Span:
        return {
            **self._common,
            "name": _cut(name),
            "kind": kind,
            "startTimeUnixNano": str(self._epoch + int(began * 1e9)),
            "endTimeUnixNano": str(self._epoch + int(max(began, ended) * 1e9)),
        }


def _of_request(ended: Ended) -> Mapping[str, Value]:
    host, port = _host_and_port(ended.host)
    upstream = ended.attempts[-1].member if ended.attempts else ""
    failed = ended.status >= 500 or ended.reason
    return {
        **_method(ended.method),
        "url.path": ended.path,
        "url.scheme": ended.scheme,
        "http.route": ended.route,
        "http.response.status_code": ended.status,
        "http.request.body.size": ended.bytes_in,
        "http.response.body.size": ended.bytes_out,
        "server.address": host,
        "server.port": port,
        "client.address": ended.client,
        "network.peer.address": ended.peer,
        "network.protocol.version": f"1.{ended.minor}",
        "error.type": (ended.reason or str(ended.status)) if failed else None,
        "slb.route": ended.route,
        "slb.upstream": upstream,
        "slb.reason": ended.reason,
        "slb.request_id": ended.request_id,
        "slb.attempts": sum(bool(each.member) for each in ended.attempts),
    }


def _of_attempt(ended: Ended, attempt: Attempt, number: int) -> Mapping[str, Value]:
    failed = attempt.error or attempt.status >= 400
    url = f"{attempt.scheme}://{attempt.member.removeprefix('https://')}{ended.target}"
    return {
        **_method(ended.method),
        "url.full": url,
        "server.address": attempt.host,
        "server.port": attempt.port,
        "network.protocol.version": "1.1",
        "http.response.status_code": attempt.status or None,
        "http.request.resend_count": number or None,
        "error.type": (attempt.error or str(attempt.status)) if failed else None,
        "slb.upstream": attempt.member,
    }


def _method(method: str) -> Mapping[str, Value]:
    if method in _METHODS:
        return {"http.request.method": method}
    return {"http.request.method": "_OTHER", "http.request.method_original": method}


def _name(method: str) -> str:
    return method if method in _METHODS else "HTTP"


def _host_and_port(host: str) -> tuple[str, int | None]:
    """Of a Host field that was found valid; the port is None where it names none."""
    try:
        return host_port(host) if host else ("", None)
    except ValueError:
        return host.strip("[]"), None


def _attributes(values: Mapping[str, Value]) -> orjson.Fragment:
    """Without those that have no value. Whole numbers are texts in the JSON of protobuf."""
    found = [
        _attribute(key, value if isinstance(value, int) else _cut(value))
        for key, value in values.items()
        if value is not None and value != ""
    ]
    return orjson.Fragment(f"[{','.join(found)}]")


@lru_cache(512)
def _attribute(key: str, value: str | int) -> str:
    """`key` has no character that JSON escapes. Most attributes are those of the request before: these stay in the
    cache, what differs goes by."""
    if isinstance(value, int):
        return f'{{"key":"{key}","value":{{"intValue":"{value}"}}}}'
    return f'{{"key":"{key}","value":{{"stringValue":{orjson.dumps(value).decode()}}}}}'


def _cut(text: str) -> str:
    return text[:LONGEST]


def _hex(span: int) -> str:
    return f"{span:016x}"
