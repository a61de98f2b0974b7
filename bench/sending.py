"""Requests at times that were decided beforehand, from a process of its own: `python -m bench.sending PLAN RESULT`,
both JSON files. A request is sent when it is due, whether or not earlier ones have a reply."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired

import orjson
import uvloop

from bench.processes import BenchError, Processes
from bench.timers import Timers
from bench.traffic import NO_REPLY, KeptAlive

START_SECONDS = 1.5  # for the process to be there, before a plan begins
SPARE_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """`requests[n]` goes to `ports[to[n]]`, `arrivals[n]` seconds after `begin` (`time.monotonic`); one without a
    reply after `patience` seconds is given up."""

    begin: float
    ports: Sequence[int]
    arrivals: Sequence[float]
    requests: Sequence[str]
    to: Sequence[int]
    patience: float


@dataclass
class Result:
    """By request, in the plan's order: its status (0 or below: no reply), the seconds from when it was due until
    its reply was whole, and how late it was sent."""

    statuses: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    sent_late: list[float] = field(default_factory=list)


async def send(plan: Plan) -> Result:
    """Send what is in the plan."""
    count = len(plan.arrivals)
    result = Result([NO_REPLY] * count, [0.0] * count, [0.0] * count)
    clients = [KeptAlive(port, "/", plan.patience) for port in plan.ports]
    timers, begun, all_begun = Timers(asyncio.get_running_loop()), set[asyncio.Task[None]](), asyncio.Event()

    async def one(number: int) -> None:
        due = plan.begin + plan.arrivals[number]
        result.sent_late[number] = time.monotonic() - due
        result.statuses[number] = await clients[plan.to[number]].fetch(plan.requests[number].encode())
        result.latencies[number] = time.monotonic() - due

    def begin(number: int) -> None:
        begun.add(asyncio.create_task(one(number)))
        if number == count - 1:
            all_begun.set()

    for number, arrival in enumerate(plan.arrivals):
        timers.at(plan.begin + arrival, lambda number=number: begin(number))  # type: ignore[misc]
    await all_begun.wait()
    await asyncio.gather(*begun)
    timers.close()
    for client in clients:
        client.close()
    return result


def sent(processes: Processes, home: Path, plan: Plan) -> Result:
    """What `plan` comes to, sent by a process of its own in `home`, which is made. Raises BenchError where it
    fails."""
    home.mkdir()
    planned, kept = home / "plan.json", home / "result.json"
    planned.write_bytes(orjson.dumps(asdict(plan)))
    running = processes.start_module(home, "bench.sending", planned, kept)
    end = plan.begin + plan.arrivals[-1] + plan.patience + SPARE_SECONDS
    try:
        code = running.process.wait(end - time.monotonic())
    except TimeoutExpired:
        code = None
    if code != 0:
        raise BenchError(f"the load ended with {code}: {running.tail()}")
    processes.stop(running)
    return Result(**orjson.loads(kept.read_bytes()))


if __name__ == "__main__":
    outcome = uvloop.run(send(Plan(**orjson.loads(Path(sys.argv[1]).read_bytes()))))
    Path(sys.argv[2]).write_bytes(orjson.dumps(asdict(outcome)))
