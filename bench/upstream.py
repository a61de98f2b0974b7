"""The two upstreams of every measurement: nginx, or the bench's own pods where nginx is not installed."""

import getpass
from collections.abc import Sequence
from pathlib import Path

from bench.http import ask
from bench.peers import CONFIGS, Site, find_program
from bench.pods import READY_SECONDS, start_pods
from bench.processes import Processes, wait_until
from bench.procstat import MIB


def start_upstreams(processes: Processes, home: Path, core: int | None, ports: Sequence[int]) -> None:
    """Both in one process, on the load's core so that they never take from a proxy's; both answer on return."""
    program = find_program("nginx")
    if program is None:
        start_pods(processes, home, "plain", ports, core=core)
        return
    (home / "download.bin").write_bytes(b"x" * MIB)
    config = home / "upstreams.conf"
    config.write_text(Site(home, 0, 0, tuple(ports), getpass.getuser()).fill((CONFIGS / config.name).read_text()))
    argv = [program, "-p", str(home), "-e", "stderr", "-c", str(config)]
    running = processes.start(argv, core, home, {})
    wait_until(
        lambda: all(ask(port, "/")[0] == 200 for port in ports), running, READY_SECONDS, "starting the upstreams"
    )
