"""Spans on their way to a collector, and what becomes of them where it is away, slow, or answers nonsense."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from random import Random
from time import monotonic, time_ns
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from slb.observe import trace_export
from slb.observe.metrics import TraceCounts
from slb.observe.trace import Attempt, Ended, place_at_start
from slb.observe.trace_export import TraceExporter
from tests.support.collector import Collector, tree
from tests.support.waiting import eventually, soon, within

Make = Callable[..., TraceExporter]


def ended(number: int = 1, path: str = "/p", attempts: int = 1) -> Ended:
    """A request of the last second."""
    now = monotonic()
    each = Attempt("a:80", "http", "a", 80, 0.0, 0.0, None, "", 0.0, now - 0.5, now - 0.2, now, 200, "")
    return Ended(
        place=place_at_start(b"%032x" % number, number * 1000),
        started=now - 1,
        ended=now,
        method="GET",
        path=path,
        target=path,
        scheme="http",
        host="h",
        minor=1,
        route="/p",
        status=200,
        reason="",
        detail="",
        request_id="r",
        client="10.0.0.1",
        peer="10.0.0.1",
        bytes_in=0,
        bytes_out=2,
        attempts=(each,) * attempts,
    )


@pytest.fixture
async def exporters() -> AsyncIterator[Make]:
    """Makes exporters that run: `exporters(collector)`, `exporters("http://...", every=60)`."""
    running: list[asyncio.Task[None]] = []

    def make(to: Collector | str, **options: Any) -> TraceExporter:
        chosen = {"pauses": (0.0, 0.0), "every": 0.01, **options}
        made = TraceExporter({"service.name": "slb"}, ("slb", "1.2"), TraceCounts(), monotonic, Random(1), **chosen)
        made.url = to if isinstance(to, str) else to.url
        running.append(asyncio.create_task(made.run()))
        return made

    yield make
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def collectors() -> AsyncIterator[Callable[..., Any]]:
    """`await collectors(503, 200)`: one that answers so."""
    made: list[Collector] = []

    async def make(*answers: web.Response | int | None) -> Collector:
        made.append(await Collector(*answers).start())
        return made[-1]

    yield make
    for each in made:
        await each.stop()


def counts(exporter: TraceExporter) -> dict[str, int]:
    return dict(exporter._counts.spans)


async def test_what_comes_together_is_sent_together_with_times_of_the_day(
    exporters: Make, collectors: Callable[..., Any]
) -> None:
    collector = await collectors()
    exporter = exporters(collector)
    exporter.headers = {"X-Key": "k"}
    exporter.add(ended(1))
    exporter.add(ended(2))
    spans = await collector.until(2)
    assert len(collector.headers) == 1
    assert (collector.headers[0]["X-Key"], collector.headers[0]["Content-Type"]) == ("k", "application/json")
    assert collector.resources == [{"service.name": "slb"}]
    assert tree(spans) == ["GET /p", ["GET", ["first byte", [], "body", []]]] * 2
    assert all(0 <= time_ns() - each.began < 600 * 10**9 for each in spans)
    assert max(each.ended - each.began for each in spans) == pytest.approx(10**9, rel=0.01)
    await eventually(lambda: counts(exporter) == {"sent": 8, "rejected": 0})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_collector_that_is_busy_is_asked_again(
    exporters: Make, collectors: Callable[..., Any], status: int
) -> None:
    collector = await collectors(status, 200)
    exporter = exporters(collector)
    exporter.add(ended())
    await collector.until(1)
    await eventually(lambda: counts(exporter) == {"sent": 4, "rejected": 0})


@pytest.mark.parametrize("status", [301, 400, 401, 404, 500])
async def test_what_a_collector_refuses_is_not_sent_again(
    exporters: Make, collectors: Callable[..., Any], status: int
) -> None:
    collector = await collectors(status)
    exporter = exporters(collector)
    exporter.add(ended())
    await eventually(lambda: counts(exporter) == {"failed": 4})
    assert len(collector.headers) == 1


async def test_failures_are_logged_once_and_counted_and_later_spans_arrive(
    exporters: Make, collectors: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    exporter = exporters(f"http://127.0.0.1:{port}/v1/traces")
    with capture_logs() as logs:
        for number in range(1, 4):
            exporter.add(ended(number))
            await eventually(lambda number=number: counts(exporter) == {"failed": 4 * number})  # type: ignore[misc]
    assert [(each["event"], each["posts"]) for each in logs] == [("spans_not_delivered", 1)]
    collector = await collectors()
    exporter.url = collector.url
    exporter.add(ended(4))
    await collector.until(1)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 2000 hm\r\n\r\n", b"\x00\xff" * 100, b"", b"HTTP/1.1 200 OK\r\nX"])
async def test_an_answer_that_is_none_costs_the_spans_and_nothing_else(exporters: Make, answer: bytes) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    exporter = exporters(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    exporter.add(ended(1))
    await eventually(lambda: counts(exporter) == {"failed": 4})
    exporter.add(ended(2))
    await eventually(lambda: counts(exporter) == {"failed": 8})
    server.close()


@pytest.mark.parametrize(
    ("body", "rejected"),
    [
        ('{"partialSuccess": {"rejectedSpans": "3"}}', 3),
        ('{"partialSuccess": {"rejectedSpans": 99}}', 4),
        ('{"partialSuccess": {"rejectedSpans": -1}}', 0),
        ('{"partialSuccess": null}', 0),
        ('{"partialSuccess": {"rejectedSpans": "many"}}', 0),
        ("[]", 0),
        ("\x0a\x00", 0),
        ("x" * 200_000, 0),
    ],
)
async def test_the_collector_says_how_many_it_rejected(
    exporters: Make, collectors: Callable[..., Any], body: str, rejected: int
) -> None:
    collector = await collectors(web.Response(text=body))
    exporter = exporters(collector)
    exporter.add(ended())
    await eventually(lambda: counts(exporter) == {"sent": 4 - rejected, "rejected": rejected})


async def test_beside_a_collector_that_does_not_answer_no_more_waits_than_may(
    exporters: Make, collectors: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = await collectors(None)
    exporter = exporters(collector)
    exporter.add(ended())
    await eventually(lambda: len(collector.headers) == 1)
    most = trace_export.MOST_SPANS // ended().most_spans
    for number in range(most + 10):
        exporter.add(ended(number))
    assert 0 < counts(exporter)["full"] <= 10 * ended().most_spans
    monkeypatch.setattr(trace_export, "MOST_BYTES", 0)
    exporter.add(ended())
    assert counts(exporter)["full"] <= 11 * ended().most_spans


async def test_what_was_sent_makes_room(
    exporters: Make, collectors: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_export, "MOST_SPANS", ended().most_spans)
    monkeypatch.setattr(trace_export, "MOST_BYTES", ended().size)
    collector = await collectors()
    exporter = exporters(collector)
    for number in range(1, 4):
        exporter.add(ended(number))
        await collector.until(number)
    assert "full" not in counts(exporter)


async def test_long_paths_count_by_their_length() -> None:
    exporter = TraceExporter({}, ("slb", "1"), TraceCounts(), monotonic, Random(1))
    for number in range(1000):
        exporter.add(ended(number, "/" + "x" * 16_000))
    assert 200 < len(exporter._waiting) < trace_export.MOST_BYTES / 32_000 + 1


async def test_a_large_heap_is_sent_in_several_posts(exporters: Make, collectors: Callable[..., Any]) -> None:
    collector = await collectors()
    exporter = exporters(collector, every=60.0)
    for number in range(300):
        exporter.add(ended(number))
    await eventually(lambda: len(collector.headers) >= 2)
    await exporter.leave(10.0)
    assert collector.requests == 300


async def test_who_leaves_sends_what_waits_at_once(exporters: Make, collectors: Callable[..., Any]) -> None:
    collector = await collectors()
    exporter = exporters(collector, every=3600.0)
    exporter.add(ended())
    await soon(exporter.leave(3600.0))
    assert collector.requests == 1


async def test_who_leaves_does_not_wait_for_a_collector_that_is_away_or_silent(
    exporters: Make, collectors: Callable[..., Any]
) -> None:
    failing = exporters("http://127.0.0.1:1/", pauses=(3600.0,))
    failing.add(ended())
    await eventually(lambda: not failing._waiting, what="its first try")
    async with within(10.0):
        await failing.leave(3600.0)
    assert counts(failing) == {"failed": 4}
    silent = exporters(await collectors(None), every=0.0)
    silent.add(ended(1))
    await eventually(lambda: not silent._waiting)
    silent.add(ended(2))
    with capture_logs() as logs:
        await silent.leave(0.01)
    assert [(each["event"], each["spans"]) for each in logs] == [("spans_left_behind", 6)]
    assert counts(silent) == {"stopped": 6}


async def test_a_fault_in_the_making_of_spans_costs_them_and_nothing_else(
    exporters: Make, collectors: Callable[..., Any]
) -> None:
    collector = await collectors()
    exporter = exporters(collector)
    with capture_logs() as logs:
        exporter.add(ended()._replace(started=float("nan")))
        await eventually(lambda: counts(exporter) == {"failed": ended().most_spans})
    assert [each["event"] for each in logs] == ["spans_broke"]
    exporter.add(ended())
    await collector.until(1)


async def test_with_nothing_to_send_leaving_takes_no_time(exporters: Make) -> None:
    exporter = exporters("http://127.0.0.1:1/")
    async with within(10.0):
        await exporter.leave(3600.0)
