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
from types import MappingProxyType

import orjson

from slb.observe.trace import Attempt, Ended
from slb.setting_values import host_port

INTERNAL, SERVER, CLIENT = 1, 2, 3  # kinds of spans
_ERROR = 2
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
"""Others are `_OTHER`: a client may make up any number of them."""
LONGEST = 1024
"""Characters of an attribute's text; more is cut off."""
_BELOW = 64
"""Ids from here on behind the request's own are those of the parts of attempts: of these are there 11 at most."""

Value = str | int | None
_NOTHING: Mapping[str, Value] = MappingProxyType({})


def export_body(
    ended: Iterable[Ended], epoch: int, resource: Mapping[str, str], scope: tuple[str, str]
) -> tuple[int, bytes]:
    """How many spans, and an ExportTraceServiceRequest of them. `epoch`: nanoseconds since 1970 at which the clock
    of all times was 0. `scope`: name and version."""
    spans = [span for each in ended for span in spans_of(each, epoch)]
    name, version = map(_text, scope)
    body = (
        f'{{"resourceSpans":[{{"resource":{{"attributes":[{_attributes(resource)}]}},"scopeSpans":[{{'
        f'"scope":{{"name":{name},"version":{version}}},"spans":[{",".join(spans)}]}}]}}]}}'
    )
    return len(spans), body.encode()


def spans_of(ended: Ended, epoch: int) -> list[str]:
    """All spans of one request, its own first, as JSON. They are written as text at once: tens of thousands of
    dicts would keep the garbage collector busy."""
    return _Spans(ended, epoch).all()


class _Spans:
    def __init__(self, ended: Ended, epoch: int) -> None:
        place = ended.place
        self._ended = ended
        self._epoch = epoch
        self._common = f'"traceId":"{place.trace.decode()}","flags":{place.flags}'
        if place.state:
            self._common += f',"traceState":{_text(place.state.decode("latin-1"))}'
        self._own = f"{place.span:016x}"
        self._next = place.span + _BELOW

    def all(self) -> list[str]:
        found, waited = [self._request()], 0.0
        for number, attempt in enumerate(self._ended.attempts):
            if attempt.position is not None and attempt.waited > waited:
                found.append(self._queue(attempt, attempt.waited - waited))
                waited = attempt.waited
            if attempt.connecting_at or attempt.sent_at:
                found += self._attempt(attempt, number)
        return found

    def _request(self) -> str:
        ended = self._ended
        name, parent = f"{_name(ended.method)} {ended.route}", ended.place.parent.decode()
        is_error = ended.status >= 500 or (ended.reason and ended.status < 400)
        status = f',"status":{{"code":{_ERROR},"message":{_text(ended.detail[:LONGEST])}}}' if is_error else ""
        values = _of_request(ended)
        return self._span(SERVER, name, self._own, parent, ended.started, ended.ended, values, status)

    def _queue(self, attempt: Attempt, seconds: float) -> str:
        """The clock of the gate goes in milliseconds, and may be a little behind."""
        began = max(self._ended.started, attempt.arrived)
        values = {"slb.queue.position": attempt.position, "slb.queue.class": attempt.priority}
        return self._part("queue", began, began + seconds, self._own, values)

    def _attempt(self, attempt: Attempt, number: int) -> Iterator[str]:
        connecting, sent, first, end = attempt.connecting_at, attempt.sent_at, attempt.first_byte_at, attempt.ended
        began = connecting or sent
        if sent < began:  # that was on an earlier connection, which had closed
            sent = 0.0
        own = f"{self._ended.place.attempt_span(number):016x}"
        name, values = _name(self._ended.method), _of_attempt(self._ended, attempt, number)
        status = f',"status":{{"code":{_ERROR}}}' if attempt.error or attempt.status >= 400 else ""
        yield self._span(CLIENT, name, own, self._own, began, end, values, status)
        if connecting:
            yield self._part("connect", connecting, sent or end, own)
        if sent:
            yield self._part("first byte", sent, first or end, own)
        if first and end > first:
            yield self._part("body", first, end, own)

    def _part(
        self, name: str, began: float, ended: float, parent: str, values: Mapping[str, Value] = _NOTHING
    ) -> str:
        own, self._next = f"{self._next:016x}", self._next + 1
        return self._span(INTERNAL, name, own, parent, began, ended, values)

    def _span(
        self,
        kind: int,
        name: str,
        own: str,
        parent: str,
        began: float,
        ended: float,
        values: Mapping[str, Value],
        status: str = "",
    ) -> str:
        start, end = self._epoch + int(began * 1e9), self._epoch + int(max(began, ended) * 1e9)
        return (
            f'{{{self._common},"spanId":"{own}","parentSpanId":"{parent}","name":{_text(name[:LONGEST])},'
            f'"kind":{kind},"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}",'
            f'"attributes":[{_attributes(values)}]{status}}}'
        )


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


def _attributes(values: Mapping[str, Value]) -> str:
    """Without those that have no value."""
    return ",".join(
        [
            _attribute(key, value if isinstance(value, int) else value[:LONGEST])
            for key, value in values.items()
            if value is not None and value != ""
        ]
    )


@lru_cache(512)
def _attribute(key: str, value: str | int) -> str:
    """`key` has no character that JSON escapes. Whole numbers are texts in the JSON of protobuf. Most attributes
    are those of the request before: these stay in the cache, and what differs goes by."""
    if isinstance(value, int):
        return f'{{"key":"{key}","value":{{"intValue":"{value}"}}}}'
    return f'{{"key":"{key}","value":{{"stringValue":{_text(value)}}}}}'


def _text(text: str) -> str:
    """As JSON. What is not Unicode, such as some system's message of an error, becomes question marks."""
    try:
        return orjson.dumps(text).decode()
    except orjson.JSONEncodeError:
        return orjson.dumps(text.encode(errors="replace").decode()).decode()
