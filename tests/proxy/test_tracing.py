"""Traces of real requests, read as a collector gets them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from time import monotonic, time_ns
from typing import Any

import pytest
import pytest_asyncio

from slb.observe.trace_export import TraceExporter
from slb.proxy import tracing
from slb.proxy.exchange import Exchange
from slb.proxy.headers import RequestHeads
from slb.proxy.tracing import Tracing
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, ask
from tests.proxy.slots_rig import Fleet, Pod, queued
from tests.support.collector import Collector, Span, tree
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{PARENT}-{flags}" for flags in ("01", "00"))
ONE_ATTEMPT = ["GET", ["connect", [], "first byte", []]]
POOLED = ["GET", ["first byte", []]]

Trace = Callable[..., Awaitable[Tracing]]


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    made = await Collector().start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def trace(collector: Collector) -> AsyncIterator[Trace]:
    """`await trace(proxy, trace_share=1)`: from now on its requests are traced."""
    tasks: list[asyncio.Task[None]] = []

    async def made(proxy: Proxy, **settings: Any) -> Tracing:
        exporter = TraceExporter({}, ("slb", "1"), proxy.metrics.trace, monotonic, Random(1), every=0.01)
        tasks.append(asyncio.create_task(exporter.run()))
        changed = {"trace_endpoint": collector.url, **settings}
        return Tracing(proxy.settings.model_copy(update=changed), proxy.server.context, exporter)

    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def traced(proxy: Proxy, trace: Trace) -> Proxy:
    """A proxy whose `/` leads to `origin`; every request that comes without a trace is traced."""
    await trace(proxy, trace_share=1.0)
    return proxy


def told(request: Request) -> tuple[str, str, str]:
    """Trace, span and flags of the traceparent that an upstream got."""
    _, trace, span, flags = (request.one("traceparent") or "").split("-")
    return trace, span, flags


def of_kind(spans: list[Span], kind: str) -> list[Span]:
    return sorted((each for each in spans if each.kind == kind), key=lambda each: each.began)


async def test_a_request_is_one_trace_and_its_upstream_is_told_the_span_of_the_attempt(
    traced: Proxy, origin: Origin, collector: Collector
) -> None:
    before = time_ns()
    reply = await traced.get("/a/b?secret=1")
    spans = await collector.until(1)
    assert tree(spans) == ["GET /", ONE_ATTEMPT]
    (server,), (client,) = of_kind(spans, "SERVER"), of_kind(spans, "CLIENT")
    assert told(origin.requests[0]) == (server.trace, client.id, "01")
    assert server.trace == reply.one("X-Request-Id") == origin.requests[0].one("X-Request-Id")
    assert before <= server.began <= client.began <= client.ended <= server.ended <= time_ns()
    host, port = origin.member.split(":")
    assert client.attributes == {
        "http.request.method": "GET",
        "url.full": f"http://{origin.member}/a/b",
        "server.address": host,
        "server.port": int(port),
        "network.protocol.version": "1.1",
        "http.response.status_code": 200,
        "slb.upstream": origin.member,
    }
    assert server.attributes == {
        "http.request.method": "GET",
        "url.path": "/a/b",
        "url.scheme": "http",
        "http.route": "/",
        "http.response.status_code": 200,
        "http.request.body.size": 0,
        "http.response.body.size": 2,
        "server.address": "example.test",
        "client.address": "127.0.0.1",
        "network.peer.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "slb.route": "/",
        "slb.upstream": origin.member,
        "slb.request_id": server.trace,
        "slb.attempts": 1,
    }
    assert not any(span.failed for span in spans)


async def test_a_trace_that_came_goes_on_below_the_clients_span(
    traced: Proxy, origin: Origin, collector: Collector
) -> None:
    await traced.get("/", traceparent=SAMPLED, tracestate="a=1,b=2", X_Request_Id="mine")
    spans = await collector.until(1)
    assert tree(spans, PARENT) == ["GET /", ONE_ATTEMPT]
    assert {(each.trace, each.state) for each in spans} == {(TRACE, "a=1,b=2")}
    (client,) = of_kind(spans, "CLIENT")
    (request,) = origin.requests
    assert told(request) == (TRACE, client.id, "01")
    assert (request.all("tracestate"), request.all("X-Request-Id")) == (["a=1,b=2"], ["mine"])


async def test_a_trace_that_nobody_records_passes_as_it_came(
    traced: Proxy, origin: Origin, collector: Collector
) -> None:
    await traced.get("/", traceparent=UNSAMPLED)
    await traced.get("/")
    assert TRACE not in {each.trace for each in await collector.until(1)}
    assert origin.requests[0].all("traceparent") == [UNSAMPLED]


async def test_the_flag_for_random_ids_is_kept(traced: Proxy, origin: Origin, collector: Collector) -> None:
    await traced.get("/", traceparent=f"00-{TRACE}-{PARENT}-ff")
    await collector.until(1)
    assert told(origin.requests[0])[2] == "03"


async def test_what_is_not_in_the_share_tells_upstreams_not_to_record_it(
    proxy: Proxy, origin: Origin, trace: Trace, collector: Collector
) -> None:
    await trace(proxy, trace_share=0.0)
    await proxy.get("/")
    await proxy.get("/", X_Request_Id="mine")
    await proxy.get("/", traceparent=SAMPLED)
    assert {each.trace for each in await collector.until(1)} == {TRACE}
    assert [told(each)[2] for each in origin.requests] == ["00", "00", "01"]


async def test_the_share_is_about_that_of_the_requests(proxy: Proxy, trace: Trace, origin: Origin) -> None:
    """Seed 7: 300 of a share of a half have a standard deviation of 9; four of them are allowed."""
    await trace(proxy, trace_share=0.5)
    wire = await proxy.connect()
    for _ in range(300):
        await wire.get("/")
    assert 114 <= [told(each)[2] for each in origin.requests].count("01") <= 186


async def test_each_attempt_is_a_span_and_each_upstream_is_told_its_own(
    proxies: MakeProxy, origins: MakeOrigin, trace: Trace, collector: Collector
) -> None:
    async def unavailable(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    bad, good = await origins(unavailable), await origins()
    proxy = await proxies()
    proxy.route("/p", good)
    await proxy.get("/p")  # so that there is an idle connection
    proxy.route("/p", bad, good, policy="round_robin")
    await trace(proxy, trace_share=1.0)
    while not bad.requests:
        await proxy.get("/p")
    spans = [
        each for each in await collector.until(len(good.requests) - 1) if each.trace == told(bad.requests[0])[0]
    ]
    assert tree(spans) == ["GET /p", ["GET", ["connect", [], "first byte", []], *POOLED]]
    first, second = of_kind(spans, "CLIENT")
    assert [told(bad.requests[0])[1], told(good.requests[-1])[1]] == [first.id, second.id]
    assert (first.failed, first.attributes["http.response.status_code"]) == (True, 503)
    assert (second.failed, second.attributes["http.request.resend_count"]) == (False, 1)
    (server,) = of_kind(spans, "SERVER")
    assert (server.attributes["slb.attempts"], server.attributes["slb.upstream"]) == (2, good.member)


async def test_a_request_that_waited_for_a_slot_has_a_span_for_that(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey, trace: Trace, collector: Collector
) -> None:
    pod = Pod()
    (proxy,) = await fleet(
        1, await origins(pod.handle), policy="least_inflight", max_inflight="1", when_full="queue"
    )
    await trace(proxy, trace_share=1.0)
    first = ask(proxy)
    await eventually(lambda: len(pod.running) == 1)
    second = ask(proxy)
    await eventually(lambda: queued(valkey) == 1)
    pod.go_on.set()
    assert [(await each).status for each in (first, second)] == [200, 200]
    spans = await collector.until(2)
    (queue,) = (each for each in spans if each.name == "queue")
    below = [each for each in spans if each.trace == queue.trace]
    assert tree(below) == ["GET /p", ["queue", [], *POOLED]]
    assert queue.attributes == {"slb.queue.position": 0}
    (client,) = of_kind(below, "CLIENT")
    assert queue.ended <= client.began + 10_000_000  # the gate's clock goes in milliseconds


async def test_a_body_that_comes_in_pieces_has_a_span(
    proxies: MakeProxy, origins: MakeOrigin, trace: Trace, collector: Collector
) -> None:
    go_on = asyncio.Event()

    async def drip(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await go_on.wait()
        await request.wire.send(b"cd")

    proxy = await proxies()
    proxy.route("/", await origins(drip))
    await trace(proxy, trace_share=1.0)
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await wire.head()
    go_on.set()
    await wire.reader.readexactly(4)
    assert tree(await collector.until(1)) == ["GET /", ["GET", ["connect", [], "first byte", [], "body", []]]]


async def test_with_errors_only_what_fails_is_traced_from_its_beginning(
    proxies: MakeProxy, origins: MakeOrigin, trace: Trace, collector: Collector
) -> None:
    async def hang_up(request: Request) -> None:
        request.wire.reset()

    proxy = await proxies()
    proxy.route("/good", await origins())
    proxy.route("/bad", bad := await origins(hang_up))
    await trace(proxy, trace_share=0.0, trace_errors=True)
    await proxy.get("/good")
    reply = await proxy.get("/bad")
    spans = await collector.until(1)
    assert tree(spans) == ["GET /bad", ONE_ATTEMPT]
    (server,), (client,) = of_kind(spans, "SERVER"), of_kind(spans, "CLIENT")
    assert (server.failed, client.failed) == (True, True)
    assert server.attributes["slb.reason"] == server.attributes["error.type"] == "upstream_reset" == reply.reason
    assert (server.trace, told(bad.requests[0])[2]) == (reply.one("X-Request-Id"), "00")


async def test_a_request_without_an_upstream_is_a_span_of_its_own(
    proxies: MakeProxy, trace: Trace, collector: Collector
) -> None:
    proxy = await proxies()
    proxy.route("/p")
    await trace(proxy, trace_share=1.0)
    await proxy.get("/p")
    (server,) = await collector.until(1)
    assert (server.attributes["slb.reason"], server.attributes["slb.attempts"]) == ("no_upstream", 0)


async def test_of_a_flood_of_traces_no_more_are_recorded_than_the_rate_allows(
    proxy: Proxy, trace: Trace, collector: Collector, origin: Origin
) -> None:
    await trace(proxy, trace_rate=1)
    for _ in range(20):
        await proxy.get("/", traceparent=SAMPLED)
    recorded = [told(each) for each in origin.requests if told(each)[1] != PARENT]
    assert 1 <= len(recorded) < 20
    assert proxy.metrics.trace.limited == 20 - len(recorded)


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
async def test_of_many_requests_the_share_is_traced(proxy: Proxy, trace: Trace, share: float) -> None:
    tracing: Any = await trace(proxy, trace_share=share)
    chosen = 20_000
    counted = sum(tracing._next() for _ in range(chosen))
    assert chosen / counted == pytest.approx(share, rel=0.05)


async def test_a_client_with_a_traceparent_of_its_own_changes_no_turn(proxy: Proxy, trace: Trace) -> None:
    await trace(proxy, trace_share=0.5)
    context = proxy.server.context
    context.until_traced = 2.0
    for _ in range(3):
        await proxy.get("/", traceparent=SAMPLED)
    assert context.until_traced == 2.0
    await proxy.get("/")
    assert context.until_traced == 1.0


async def test_without_an_endpoint_nothing_is_done_for_a_request(proxy: Proxy, trace: Trace) -> None:
    tracing = await trace(proxy, trace_endpoint="")
    context = proxy.server.context
    assert (context.make_exchange, context.on_end) == (Exchange, None)
    tracing.reconfigure(proxy.settings.model_copy(update={"trace_endpoint": "http://127.0.0.1:1/"}))
    assert context.make_exchange is not Exchange
    tracing.reconfigure(proxy.settings)
    assert (context.make_exchange, context.on_end) == (Exchange, None)


async def test_the_histograms_name_a_traced_request_in_its_bucket(traced: Proxy, collector: Collector) -> None:
    reply = await traced.get("/")
    counts = traced.metrics.traffic.routes["/"]
    for histogram in (counts.durations, counts.first_bytes):
        assert histogram.exemplars is not None
        ((index, exemplar),) = histogram.exemplars.items()
        assert (exemplar.labels, histogram.counts[index]) == ({"trace_id": reply.one("X-Request-Id")}, 1)


@pytest.mark.parametrize("head", ["Traceparent:  {} ", "TRACEPARENT:{}", "traceparent: {}\r\nConnection: close"])
async def test_however_a_client_writes_it_there_is_one_traceparent(
    traced: Proxy, origin: Origin, collector: Collector, head: str
) -> None:
    wire = await traced.connect()
    await wire.send(f"GET / HTTP/1.1\r\nHost: h\r\n{head.format(SAMPLED)}\r\n\r\n".encode())
    await wire.reply()
    spans = await collector.until(1)
    assert [told(each) for each in origin.requests] == [(TRACE, of_kind(spans, "CLIENT")[0].id, "01")]


def test_the_head_that_requests_share_is_read_as_fast_as_before() -> None:
    """CPython makes an object's `__dict__` once it is asked for, and reads its fields more slowly from then on."""
    head = RequestHeads(b"slb-test", 100, trusted=False).parse(b"Host: h\r\nX-A: 1\r\n\r\n")
    sent = tracing.told(head, UNSAMPLED.encode(), b"an id")
    assert (sent.host, sent.lines, sent.trace, head.trace) == (b"h", 2, UNSAMPLED.encode(), None)
    assert not any(isinstance(each, dict) for each in gc.get_referents(head))
