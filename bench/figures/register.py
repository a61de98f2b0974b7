"""How long after a registration through one instance the other serves it."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPConnection

from bench.errors import BenchError
from bench.figures.figure import Figure, Outcome, Section, percentile
from bench.figures.fleet import Fleet
from bench.progress import Steps

GOAL_P99_MS = 20.0
GIVE_UP_SECONDS = 5.0
NOT_COUNTED = 3
"""Tries before the counted ones: connections are opened, and code runs for the first time."""


@dataclass(frozen=True)
class Try:
    """Milliseconds from the moment `POST /register` was sent: until the other instance served the new route,
    and until the instance that was asked had answered. The latter was read after the former: it is an upper
    bound."""

    served_ms: float
    answered_ms: float
    polls: int


class Registrations:
    """Registers at one instance's API, and asks the other's data listener without a pause, over kept-alive
    connections: the figure is exact to one such request."""

    def __init__(self, api_port: int, other_port: int, target: str) -> None:
        self._api = HTTPConnection("127.0.0.1", api_port, timeout=GIVE_UP_SECONDS)
        self._other = HTTPConnection("127.0.0.1", other_port, timeout=GIVE_UP_SECONDS)
        self._target = target

    def close(self) -> None:
        self._api.close()
        self._other.close()

    def take(self, path: str) -> Try:
        """Register a route that is not there yet. Raises BenchError where the other never serves it."""
        body = json.dumps({"path": path, "target": self._target})
        self._ask_other(path)
        started = time.perf_counter()
        self._api.request("POST", "/register", body, {"Content-Type": "application/json"})
        polls = 1
        while self._ask_other(path) != 200:
            polls += 1
            if time.perf_counter() - started > GIVE_UP_SECONDS:
                raise BenchError(f"{path} was not served within {GIVE_UP_SECONDS:g} s")
        served = time.perf_counter()
        reply = self._api.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise BenchError(f"/register answered {reply.status}: {text.decode(errors='replace')}")
        return Try((served - started) * 1e3, (time.perf_counter() - started) * 1e3, polls)

    def _ask_other(self, path: str) -> int:
        self._other.request("GET", path)
        reply = self._other.getresponse()
        reply.read()
        return reply.status


def measure(fleet: Fleet, steps: Steps, tries: int) -> Outcome:
    """`tries` registrations of one new route each."""
    steps.to("starting two instances")
    target, _ = fleet.start_upstreams()
    first, second = fleet.start_pair()
    registrations = Registrations(first.api_port, second.port, target)
    try:
        for number in range(NOT_COUNTED):
            registrations.take(f"/warm-up/{number}")
        steps.to("registering")
        taken = [_counted(registrations, number, steps) for number in range(tries)]
    finally:
        registrations.close()
    return Outcome([section(taken)], {"tries": [asdict(each) for each in taken]})


def _counted(registrations: Registrations, number: int, steps: Steps) -> Try:
    taken = registrations.take(f"/try/{number}")
    steps.done()
    return taken


def section(taken: Sequence[Try]) -> Section:
    """The figures of some tries."""
    served = [each.served_ms for each in taken]
    answered = [each.answered_ms for each in taken]
    return Section(
        f"registered through one instance, served by the other: {len(taken)} tries",
        [
            Figure("served by the other, p50", percentile(served, 0.5), "ms"),
            Figure("served by the other, p99", percentile(served, 0.99), "ms", below=GOAL_P99_MS),
            Figure("served by the other, max", max(served, default=float("nan")), "ms"),
            Figure("/register answered, p50", percentile(answered, 0.5), "ms"),
            Figure("/register answered, p99", percentile(answered, 0.99), "ms"),
        ],
    )
