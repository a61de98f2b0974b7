"""The two upstreams of every measurement: nginx, or our own server where nginx is not installed."""

import getpass
import sys
from pathlib import Path

from bench.http import ask
from bench.peers import CONFIGS, Site, find_program
from bench.processes import Processes, Running, wait_until
from bench.procstat import MIB

READY_SECONDS = 15.0


class Upstreams:
    """Starts both upstreams in one process on the load's core, so that they never take from a proxy's."""

    def __init__(self, processes: Processes, home: Path, core: int | None, ports: tuple[int, int]) -> None:
        self._processes = processes
        self._site = Site(home, 0, 0, ports, getpass.getuser())
        self._core = core
        self.program = find_program("nginx")

    def start(self) -> Running:
        """Start them and wait until both answer."""
        home = self._site.home
        home.mkdir()
        (home / "download.bin").write_bytes(b"x" * MIB)
        environment = {"PYTHONPATH": str(Path(__file__).parent.parent)}
        running = self._processes.start(self._command(), self._core, home, environment)
        wait_until(self._answer, running, READY_SECONDS, "starting the upstreams")
        return running

    def _command(self) -> list[str]:
        if not self.program:
            return [sys.executable, "-m", "bench.upstream_server", *map(str, self._site.upstreams)]
        config = self._site.home / "upstreams.conf"
        config.write_text(self._site.fill((CONFIGS / config.name).read_text()))
        return [self.program, "-p", str(self._site.home), "-e", "stderr", "-c", str(config)]

    def _answer(self) -> bool:
        return all(ask(port, "/")[0] == 200 for port in self._site.upstreams)
