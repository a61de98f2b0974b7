"""How long after a registration through one instance the other serves it."""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.processes import BenchError
from bench.table import Figure, Outcome, Section, percentile

GOAL_P99_MS = 20.0
GIVE_UP_SECONDS = 5.0
NOT_COUNTED = 3  # tries before the counted ones: connections are opened, and code runs for the first time


def _tried(api: HTTPConnection, other: HTTPConnection, path: str, target: str) -> tuple[float, float]:
    """Register a new route at one instance's API, and request it from the other without a pause, over kept-alive
    connections: milliseconds from the moment `POST /register` was sent until the other served it, exact to one such
    request, and until the instance itself had answered, which is read afterwards and an upper bound. Raises
    BenchError where the other never serves it."""
    _status(other, path)
    started = time.perf_counter()
    body = json.dumps({"path": path, "target": target})
    api.request("POST", "/register", body, {"Content-Type": "application/json"})
    while _status(other, path) != 200:
        if time.perf_counter() - started > GIVE_UP_SECONDS:
            raise BenchError(f"{path} was not served within {GIVE_UP_SECONDS:g} s")
    served = time.perf_counter()
    reply = api.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise BenchError(f"/register answered {reply.status}: {text.decode(errors='replace')}")
    return (served - started) * 1e3, (time.perf_counter() - started) * 1e3


def _status(other: HTTPConnection, path: str) -> int:
    other.request("GET", path)
    reply = other.getresponse()
    reply.read()
    return reply.status


def register(
    bench: Bench, tries: Annotated[int, Option(min=1, help="How many routes are registered.")] = 200
) -> Outcome:
    """How long after a registration through one instance the other serves it."""
    fleet = bench.fleet()
    target, _ = fleet.start_upstreams()
    first, second = fleet.start_instances(2)
    bench.to("registering")
    to = (HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS) for port in (first.api_port, second.port))
    with closing(next(to)) as api, closing(next(to)) as other:
        taken = [_tried(api, other, f"/try/{number}", target) for number in range(NOT_COUNTED + tries)]
    return Outcome([section(taken[NOT_COUNTED:])])


def section(taken: Sequence[tuple[float, float]]) -> Section:
    """The figures of some tries: milliseconds until served, until answered."""
    served, answered = zip(*taken, strict=True)
    figures = [
        Figure("served by the other, p50", percentile(served, 0.5), "ms"),
        Figure("served by the other, p99", percentile(served, 0.99), "ms", below=GOAL_P99_MS),
        Figure("served by the other, max", percentile(served, 1.0), "ms"),
        Figure("/register answered, p50", percentile(answered, 0.5), "ms"),
        Figure("/register answered, p99", percentile(answered, 0.99), "ms"),
    ]
    return Section(f"registered through one instance, served by the other: {len(taken)} tries", figures)
