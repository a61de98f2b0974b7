"""The reference topology as processes of this machine: Redis, two instances, two upstreams. Ends what it starts."""

import errno
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.ports import free_port, free_ports

ADDRESSES = ("127.0.0.2", "127.0.0.3")
NAME = "slb.test"
UPSTREAMS = ("upstream1", "upstream2")
PATH = "/p1"
_START = 20.0
_STOP = 15.0
_PAUSE = 0.05
"""Seconds to come up and to leave, on an idle machine, and between two looks."""


class CannotRun(Exception):
    """Why the topology cannot stand on this machine, for a person."""


def patience(seconds: float) -> float:
    """Seconds, scaled by the load per core: for what takes less than `seconds` on an idle machine."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))


class Process:
    """A child with a log file; ended by SIGTERM, and by SIGKILL where that is not enough. Its stdin is a pipe whose
    other end nobody else has: should this process be killed, a child that watches its stdin ends too."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=dict(environ)
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Until `ready()`; raises CannotRun with the end of the log where the process ends, or takes too long."""
        end = time.monotonic() + patience(_START)
        while not ready():
            if self._child.poll() is not None or time.monotonic() > end:
                tail = self._log.read_text(errors="replace")[-2000:]
                raise CannotRun(f"{self.name} did not come up (exit code {self._child.poll()}):\n{tail}")
            time.sleep(_PAUSE)

    def kill(self) -> None:
        """End it without a warning; it is gone on return."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """Ask it to leave, and wait until it has."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(patience(_STOP))
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()


class Topology:
    """Enter it, and two instances on ADDRESSES serve on `port`; two upstreams register through the first for PATH;
    a responder answers at `dns` which instances are ready, as NAME.

    `names`: ADDRESS:PORT of the DNS server by which the instances resolve upstreams. `api`: the URL of one's API.

    Raises CannotRun. Leaving ends every process, the responder and the upstreams first: so that no instance waits
    until answers are forgotten.
    """

    def __init__(self, names: str = "") -> None:
        self._stack = ExitStack()
        self._folder = Path()
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("SLB_")}
        self._environ["SLB_DISCOVERY_DNS_SERVERS"] = names
        self.port = 0
        self.api = ""
        self.dns = ("127.0.0.1", 0)
        self._instances: dict[str, Process] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="slb-e2e-")))
        self.port, api = ports_of_all(2)
        self.api = f"http://{ADDRESSES[0]}:{api}"
        for address in ADDRESSES:
            self._instance(address, api)
        for name in UPSTREAMS:
            self._upstream(name, api)
        self.dns = (self.dns[0], free_port(self.dns[0]))
        self._responder()

    def kill(self, address: str) -> None:
        """Kill the instance there."""
        self._instances[address].kill()

    def _instance(self, address: str, api: int) -> None:
        """With the data directory the instances share their Redis: a Valkey the first one starts."""
        places = ["--listen", f"{address}:{self.port}", "--api", f"{address}:{api}"]
        instance = self._process(f"slb at {address}", "serve", *places, *self._shared(), "--access-log", "errors")
        self._instances[address] = instance
        instance.wait_until(lambda: _ready(address, self.port))

    def _responder(self) -> None:
        places = ["--listen", f"{self.dns[0]}:{self.dns[1]}", "--api", f"{self.dns[0]}:{free_port(self.dns[0])}"]
        self._process("slb dns", "dns", *places, *self._shared(), "--zone-name", NAME, "--ttl", "1s")

    def _shared(self) -> Sequence[str]:
        return "--data-dir", str(self._folder / "data"), "--redis", "embedded://"

    def _upstream(self, name: str, api: int) -> None:
        through = f"http://{ADDRESSES[0]}:{api}"
        self._process(name, "upstream", "--name", name, "--slots", "8", "--register", through, "--path", PATH)

    def _process(self, name: str, *arguments: str) -> Process:
        command = [sys.executable, "-m", "slb", *arguments, "--end-with-stdin"]
        process = Process(name, command, self._folder / f"{name}.log", self._environ)
        self._stack.callback(process.stop)
        return process


def ports_of_all(count: int) -> list[int]:
    """Ports that nobody has on any of ADDRESSES. Raises CannotRun where the machine has no such addresses."""
    try:
        return free_ports(count, ADDRESSES)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        given = " and ".join(f"sudo ifconfig lo0 alias {address} up" for address in ADDRESSES)
        raise CannotRun(f"this machine lacks one of {', '.join(ADDRESSES)} (on macOS: {given})") from None


def _ready(address: str, port: int) -> bool:
    connection = http.client.HTTPConnection(address, port, timeout=1)
    try:
        connection.request("GET", "/_slb/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
