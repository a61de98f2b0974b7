"""All measurements of one call, in turn: every round gives each proxy one turn in each case."""

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from rich.console import Console

from bench.cases import Case
from bench.http import free_ports
from bench.load import Wrk
from bench.machine import described
from bench.measure import Measurement, Plan
from bench.peers import Peer
from bench.processes import Processes
from bench.progress import Steps, progress_bar
from bench.results import Sample, as_json
from bench.upstream import Upstreams


@dataclass(frozen=True)
class Choice:
    """What the user asked for."""

    peers: tuple[Peer, ...]
    cases: tuple[Case, ...]
    rounds: int
    seconds: int
    warmup_seconds: int
    connections: int
    proxy_core: int
    load_core: int


class Run:
    """`samples` grows while it runs, so that an interrupted run still has what was measured."""

    def __init__(self, choice: Choice, wrk: str) -> None:
        self.choice = choice
        self.samples: list[Sample] = []
        self.missing = {peer.name: peer.install for peer in choice.peers if peer.program() is None}
        self.versions: dict[str, str] = {}
        self._wrk = Wrk(wrk, choice.load_core, choice.connections)
        self._started = datetime.now(UTC)

    def execute(self, console: Console) -> None:
        """Measure everything; `console` shows a progress bar if it is a terminal."""
        os.sched_setaffinity(0, {self.choice.load_core})
        self.versions = {peer.name: peer.version(path) for peer in self._installed() if (path := peer.program())}
        with TemporaryDirectory(prefix="slb-bench-upstreams-") as home, Processes() as processes:
            first, second = free_ports(2)
            upstreams = Upstreams(processes, Path(home) / "site", self.choice.load_core, (first, second))
            upstreams.start()
            plan = Plan((first, second), self.choice.proxy_core, self.choice.seconds, self.choice.warmup_seconds)
            with progress_bar(console) as progress:
                self._turns(Measurement(processes, self._wrk, plan), Steps(progress, self._total()))

    def as_json(self) -> bytes:
        """Machine, settings, versions and every sample."""
        settings = asdict(self.choice) | {
            "peers": [peer.name for peer in self.choice.peers],
            "cases": [case.name for case in self.choice.cases],
        }
        whole = {
            "started": self._started.isoformat(timespec="seconds"),
            "machine": described(),
            "settings": settings,
            "versions": self.versions,
            "not_installed": self.missing,
            "samples": as_json(self.samples),
        }
        return orjson.dumps(whole, option=orjson.OPT_INDENT_2)

    def _turns(self, measurement: Measurement, steps: Steps) -> None:
        for number in range(1, self.choice.rounds + 1):
            for peer in self._installed():
                for case in self.choice.cases:
                    steps.to(f"round {number}: {peer.name}, {case.name}")
                    self.samples.append(measurement.take(peer, case, number))
                    steps.done()

    def _total(self) -> int:
        return self.choice.rounds * len(self._installed()) * len(self.choice.cases)

    def _installed(self) -> list[Peer]:
        return [peer for peer in self.choice.peers if peer.name not in self.missing]
