"""`python -m bench dns`: answers a second of one core, beside dnsmasq, which answers the same from a file."""

import secrets
import select
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from threading import Thread
from typing import Annotated, NamedTuple

from dns.exception import DNSException
from dns.message import make_query
from dns.query import udp
from typer import Option

from bench.command import Bench
from bench.fleet import Fleet
from bench.measure import pinned_cores
from bench.ports import free_ports
from bench.processes import BenchError, Running, wait_until
from bench.procstat import ProcessTree
from bench.table import Figure, Outcome, Section
from slb.control import keys

GOAL = 20_000.0
ZONE = "slb.internal"
SLB, DNSMASQ = "slb dns", "dnsmasq"
WINDOW, SOCKETS = 32, 8
"""Queries under way on one socket, and sockets: a resolver that is busy."""
READY_SECONDS, WARMUP_SECONDS = 30.0, 0.5
LONG_AGO_AND_FAR = 10**15  # milliseconds: what instances live until


class Case(NamedTuple):
    """Questions of one kind. `edns`: the size they state, 0 for none."""

    what: str
    name: str
    kind: str
    edns: int = 1232

    def packets(self, count: int) -> list[bytes]:
        """Each with an id of its own, and letters in a case of their own, as careful resolvers send them."""
        return [self._packet() for _ in range(count)]

    def _packet(self) -> bytes:
        mixed = "".join(each.upper() if secrets.randbits(1) else each for each in self.name)
        query = make_query(mixed, self.kind, use_edns=0 if self.edns else False, payload=self.edns)
        return query.to_wire()


CASES = (
    Case("A", ZONE, "A"),
    Case("A, no EDNS", ZONE, "A", edns=0),
    Case("AAAA, there is none", ZONE, "AAAA"),
    Case("no such name", f"x.{ZONE}", "A"),
)


class Turn(NamedTuple):
    """Answers a second that came, and that a second of CPU time gives."""

    rate: float
    per_cpu_second: float


def dns(
    bench: Bench,
    instances: Annotated[int, Option(min=1, max=200, help="Addresses that the name stands for.")] = 20,
    rounds: Annotated[int, Option(min=1, help="Times that each has its turn.")] = 3,
    seconds: Annotated[float, Option(min=0.1, help="Length of one turn.")] = 3.0,
) -> Outcome:
    """Answers a second of one core over UDP. The load has the first core, the responders the last one; what counts
    is the CPU time that a responder took for what it answered, the kernel's part in it."""
    core, _ = pinned_cores()
    fleet = bench.fleet()
    hosts = [f"127.0.1.{number + 1}" for number in range(instances)]
    responders: dict[str, tuple[Running, int]] = {SLB: _start_slb(fleet, hosts, core)}
    if program := shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/usr/local/sbin"):
        responders[DNSMASQ] = _start_dnsmasq(fleet, program, hosts, core)
    sections = []
    for case in CASES:
        turns: dict[str, list[Turn]] = {name: [] for name in responders}
        for _ in range(rounds):
            for name, (running, port) in responders.items():
                bench.to(f"{case.what}: {name}")
                turns[name].append(_turn(case, running, port, seconds))
        sections.append(_section(case, instances, turns))
    return Outcome(sections)


def _section(case: Case, instances: int, turns: dict[str, list[Turn]]) -> Section:
    figures = []
    for name, of_one in turns.items():
        goal = GOAL if name == SLB else None
        each = median(turn.per_cpu_second for turn in of_one)
        figures.append(Figure(f"{name}, a second of CPU time", each, "answers", at_least=goal))
        figures.append(Figure(f"{name}, a second", median(turn.rate for turn in of_one), "answers"))
    notes = [] if DNSMASQ in turns else ["dnsmasq is not installed: apt-get install dnsmasq-base"]
    return Section(f"{case.what}: {instances} instances, one core, over UDP", figures, notes)


def _start_slb(fleet: Fleet, hosts: Sequence[str], core: int) -> tuple[Running, int]:
    """With instances that only Redis knows of, and a listener that passes their checks."""
    listener = ThreadingHTTPServer(("0.0.0.0", 0), _Ready)
    Thread(target=listener.serve_forever, daemon=True).start()
    redis = fleet.redis.client
    for host in hosts:
        written = {"name": host, "roles": "proxy", "advertise": f"{host}:{listener.server_port}", "serves": "http"}
        redis.hset(keys.instance_key(host), mapping=written)  # type: ignore[arg-type]
        redis.zadd(keys.INSTANCES, {host: LONG_AGO_AND_FAR})
    port, api = free_ports(2)
    words = ("--listen", f"127.0.0.1:{port}", "--api", f"127.0.0.1:{api}", "--redis", fleet.redis.url)
    running = fleet.processes.start_module(fleet.folder("dns"), "slb", "dns", *words, core=core)
    _wait_until_it_has(len(hosts), running, port)
    return running, port


def _start_dnsmasq(fleet: Fleet, program: str, hosts: Sequence[str], core: int) -> tuple[Running, int]:
    home, (port,) = fleet.folder("dnsmasq"), free_ports(1)
    home.mkdir(exist_ok=True)
    (home / "hosts").write_text("".join(f"{host} {ZONE}\n" for host in hosts))
    words = ("--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file", "--user=")
    place = (f"--addn-hosts={home}/hosts", f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces")
    answers = (f"--local=/{ZONE}/", "--local-ttl=5", "--edns-packet-max=1232")
    running = fleet.processes.start([program, *words, *place, *answers], core, home, {})
    _wait_until_it_has(len(hosts), running, port)
    return running, port


def _wait_until_it_has(count: int, running: Running, port: int) -> None:
    query = make_query(ZONE, "A", use_edns=0, payload=1232)

    def has_them() -> bool:
        try:
            answer = udp(query, "127.0.0.1", port=port, timeout=1)
        except (OSError, DNSException):
            return False
        return sum(map(len, answer.answer)) >= min(count, 64)

    wait_until(has_them, running, READY_SECONDS, "all addresses in the answers", 0.05)


def _turn(case: Case, running: Running, port: int, seconds: float) -> Turn:
    load = Load(("127.0.0.1", port), case.packets(256))
    tree = ProcessTree(running.pid)
    try:
        load.run(WARMUP_SECONDS)
        before, started = tree.cpu_seconds(), time.perf_counter()
        answers = load.run(seconds)
        took, cpu = time.perf_counter() - started, tree.cpu_seconds() - before
    finally:
        load.close()
    if not answers or not cpu:
        raise BenchError(f"{case.what}: {answers} answers in {took:.1f} s")
    return Turn(answers / took, answers / cpu)


class Load:
    """Sockets that each keep a window of queries under way, and send what is lost again."""

    def __init__(self, place: tuple[str, int], packets: Sequence[bytes]) -> None:
        self._packets = packets
        self._next = 0
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SOCKETS)]
        for each in self._sockets:
            each.connect(place)
            each.setblocking(False)

    def run(self, seconds: float) -> int:
        """How many answers came within so many seconds."""
        answers, end = 0, time.perf_counter() + seconds
        for each in self._sockets:
            self._send(each.send, WINDOW)
        while time.perf_counter() < end:
            readable, _, _ = select.select(self._sockets, [], [], 0.05)
            for each in readable:
                came = self._read(each)
                answers += came
                self._send(each.send, came)
            if not readable:  # a packet was lost on each
                for each in self._sockets:
                    self._send(each.send, WINDOW)
        return answers

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def _read(self, each: socket.socket) -> int:
        came = 0
        try:
            while True:
                each.recv(4096)
                came += 1
        except BlockingIOError:
            return came

    def _send(self, send: Callable[[bytes], int], count: int) -> None:
        packets, at = self._packets, self._next
        try:
            for number in range(at, at + count):
                send(packets[number % len(packets)])
        except BlockingIOError:
            pass
        self._next = (at + count) % len(packets)


class _Ready(BaseHTTPRequestHandler):
    """Whatever is asked: 200."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its parameter's name
        pass
