"""Every instance and every upstream is restarted under traffic, one after another: which requests fail?"""

import time
from collections.abc import Callable
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.http import free_ports
from bench.table import Figure, Outcome, Section
from bench.traffic import Tally, Traffic

PATH = "/steady"
INSTANCES, UPSTREAMS = 2, 3
SLOTS = 1000  # of each upstream: none of its requests has to wait for another
QUIET_SECONDS = 2.0  # before the first restart and after the last


def rolling(
    bench: Bench,
    rate: Annotated[int, Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    rounds: Annotated[int, Option(min=1, help="Times that everything is restarted.")] = 2,
) -> Outcome:
    """Every instance and every upstream restarted under traffic, one after another."""
    fleet = bench.fleet()
    instances, ports = fleet.start_instances(INSTANCES), free_ports(UPSTREAMS)
    upstreams = [fleet.start_stand_in(port, PATH, SLOTS) for port in ports]

    def restart_instance(number: int) -> None:
        fleet.restart_instance(fleet.instances[number])

    def restart_upstream(number: int) -> None:
        fleet.stop_well(upstreams[number])
        upstreams[number] = fleet.start_stand_in(ports[number], PATH, SLOTS)

    kinds: dict[str, tuple[Callable[[int], None], int]] = {
        "instances": (restart_instance, INSTANCES),
        "upstreams": (restart_upstream, UPSTREAMS),
    }
    spans: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}  # from when to when it was restarted
    with Traffic([each.port for each in instances], PATH, rate, tries_others=True) as traffic:
        time.sleep(QUIET_SECONDS)
        for _ in range(rounds):
            for kind, (restart, members) in kinds.items():
                for number in range(members):
                    bench.to(f"restarting {kind} {number + 1}")
                    begun = time.monotonic()
                    restart(number)
                    spans[kind].append((begun, time.monotonic()))
        time.sleep(QUIET_SECONDS)
    failed = [answer for answer in traffic.answers if answer.status != 200]

    def failed_during(kind: str) -> int:
        return sum(any(each.due < end and each.ended > begun for begun, end in spans[kind]) for each in failed)

    count, all_failed, *latencies = Tally.of(traffic.answers).figures()
    while_restarted = (Figure(f"of these while {kind} restarted", failed_during(kind)) for kind in kinds)
    restarts = Figure("restarts", sum(map(len, spans.values())))
    figures = [restarts, count, all_failed, *while_restarted, *latencies]
    title = f"{INSTANCES} instances and {UPSTREAMS} upstreams restarted one after another"
    return Outcome([Section(title, figures)])
