"""The load cases, wrk that sends them, and one measurement: a fresh proxy, a warm-up, a counted run, and the proxy
gone again."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.command import Bench, refuse
from bench.http import ask
from bench.peers import Peer, Site, find_program
from bench.pods import start_upstreams
from bench.ports import free_ports
from bench.processes import BenchError, Running, wait_until
from bench.procstat import ProcessTree

LUA = Path(__file__).parent / "lua"
REPORT, TAIL_CHARACTERS = "bench-report ", 400
GRACE_SECONDS, LOOK_SECONDS, READY_SECONDS = 30.0, 0.5, 30.0
ERROR_KINDS = ("status", "connect", "read", "write", "timeout")


class Case(NamedTuple):
    """One kind of load: what is asked for, and the wrk script in `bench/lua/` that asks for it."""

    name: str
    title: str
    path: str

    def script(self) -> str:
        """The text of the wrk script: the case's own part, then the one that writes the report."""
        return (LUA / f"{self.name}.lua").read_text() + (LUA / "report.lua").read_text()


CASES = (
    Case("repeat", "small GET, every head the same", "/v1/models"),
    Case("distinct", "small GET, every head different (a traceparent in each)", "/v1/models"),
    Case("post", "POST of 2 KiB JSON, lengths vary", "/upload"),
    Case("download", "1 MiB replies", "/download"),
    Case("upload", "1 MiB requests", "/upload"),
)


@dataclass(frozen=True)
class LoadReport:
    """One run of wrk. Latencies in microseconds; errors by kind, `status` being neither 2xx nor 3xx."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, output: str) -> "LoadReport":
        """From the line that `bench/lua/report.lua` writes. Raises BenchError where wrk came to no end."""
        line = next((line for line in output.splitlines() if line.startswith(REPORT)), None)
        if line is None:
            raise BenchError(f"wrk reported nothing: {output.strip()[-TAIL_CHARACTERS:]}")
        found = json.loads(line.removeprefix(REPORT))
        errors = {kind: found[kind] for kind in ERROR_KINDS if found[kind]}
        return cls(found["requests"], found["duration_us"] / 1e6, found["p50_us"], found["p99_us"], errors)


class Wrk:
    """wrk with one thread on the load's core: closed loop, so each connection has one request in flight. Refuses
    where it is not installed."""

    def __init__(self, core: int, connections: int) -> None:
        program = find_program("wrk")
        if program is None:
            refuse("wrk is not installed, and all the load comes from it: apt-get install wrk")
        self._argv = ["taskset", "--cpu-list", str(core), program, "-t1", f"-c{connections}", "--timeout", "10s"]

    def run(
        self, case: Case, port: int, seconds: int, home: Path, meanwhile: Callable[[], object] = lambda: None
    ) -> LoadReport:
        """Load `port` for `seconds`, calling `meanwhile` about twice a second."""
        script = home / f"{case.name}.lua"
        script.write_text(case.script())
        argv = [*self._argv, f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}{case.path}"]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            for _ in range(round((seconds + GRACE_SECONDS) / LOOK_SECONDS)):
                try:
                    return LoadReport.parse(process.communicate(timeout=LOOK_SECONDS)[0])
                except subprocess.TimeoutExpired:
                    meanwhile()
            raise BenchError("wrk did not end")
        finally:
            process.kill()
            process.wait()


def counted(
    run: Callable[[int], LoadReport], warmup: int, seconds: int, running: Running, *trees: ProcessTree
) -> tuple[LoadReport, list[float]]:
    """A warm-up, and a counted run with the seconds of CPU that each tree used in it. Raises BenchError where
    nothing was answered, or `running` has ended."""
    if warmup:
        run(warmup)
    before = [tree.cpu_seconds() for tree in trees]
    report = run(seconds)
    running.check_alive()
    used = [tree.cpu_seconds() - had for tree, had in zip(trees, before, strict=True)]
    if not report.requests:
        raise BenchError(f"no request was answered: {report.errors}")
    return report, used


@dataclass(frozen=True)
class Sample:
    """One peer under one case in one round. `failure` is why there are no figures."""

    peer: str
    case: str
    load: LoadReport = LoadReport(0, 0.0, 0.0, 0.0)
    cpu_seconds: float = 0.0
    resident_mib: float = 0.0
    failure: str = ""

    @property
    def cpu_us(self) -> float:
        """CPU time of the proxy's processes, user and system, in microseconds per counted request."""
        return self.cpu_seconds * 1e6 / self.load.requests


def pinned_cores() -> tuple[int, int]:
    """Cores of the proxy and of the load, to which this process is pinned: the last and the first. Refuses where
    that is one and the same."""
    allowed = sorted(os.sched_getaffinity(0))
    load, proxy = allowed[0], allowed[-1]
    if proxy == load:
        refuse("the proxy and the load need a core each, and there is only one")
    os.sched_setaffinity(0, {load})
    return proxy, load


@dataclass(frozen=True)
class Served:
    """A peer that serves."""

    peer: Peer
    site: Site
    running: Running

    @property
    def tree(self) -> ProcessTree:
        return ProcessTree(self.running.pid, self.peer.not_counted)


class Measurement:
    """Starts a peer, loads it with wrk, and reads its CPU time before and after the counted requests. Upstreams,
    wrk and this process share the load's core."""

    def __init__(self, bench: Bench, seconds: int, warmup: int) -> None:
        self._processes, self._seconds, self._warmup = bench.processes, seconds, warmup
        self._proxy_core, self._load_core = pinned_cores()
        self._upstreams = free_ports(2)
        site = bench.home / "site"
        site.mkdir()
        start_upstreams(bench.processes, site, self._load_core, self._upstreams)

    def take(self, peer: Peer, case: Case, connections: int) -> Sample:
        """One sample; a peer that cannot be measured gives one with the reason."""
        wrk = Wrk(self._load_core, connections)
        try:
            with self.serving(peer) as served:
                return self._loaded(served, case, wrk)
        except (BenchError, OSError) as error:
            return Sample(peer.name, case.name, failure=str(error))

    @contextmanager
    def serving(self, peer: Peer) -> Iterator[Served]:
        """A fresh one, which sends to both upstreams; gone afterwards. Raises BenchError and OSError."""
        with TemporaryDirectory(prefix=f"slb-bench-{peer.name}-") as folder:
            site, running = peer.start(self._processes, Path(folder) / "home", self._upstreams, self._proxy_core)
            try:
                self._wait_for_both(peer, site, running)
                yield Served(peer, site, running)
            finally:
                self._processes.stop(running)

    def burst(self, served: Served, case: Case, connections: int) -> Sample:
        """One more sample of what serves already, without a warm-up. Raises BenchError."""
        wrk = Wrk(self._load_core, connections)
        report, (used,) = counted(partial(_load, served, case, wrk), 0, self._seconds, served.running, served.tree)
        return Sample(served.peer.name, case.name, report, used)

    def _wait_for_both(self, peer: Peer, site: Site, running: Running) -> None:
        seen: set[str] = set()

        def both_serve() -> bool:
            status, upstream = ask(site.port, "/")
            seen.update({upstream} if status == 200 else ())
            return len(seen) == len(self._upstreams)

        wait_until(lambda: peer.announce(site), running, READY_SECONDS, "becoming ready")
        wait_until(both_serve, running, READY_SECONDS, "reaching both upstreams")

    def _loaded(self, served: Served, case: Case, wrk: Wrk) -> Sample:
        tree = served.tree
        seen = [tree.resident_mib()]
        load = partial(_load, served, case, wrk, meanwhile=lambda: seen.append(tree.resident_mib()))
        report, (used,) = counted(load, self._warmup, self._seconds, served.running, tree)
        return Sample(served.peer.name, case.name, report, used, max(seen))


def _load(
    served: Served, case: Case, wrk: Wrk, seconds: int, meanwhile: Callable[[], object] = lambda: None
) -> LoadReport:
    return wrk.run(case, served.site.port, seconds, served.site.home, meanwhile)
