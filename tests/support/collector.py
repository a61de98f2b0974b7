"""A collector of traces: takes OTLP in JSON, and reads it by OpenTelemetry's own protobuf definitions."""

import asyncio
import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.support.waiting import eventually

_IDS = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True)
class Span:
    """Times are nanoseconds since 1970."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    state: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, str | int]


def read(body: bytes) -> tuple[dict[str, str | int], list[Span]]:
    """The attributes of the resource, and the spans. Raises ParseError where a field is unknown or of another
    type: in JSON ids are hexadecimal, the one thing in which OTLP differs from protobuf."""
    whole = orjson.loads(body)
    for span in _spans_in(whole):
        for name in _IDS:
            span[name] = base64.b64encode(bytes.fromhex(span.get(name, ""))).decode()
    (found,) = Parse(orjson.dumps(whole), ExportTraceServiceRequest()).resource_spans
    (scope,) = found.scope_spans
    return _values(found.resource.attributes), [_span(each) for each in scope.spans]


def _spans_in(whole: Any) -> Iterator[dict[str, Any]]:
    for resource in whole["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def _span(each: Any) -> Span:
    return Span(
        each.name,
        each.SpanKind.Name(each.kind).removeprefix("SPAN_KIND_"),
        each.trace_id.hex(),
        each.span_id.hex(),
        each.parent_span_id.hex(),
        each.trace_state,
        each.start_time_unix_nano,
        each.end_time_unix_nano,
        each.status.code == each.status.STATUS_CODE_ERROR,
        _values(each.attributes),
    )


def _values(attributes: Sequence[KeyValue]) -> dict[str, str | int]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes}


def tree(spans: Sequence[Span], parent: str = "") -> list[Any]:
    """The names below the span `parent`, in the order of their times: `["GET /p", ["queue", []], ...]`."""
    below = sorted((each for each in spans if each.parent == parent), key=lambda each: (each.began, each.ended))
    return [name for each in below for name in (each.name, tree(spans, each.id))]


class Collector:
    """Listens on 127.0.0.1. Answers with `answers`, one after another, and with the last of them for ever; None
    keeps one waiting. `spans`: all that came; `headers`: of each POST."""

    def __init__(self, *answers: web.Response | int | None) -> None:
        self.answers: list[web.Response | int | None] = list(answers) or [200]
        self.spans: list[Span] = []
        self.resources: list[dict[str, str | int]] = []
        self.headers: list[dict[str, str]] = []
        self._kept = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    async def start(self, port: int = 0) -> "Collector":
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        self._kept.set()
        await self._runner.cleanup()

    async def until(self, requests: int) -> list[Span]:
        """All spans, once there are those of so many requests, which come together."""
        await eventually(lambda: self.requests >= requests)
        assert self.requests == requests, [each.name for each in self.spans]
        return self.spans

    @property
    def requests(self) -> int:
        return sum(each.kind == "SERVER" for each in self.spans)

    async def _take(self, request: web.Request) -> web.Response:
        resource, spans = read(await request.read())
        self.headers.append(dict(request.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await self._kept.wait()
            answer = 503
        if answer == 200 or isinstance(answer, web.Response):
            self.resources.append(resource)
            self.spans += spans
        return answer if isinstance(answer, web.Response) else web.json_response({}, status=answer)
