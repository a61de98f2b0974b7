"""One measurement: a fresh proxy, a warm-up, a counted run, and the proxy gone again."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.command import Bench, refuse
from bench.errors import BenchError
from bench.http import ask, free_ports
from bench.load import Case, LoadReport, Wrk
from bench.peers import Peer, Started, find_program
from bench.pods import start_upstreams
from bench.processes import wait_until
from bench.procstat import ProcessTree

READY_SECONDS = 30.0


@dataclass(frozen=True)
class Sample:
    """One peer under one case in one round. `failure` is why there are no figures."""

    peer: str
    case: str
    round: int
    requests: int = 0
    seconds: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    cpu_seconds: float = 0.0
    resident_mib: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    failure: str = ""

    @property
    def cpu_us_per_request(self) -> float:
        """CPU time of the proxy's processes, user and system, in microseconds per counted request."""
        return self.cpu_seconds * 1e6 / self.requests

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def busy(self) -> float:
        """Share of its core that the proxy used."""
        return self.cpu_seconds / self.seconds


def pinned_cores(proxy: int | None = None, load: int | None = None) -> tuple[int, int]:
    """Cores of the proxy and of the load: the last and the first where none is named. Refuses what cannot be."""
    if not hasattr(os, "sched_getaffinity"):
        refuse("the bench needs Linux: it pins processes to cores and reads their CPU time from /proc")
    allowed = sorted(os.sched_getaffinity(0))
    proxy = allowed[-1] if proxy is None else proxy
    load = allowed[0] if load is None else load
    if proxy == load or not {proxy, load} <= set(allowed):
        refuse(f"the proxy and the load need a core each, out of {allowed}; got {proxy} and {load}")
    return proxy, load


class Measurement:
    """Starts a peer, loads it with wrk, and reads its CPU time before and after the counted requests. Upstreams,
    wrk and this process share the load's core."""

    def __init__(self, bench: Bench, proxy_core: int, load_core: int, seconds: int, warmup_seconds: int) -> None:
        if find_program("wrk") is None:
            refuse("wrk is not installed, and all the load comes from it: apt-get install wrk")
        os.sched_setaffinity(0, {load_core})
        self._processes = bench.processes
        self._proxy_core, self._load_core = proxy_core, load_core
        self._seconds, self._warmup_seconds = seconds, warmup_seconds
        self._upstreams = free_ports(2)
        site = bench.home / "site"
        site.mkdir()
        start_upstreams(bench.processes, site, load_core, self._upstreams)

    def take(self, peer: Peer, case: Case, number: int, connections: int) -> Sample:
        """One sample; a peer that cannot be measured gives one with the reason."""
        with TemporaryDirectory(prefix=f"slb-bench-{peer.name}-") as folder:
            try:
                started = peer.start(self._processes, Path(folder) / "home", self._upstreams, self._proxy_core)
                try:
                    self._wait_for_both(started)
                    return self._loaded(started, case, number, connections)
                finally:
                    self._processes.stop(started.running)
            except (BenchError, OSError) as error:
                return Sample(peer.name, case.name, number, failure=str(error))

    def _wait_for_both(self, started: Started) -> None:
        started.wait_until_ready()
        seen: set[str] = set()

        def both_serve() -> bool:
            status, upstream = ask(started.site.port, "/")
            seen.update({upstream} if status == 200 else ())
            return len(seen) == len(self._upstreams)

        wait_until(both_serve, started.running, READY_SECONDS, "reaching both upstreams")

    def _loaded(self, started: Started, case: Case, number: int, connections: int) -> Sample:
        peer, site = started.peer, started.site
        tree = ProcessTree(started.running.pid, peer.not_counted)
        wrk = Wrk(self._load_core, connections)
        seen = [tree.resident_mib()]

        def load(seconds: int) -> LoadReport:
            return wrk.run(case, site.port, seconds, site.home, lambda: seen.append(tree.resident_mib()))

        load(self._warmup_seconds)
        before = tree.cpu_seconds()
        report = load(self._seconds)
        started.running.check_alive()
        used = tree.cpu_seconds() - before
        if not report.requests:
            raise BenchError(f"no request was answered: {report.errors}")
        times = (report.requests, report.seconds, report.p50_us, report.p99_us, used)
        return Sample(peer.name, case.name, number, *times, max(seen), report.errors)
