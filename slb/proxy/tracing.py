"""Which requests are traced, what their upstreams are told of it, and what is kept of them when they end.

A request is recorded from its beginning where its client's traceparent says so, or by the share of those that came
with none. With `trace_errors` those that failed are recorded when they end, from the times that each has anyhow.
"""

import math
import re
import time

from slb.config import Settings
from slb.observe.families import Histogram
from slb.observe.trace import Ended, Place, Rate, is_sampled, place_at_start, place_below
from slb.observe.trace_export import TraceExporter
from slb.proxy.context import ProxyContext
from slb.proxy.exchange import Exchange
from slb.proxy.exchange_base import ExchangeBase
from slb.proxy.headers import RequestHead
from slb.proxy.interfaces import Client
from slb.proxy.request import Request
from slb.setting_values import trace_headers
from slb.upstreams.connection import UpstreamConnection

_TRACE_FIELD = re.compile(rb"^traceparent:[^\n]*+\n", re.IGNORECASE | re.MULTILINE)
_SPAN_BITS = 64
_OF_A_HEAD = tuple(name for name in vars(RequestHead) if not name.startswith("_"))
"""Copied one by one: one head serves all requests that are alike. Once its `__dict__` was asked for, each read of a
field takes longer, in all of them."""


class TracedExchange(Exchange):
    """An exchange whose upstreams are told the span of their attempt."""

    def _send(self, connection: UpstreamConnection) -> None:
        request, attempt = self.request, len(self.tried.upstreams)
        assert self.place is not None
        head = told(request.head, self.place.traceparent(attempt), request.id)
        self.request = Request(request.line, head, request.peer, request.route, request.id)
        super()._send(connection)


def told(head: RequestHead, traceparent: bytes, request_id: bytes) -> RequestHead:
    """`head` with this traceparent in place of its own, and with the request's id."""
    made = RequestHead()
    for name in _OF_A_HEAD:
        setattr(made, name, getattr(head, name))
    fields = _TRACE_FIELD.sub(b"", head.fields) if head.trace else head.fields
    if not head.request_id:
        fields += b"X-Request-Id: %b\r\n" % request_id
    made.fields = fields + b"traceparent: %b\r\n" % traceparent
    made.trace, made.request_id = traceparent, request_id
    return made


class Tracing:
    """Traces the requests of one instance. `exporter`: takes what is recorded."""

    def __init__(self, settings: Settings, context: ProxyContext, exporter: TraceExporter) -> None:
        self._context = context
        self._exporter = exporter
        self._counts = context.metrics.trace
        self._rate = Rate(0)
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Trace as these settings say, from the next request on."""
        context, exporter, headers = self._context, self._exporter, settings.trace_headers
        exporter.url = settings.trace_endpoint
        exporter.headers = trace_headers(headers.get_secret_value()) if headers is not None else {}
        exporter.resource = {**exporter.resource, "service.name": settings.trace_service}
        self._share, self._errors = settings.trace_share, settings.trace_errors
        self._rate.most = settings.trace_rate
        traces = bool(settings.trace_endpoint)
        context.make_exchange = self.begin if traces else Exchange
        context.on_end = self.ended if traces else None
        context.until_traced = self._next() if traces else math.inf
        context.identity.samples(not traces)

    def begin(self, context: ProxyContext, client: Client, request: Request, started: float) -> Exchange:
        """The exchange of a request that came with a traceparent, or was chosen."""
        trace = request.head.trace
        if trace:
            context.until_traced += 1  # it was counted with those that have none
        else:
            context.until_traced = self._next()
        if (trace and not is_sampled(trace)) or not self._allows(started):
            return Exchange(context, client, request, started)
        exchange = TracedExchange(context, client, request, started)
        exchange.place = self._place(request)
        return exchange

    def _next(self) -> float:
        """Which of the next requests is traced: so each is by the probability of the share, and no number is drawn
        for the others."""
        if not 0 < self._share < 1:
            return 1.0 if self._share else math.inf
        return 1.0 + math.floor(math.log(1 - self._context.rng.random()) / math.log1p(-self._share))

    def _allows(self, now: float) -> bool:
        if self._rate.allows(now):
            return True
        self._counts.limited += 1
        return False

    def _place(self, request: Request) -> Place:
        head, context = request.head, self._context
        bits = context.rng.getrandbits(_SPAN_BITS)
        if head.trace:
            return place_below(head.trace, b",".join(head.states or ()), bits)
        own = request.id if not head.request_id else context.identity.new_request_id()
        return place_at_start(own, bits)

    def ended(self, exchange: ExchangeBase, status: int, reason: str, detail: str, now: float) -> None:
        """Keep what is known of a request that ended `now`, if it is recorded."""
        if exchange.place is not None:
            self._keep(exchange, exchange.place, status, reason, detail, now)
        elif self._errors and self._allows(now):
            self._keep(exchange, self._place(exchange.request), status, reason, detail, now)

    def _keep(
        self, exchange: ExchangeBase, place: Place, status: int, reason: str, detail: str, now: float
    ) -> None:
        request = exchange.request
        line, head, peer = request.line, request.head, request.peer
        last = exchange.attempt_until(now, exchange.status, reason)
        self._exporter.add(
            Ended(
                place=place,
                started=exchange.started,
                ended=now,
                method=line.method.decode(),
                path=line.path.decode(),
                target=line.forwarded_target.removesuffix(line.query).decode(),
                scheme=peer.scheme,
                host=(head.host or b"").decode("latin-1"),
                minor=line.minor,
                route=request.route.path,
                status=status,
                reason=reason,
                detail=detail,
                request_id=request.id.decode(),
                client=peer.client(head),
                peer=peer.address,
                bytes_in=exchange.bytes_in,
                bytes_out=exchange.bytes_out,
                attempts=(*exchange.attempted, last),
            )
        )
        self._show(exchange, place, now)

    def _show(self, exchange: ExchangeBase, place: Place, now: float) -> None:
        """As an example of its buckets in the route's histograms."""
        counts = self._context.metrics.traffic.routes.get(exchange.route.path)
        if counts is None:
            return
        example = place.trace.decode(), time.time()
        times: list[tuple[Histogram, float]] = [(counts.durations, now - exchange.started)]
        if exchange.first_byte_at:
            times.append((counts.first_bytes, exchange.first_byte_at - exchange.started))
        for histogram, seconds in times:
            histogram.exemplify(seconds, *example)
