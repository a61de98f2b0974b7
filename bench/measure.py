"""One measurement: a fresh proxy, a warm-up, a counted run, and the proxy gone again."""

import getpass
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import Case
from bench.errors import BenchError
from bench.http import ask, free_ports
from bench.load import LoadReport, Wrk
from bench.peers import Peer, Site
from bench.processes import Processes, Running, wait_until
from bench.procstat import ProcessTree, core_times
from bench.results import Sample

READY_SECONDS = 30.0
MEMORY_EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """What is the same for every measurement of one run of the bench."""

    upstreams: tuple[int, int]
    proxy_core: int
    seconds: int
    warmup_seconds: int


class Measurement:
    """Starts a peer, loads it, and reads its CPU time before and after the counted requests."""

    def __init__(self, processes: Processes, wrk: Wrk, plan: Plan) -> None:
        self._processes = processes
        self._wrk = wrk
        self._plan = plan

    def take(self, peer: Peer, case: Case, number: int) -> Sample:
        """One sample; a peer that cannot be measured gives one that says why."""
        with TemporaryDirectory(prefix=f"slb-bench-{peer.name}-") as home:
            port, api_port = free_ports(2)
            site = Site(Path(home), port, api_port, self._plan.upstreams, getpass.getuser())
            try:
                return self._started(peer, case, number, site)
            except (BenchError, OSError) as error:
                return Sample(peer.name, case.name, number, failure=str(error))

    def _started(self, peer: Peer, case: Case, number: int, site: Site) -> Sample:
        program = peer.program()
        if program is None:
            raise BenchError("not installed")
        argv = peer.command(program, site)
        running = self._processes.start(argv, self._plan.proxy_core, site.home, peer.environment_at(site))
        try:
            self._wait(peer, running, site)
            return self._loaded(peer, case, number, site, running)
        finally:
            self._processes.stop(running)

    def _wait(self, peer: Peer, running: Running, site: Site) -> None:
        wait_until(lambda: peer.announce(site), running, READY_SECONDS, "becoming ready")
        seen: set[str] = set()

        def both_serve() -> bool:
            status, upstream = ask(site.port, "/")
            seen.update({upstream} if status == 200 else ())
            return len(seen) == len(site.upstreams)

        wait_until(both_serve, running, READY_SECONDS, "reaching both upstreams")

    def _loaded(self, peer: Peer, case: Case, number: int, site: Site, running: Running) -> Sample:
        tree = ProcessTree(running.pid, peer.not_counted)
        self._load(case, site, self._plan.warmup_seconds, tree)
        core = self._plan.proxy_core
        before, core_before = tree.cpu_seconds(), core_times(core)
        report, resident_mib = self._load(case, site, self._plan.seconds, tree)
        running.check_alive()
        used, of_core = tree.cpu_seconds() - before, core_times(core).since(core_before)
        if not report.requests:
            raise BenchError(f"no request was answered: {report.errors}")
        return Sample(
            peer=peer.name,
            case=case.name,
            round=number,
            requests=report.requests,
            seconds=report.seconds,
            p50_us=report.p50_us,
            p99_us=report.p99_us,
            cpu_seconds=used,
            resident_mib=resident_mib,
            others_cpu_seconds=max(0.0, of_core.used - used),
            stolen_seconds=of_core.stolen,
            errors=report.errors,
        )

    def _load(self, case: Case, site: Site, seconds: int, tree: ProcessTree) -> tuple[LoadReport, float]:
        """One run of wrk: its report, and the most memory that was seen meanwhile in MiB."""
        seen = [tree.resident_mib()]
        report = self._wrk.run(
            case,
            site.port,
            seconds,
            site.home,
            lambda: seen.append(tree.resident_mib()),
            MEMORY_EVERY_SECONDS,
        )
        return report, max(seen)
