"""`python -m bench jobs-shared`: requests that share their slots with jobs, beside the same requests alone."""

import json
import time
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet, Instance, queued
from bench.http import get_text, send_json
from bench.jobs.systems import MODEL, MOST_AT_ONCE, PAYLOAD
from bench.pods import NOTED
from bench.redis import PrivateRedis
from bench.table import Figure, Outcome, Section
from bench.traffic import Tally, Traffic
from slb.job import route_of

PATH, POOL = "/online", {"pool": "bench", "priorities": "online=8,jobs=1"}
GOAL_RATIO, GOAL_BUSY = 1.25, 0.97
SETTLE_SECONDS = 1.0


def jobs_shared(
    bench: Bench,
    pods: Annotated[int, Option(min=1, help="Each serves one request or job at a time.")] = 10,
    service: Annotated[float, Option(min=0.01, help="Mean service time, seconds.")] = 0.2,
    load: Annotated[float, Option(min=0.1, max=1, help="Share of the slots' time that requests take.")] = 0.5,
    seconds: Annotated[float, Option(min=1, help="That each run is counted.")] = 30,
    seed: Annotated[int, Option(help="Of service times.")] = 1,
) -> Outcome:
    """Requests alone, then with more jobs waiting than can be run, on the same one-slot pods."""
    redis = PrivateRedis(bench.processes, bench.home / "redis", "always")
    fleet = Fleet(bench.processes, bench.home, ("--roles", "proxy,jobs"), redis)
    ports = fleet.start_pods("noting", pods, service=service, seed=seed)
    for path in (PATH, route_of(MODEL)):
        fleet.write_route(path, ports, {**queued(1, "60s"), **POOL})
    (instance,) = fleet.start_instances(1)
    fleet.wait_until_shown(PATH, ports, instance.running)
    rate = load * pods / service
    runs = {}
    for what in ("alone", "with jobs"):
        bench.to(f"{rate:.0f} requests a second, {what}")
        if what == "with jobs":
            _submit(instance, round(3 * pods * (seconds + SETTLE_SECONDS) / service))
        with Traffic([instance.port], PATH, rate) as traffic:
            time.sleep(SETTLE_SECONDS)
            get_text(ports[0], NOTED)
            begun, counted = time.monotonic(), len(traffic.answers)
            time.sleep(seconds)
            gaps, passed = json.loads(get_text(ports[0], NOTED))["gaps"], time.monotonic() - begun
        busy = 1 - sum(gap for gap, _ in gaps) / (pods * passed)
        runs[what] = Tally.of(traffic.answers[counted:]), busy
    fleet.check_alive()
    title = f"{pods} one-slot pods, {service * 1e3:g} ms, {rate:.0f} requests a second, then with jobs: 1 turn in 9"
    return Outcome([Section(title, _figures(runs, service))])


def _submit(instance: Instance, count: int) -> None:
    for first in range(0, count, MOST_AT_ONCE):
        jobs = [{"model": MODEL, "payload": PAYLOAD}] * min(MOST_AT_ONCE, count - first)
        send_json("POST", instance.api_port, "/queue/submit-many", jobs)


def _figures(runs: dict[str, tuple[Tally, float]], service: float) -> list[Figure]:
    (alone, idle), (beside, busy) = runs["alone"], runs["with jobs"]
    limit = GOAL_RATIO * alone.p99_ms + service * 1e3
    return [
        Figure("requests alone, p99", alone.p99_ms, "ms"),
        Figure("slots busy", idle * 100, "%"),
        Figure("requests with jobs, p99", beside.p99_ms, "ms", at_most=limit),
        Figure("that, less one service time, of alone", (beside.p99_ms - service * 1e3) / alone.p99_ms),
        Figure("requests failed", alone.failed + beside.failed, at_most=0),
        Figure("slots busy with jobs", busy * 100, "%", at_least=GOAL_BUSY * 100),
    ]
