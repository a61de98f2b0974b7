"""The two upstreams of every measurement: nginx, or our own server where nginx is not installed."""

import getpass
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
        running = self._nginx(self.program, home) if self.program else self._own(home)
        wait_until(self._answer, running, READY_SECONDS, "starting the upstreams")
        return running

    def _own(self, home: Path) -> Running:
        ports = self._site.upstreams
        return self._processes.start_module(home, "bench.upstream_server", *ports, core=self._core)

    def _nginx(self, program: str, home: Path) -> Running:
        config = home / "upstreams.conf"
        config.write_text(self._site.fill((CONFIGS / config.name).read_text()))
        argv = [program, "-p", str(home), "-e", "stderr", "-c", str(config)]
        return self._processes.start(argv, self._core, home, {})

    def _answer(self) -> bool:
        return all(ask(port, "/")[0] == 200 for port in self._site.upstreams)
