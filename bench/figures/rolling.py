"""Every instance and every upstream is restarted under traffic, one after another: which requests fail?"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.http import free_ports
from bench.table import Figure, Outcome, Section
from bench.traffic import Answer, Tally, Traffic

PATH = "/steady"
INSTANCES, UPSTREAMS = 2, 3
SLOTS = 1000
"""Of each upstream: none of its requests has to wait for another."""

QUIET_SECONDS = 2.0
"""Before the first restart and after the last."""

Spans = dict[str, list[tuple[float, float]]]
"""From when to when (`time.monotonic`) something was restarted, by what it was."""


def rolling(
    bench: Bench,
    rate: Annotated[int, Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    rounds: Annotated[int, Option(min=1, help="Times that everything is restarted.")] = 2,
) -> Outcome:
    """Every instance and every upstream restarted under traffic, one after another."""
    fleet = bench.fleet()
    instances = fleet.start_instances(INSTANCES)
    ports = free_ports(UPSTREAMS)
    upstreams = [fleet.start_stand_in(port, PATH, SLOTS) for port in ports]
    restarts: Spans = {"instances": [], "upstreams": []}

    @contextmanager
    def restarting(kind: str, number: int) -> Iterator[None]:
        bench.to(f"restarting {kind} {number + 1}")
        begun = time.monotonic()
        yield
        restarts[kind].append((begun, time.monotonic()))

    with Traffic([each.port for each in instances], PATH, rate, tries_others=True) as traffic:
        time.sleep(QUIET_SECONDS)
        for _ in range(rounds):
            for number in range(INSTANCES):
                with restarting("instances", number):
                    fleet.restart_instance(fleet.instances[number])
            for number, port in enumerate(ports):
                with restarting("upstreams", number):
                    fleet.stop_well(upstreams[number])
                    upstreams[number] = fleet.start_stand_in(port, PATH, SLOTS)
        time.sleep(QUIET_SECONDS)
    tally = Tally.of(traffic.answers)
    figures = [
        Figure("restarts", sum(map(len, restarts.values()))),
        Figure("requests", tally.requests),
        Figure("failed", tally.failed(200), at_most=0),
        *(
            Figure(f"of these while {kind} restarted", _failed_during(traffic.answers, spans))
            for kind, spans in restarts.items()
        ),
        Figure("latency, p99", tally.p99_ms, "ms"),
        Figure("latency, max", tally.max_ms, "ms"),
    ]
    title = f"{INSTANCES} instances and {UPSTREAMS} upstreams restarted one after another"
    return Outcome([Section(title, figures)])


def _failed_during(answers: list[Answer], spans: list[tuple[float, float]]) -> int:
    failed = [answer for answer in answers if answer.status != 200]
    return sum(any(answer.due < end and answer.ended > begun for begun, end in spans) for answer in failed)
