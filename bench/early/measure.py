"""Lost early replies, by server: slb beside its peers. The servers refuse an upload by its head alone, each as its
users would run it."""

import contextlib
import shutil
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.http import free_ports
from bench.peers import ENVOY, HAPROXY, NGINX, SLB, Peer, listens
from bench.processes import Processes, wait_until
from bench.table import Figure, Outcome, Section

APPLICATIONS = Path(__file__).parent / "applications"
PEERS = (SLB, NGINX, HAPROXY, ENVOY)
READY_SECONDS = 30.0
PATIENCE_SECONDS = 20.0
REFUSED = 413
BODY = bytes(4 << 20)
"""More than the kernels between take before a server reads."""


@dataclass(frozen=True)
class Server:
    """`command`: what to run for a port; `@name` is a file of `applications`."""

    name: str
    command: Callable[[int], str]

    def argv(self, port: int) -> list[str]:
        first, *words = self.command(port).split()
        program = sys.executable if first == "python" else first
        return [program, *(str(APPLICATIONS / word[1:]) if word.startswith("@") else word for word in words)]


SERVERS = (
    Server("raw socket", lambda port: f"python @raw.py {port}"),
    Server("hypercorn", lambda port: f"python -m hypercorn --bind 127.0.0.1:{port} refusing_asgi:app"),
    Server("tornado", lambda port: f"python @refusing_tornado.py {port}"),
    Server("gunicorn", lambda port: f"python -m gunicorn --bind 127.0.0.1:{port} refusing_wsgi:app"),
    Server("node", lambda port: f"node @refusing.js {port}"),
)


def early(
    bench: Bench, uploads: Annotated[int, Option(min=1, help="To each server through each proxy.")] = 80
) -> Outcome:
    """Replies to uploads that are not read to their end: how many are lost, by server and proxy."""
    bench.steps.expect(len(SERVERS) * len(PEERS))
    sections: list[Section] = []
    raw: dict[str, object] = {}
    for number, server in enumerate(SERVERS):
        if shutil.which(server.argv(0)[0]) is None:
            sections.append(Section(f"{server.name}: not installed (apt-get install nodejs)", []))
            continue
        found: dict[str, Counter[int]] = {}
        with served(bench.processes, bench.home / f"server-{number}", server) as port:
            for peer in PEERS:
                bench.steps.to(f"{server.name} behind {peer.name}")
                if peer.program() is not None:
                    home = bench.home / f"{peer.name}-{number}"
                    found[peer.name] = through(bench.processes, home, peer, port, uploads)
                bench.steps.done()
        raw[server.name] = found
        sections.append(_section(server, found, uploads))
    return Outcome(sections, raw)


def _section(server: Server, found: dict[str, Counter[int]], uploads: int) -> Section:
    figures = [
        Figure(f"lost by {name}", uploads - statuses[REFUSED], at_most=0 if name == SLB.name else None)
        for name, statuses in found.items()
    ]
    notes = [f"{name}: {_statuses(statuses)}" for name, statuses in found.items()]
    notes += [f"{peer.name} is not installed: {peer.install}" for peer in PEERS if peer.name not in found]
    return Section(f"{server.name}: early replies to {uploads} uploads of 4 MiB", figures, notes)


def _statuses(statuses: Counter[int]) -> str:
    return ", ".join(f"{times} x {status or 'no whole reply'}" for status, times in sorted(statuses.items()))


@contextmanager
def served(processes: Processes, home: Path, server: Server) -> Iterator[int]:
    """The server's port, while it runs."""
    home.mkdir()
    (port,) = free_ports(1)
    running = processes.start(server.argv(port), None, home, {"PYTHONPATH": str(APPLICATIONS)})
    try:
        wait_until(lambda: listens(port), running, READY_SECONDS, f"{server.name} starting")
        yield port
    finally:
        processes.stop(running)


def through(processes: Processes, home: Path, peer: Peer, upstream: int, uploads: int) -> Counter[int]:
    """Statuses of the replies to so many uploads, one after another. Raises BenchError where the peer does not
    start."""
    started = peer.start(processes, home, [upstream, upstream])
    try:
        started.wait_until_ready()
        return Counter(status_of_upload(started.site.port) for _ in range(uploads))
    finally:
        processes.stop(started.running)


def status_of_upload(port: int) -> int:
    """The status of the reply to an upload, whole; 0 where none came, or not all of it. The client reads while it
    sends, as careful clients do."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        sending = threading.Thread(target=_send, args=(connection,))
        sending.start()
        try:
            return _read(connection)
        finally:
            with contextlib.suppress(OSError):  # it may have ended
                connection.shutdown(socket.SHUT_RDWR)
            sending.join()


def _send(connection: socket.socket) -> None:
    head = b"POST /upload HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    with contextlib.suppress(OSError):  # that is what a refused upload comes to
        connection.sendall(head + BODY)


def _read(connection: socket.socket) -> int:
    reply = HTTPResponse(connection)
    try:
        reply.begin()
        return reply.status if reply.read() == b"too much" or reply.status != REFUSED else 0
    except (OSError, HTTPException):
        return 0
    finally:
        reply.close()
