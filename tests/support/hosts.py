"""Hosts of their own: network namespaces that a veth joins to this one, and whose network can be cut silently."""

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import TracebackType

from tests.support.waiting import wait_until

_numbers = count()
_NEWNET = 0x40000000
"""CLONE_NEWNET of Linux."""


def _ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0


def _lost(address: str, device: str) -> tuple[str, ...]:
    """Words for `ip`: what is sent to that address goes to a machine that does not exist."""
    return ("neigh", "replace", address, "lladdr", "02:00:00:00:00:01", "dev", device, "nud", "permanent")


def can_be_had() -> bool:
    """Whether this process may make namespaces."""
    if shutil.which("ip") is None:
        return False
    probe = f"slb-{os.getpid()}-probe"
    return _ip("netns", "add", probe, check=False) and _ip("netns", "del", probe)


class Host:
    """`address`: its own; `here`: this host's, as it sees it. Each process that makes hosts has 63 networks of 4
    addresses."""

    def __init__(self) -> None:
        number, process = next(_numbers), os.getpid()
        network = f"10.{200 + (process >> 8) % 32}.{process % 256}"
        self.name = f"slb-{process}-{number}"
        self._link = f"slb{process % 100_000}v{number}"
        self.here, self.address = (f"{network}.{4 * number + end}" for end in (1, 2))

    def __enter__(self) -> "Host":
        _ip("netns", "add", self.name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "net", "netns", self.name)
        _ip("addr", "add", f"{self.here}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for words in (
            ("addr", "add", f"{self.address}/30", "dev", "net"),
            ("link", "set", "net", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", self.name, *words)
        try:
            wait_until(self._is_reached, what=f"a way to {self.name}")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _is_reached(self) -> bool:
        """Linux may take over a second until a link that is up carries anything."""
        with self.listener() as listener:
            try:
                socket.create_connection(listener.getsockname(), timeout=1).close()
            except OSError:
                return False
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        _ip("netns", "del", self.name)  # the link with it

    def listener(self) -> socket.socket:
        """A socket that listens there; connections to it are that host's. For whoever is to accept them here."""
        return self._there(lambda: socket.create_server((self.address, 0)))

    def connecting(self) -> socket.socket:
        """One that connects from there: its 127.0.0.1 is that host's."""
        return self._there(socket.socket)

    def _there(self, make: Callable[[], socket.socket]) -> socket.socket:
        with ThreadPoolExecutor(1) as thread:  # a namespace is a thread's
            return thread.submit(self._enter_and, make).result()

    def _enter_and(self, make: Callable[[], socket.socket]) -> socket.socket:
        with Path("/run/netns", self.name).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return make()

    def cut(self) -> None:
        """Lose whatever is sent there: it goes to a machine that does not exist."""
        _ip(*_lost(self.address, self._link))

    def isolate(self) -> None:
        """Lose also whatever it sends here."""
        self.cut()
        _ip("-n", self.name, *_lost(self.here, "net"))

    def heal(self) -> None:
        _ip("neigh", "del", self.address, "dev", self._link)
