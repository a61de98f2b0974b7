"""Lost early replies, by server: slb beside its peers."""

import getpass
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.early.asking import status_of_upload
from bench.early.servers import APPLICATIONS, SERVERS, Server
from bench.errors import BenchError
from bench.figures.figure import Figure, Outcome, Section
from bench.http import free_ports
from bench.peers import ENVOY, HAPROXY, NGINX, SLB, Peer, Site
from bench.processes import Processes, wait_until
from bench.progress import Steps

PEERS = (SLB, NGINX, HAPROXY, ENVOY)
STEPS = len(SERVERS) * len(PEERS)
READY_SECONDS = 30.0
REFUSED = 413


def measure(processes: Processes, home: Path, steps: Steps, uploads: int) -> Outcome:
    """`uploads` of each server through each proxy. Raises BenchError where one does not start."""
    sections: list[Section] = []
    raw: dict[str, object] = {}
    for server in SERVERS:
        if not server.is_there():
            sections.append(Section(f"{server.name}: not installed ({server.install})", []))
            continue
        told: dict[str, Counter[int]] = {}
        with served(processes, home / server.name.replace(" ", "-"), server) as port:
            for peer in PEERS:
                steps.to(f"{server.name} behind {peer.name}")
                if peer.program() is not None:
                    told[peer.name] = _through(
                        processes, home / f"{server.name}-{peer.name}".replace(" ", "-"), peer, port, uploads
                    )
                steps.done()
        raw[server.name] = told
        sections.append(_section(server, told, uploads))
    return Outcome(sections, raw)


def _section(server: Server, told: dict[str, Counter[int]], uploads: int) -> Section:
    figures = [
        Figure(f"lost by {name}", uploads - statuses[REFUSED], at_most=0 if name == SLB.name else None)
        for name, statuses in told.items()
    ]
    notes = [f"{name}: {_statuses(statuses)}" for name, statuses in told.items()]
    notes += [f"{peer.name} is not installed: {peer.install}" for peer in PEERS if peer.name not in told]
    return Section(f"{server.name}: early replies to {uploads} uploads of 4 MiB", figures, notes)


def _statuses(statuses: Counter[int]) -> str:
    return ", ".join(f"{times} x {status or 'no whole reply'}" for status, times in sorted(statuses.items()))


@contextmanager
def served(processes: Processes, home: Path, server: Server) -> Iterator[int]:
    """The server's port, while it runs."""
    home.mkdir()
    (port,) = free_ports(1)
    running = processes.start(server.command(port), None, home, {"PYTHONPATH": str(APPLICATIONS)})
    try:
        wait_until(lambda: _listens(port), running, READY_SECONDS, f"{server.name} starting")
        yield port
    finally:
        processes.stop(running)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _through(processes: Processes, home: Path, peer: Peer, upstream: int, uploads: int) -> Counter[int]:
    """Statuses of the replies to so many uploads, one after another."""
    program = peer.program()
    if program is None:
        raise BenchError(f"{peer.name} is not installed: {peer.install}")
    home.mkdir()
    port, api_port = free_ports(2)
    site = Site(home, port, api_port, (upstream, upstream), getpass.getuser())
    running = processes.start(peer.command(program, site), None, home, peer.environment_at(site))
    try:
        wait_until(lambda: _listens(port) and peer.announce(site), running, READY_SECONDS, f"{peer.name} starting")
        return Counter(status_of_upload(port) for _ in range(uploads))
    finally:
        processes.stop(running)
