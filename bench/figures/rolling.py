"""Every instance and every upstream is restarted under traffic, one after another: whom does it fail?"""

import time
from dataclasses import asdict, dataclass

from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet
from bench.figures.traffic import Answer, Tally, Traffic
from bench.http import free_ports
from bench.progress import Steps

PATH = "/steady"
INSTANCES = 2
UPSTREAMS = 3
SLOTS = 1000
"""Of each upstream: none of its requests has to wait for another."""

QUIET_SECONDS = 2.0
"""Before the first restart and after the last."""


@dataclass(frozen=True)
class Plan:
    """What the user asked for: requests a second, and how often everything is restarted."""

    rate: int = 500
    rounds: int = 2


@dataclass(frozen=True)
class Restart:
    """What was restarted, from when to when (`time.monotonic`)."""

    what: str
    begun: float
    ended: float


class Rolling:
    """Restarts, and remembers when."""

    def __init__(self, fleet: Fleet, steps: Steps) -> None:
        self._fleet = fleet
        self._steps = steps
        self._ports = free_ports(UPSTREAMS)
        self._stand_ins = [fleet.start_stand_in(port, PATH, SLOTS) for port in self._ports]
        self.restarts: list[Restart] = []

    def all_instances(self) -> None:
        for number in range(INSTANCES):
            begun = self._begin(f"restarting instance {number + 1}")
            self._fleet.restart_instance(self._fleet.instances[number])
            self._end("instances", begun)

    def all_upstreams(self) -> None:
        for number, port in enumerate(self._ports):
            begun = self._begin(f"restarting upstream {number + 1}")
            self._fleet.stop_stand_in(self._stand_ins[number])
            self._stand_ins[number] = self._fleet.start_stand_in(port, PATH, SLOTS)
            self._end("upstreams", begun)

    def _begin(self, what: str) -> float:
        self._steps.to(what)
        return time.monotonic()

    def _end(self, what: str, begun: float) -> None:
        self.restarts.append(Restart(what, begun, time.monotonic()))
        self._steps.done()


def steps_of(plan: Plan) -> int:
    """Of the bar: what `measure` goes through."""
    return plan.rounds * (INSTANCES + UPSTREAMS)


def measure(fleet: Fleet, steps: Steps, plan: Plan) -> Outcome:
    """`plan.rounds` times all instances, then all upstreams."""
    steps.to("starting instances and upstreams")
    fleet.start_pair()
    rolling = Rolling(fleet, steps)
    with Traffic([each.port for each in fleet.instances], PATH, plan.rate, tries_others=True) as traffic:
        time.sleep(QUIET_SECONDS)
        for _ in range(plan.rounds):
            rolling.all_instances()
            rolling.all_upstreams()
        time.sleep(QUIET_SECONDS)
    tally = Tally.of(traffic.answers)
    raw: dict[str, object] = {"traffic": asdict(tally), "restarts": [asdict(each) for each in rolling.restarts]}
    return Outcome([_section(tally, traffic.answers, rolling.restarts)], raw)


def _section(tally: Tally, answers: list[Answer], restarts: list[Restart]) -> Section:
    while_instances, while_upstreams = (
        _failed_during(answers, [each for each in restarts if each.what == what])
        for what in ("instances", "upstreams")
    )
    figures = [
        Figure("restarts", len(restarts)),
        Figure("requests", tally.requests),
        Figure("failed", tally.failed(200), at_most=0),
        Figure("of these while instances restarted", while_instances),
        Figure("of these while upstreams restarted", while_upstreams),
        Figure("latency, p99", tally.p99_ms, "ms"),
        Figure("latency, max", tally.max_ms, "ms"),
    ]
    return Section(f"{INSTANCES} instances and {UPSTREAMS} upstreams restarted one after another", figures)


def _failed_during(answers: list[Answer], restarts: list[Restart]) -> int:
    return sum(
        any(answer.due < each.ended and answer.ended > each.begun for each in restarts)
        for answer in answers
        if answer.status != 200
    )
