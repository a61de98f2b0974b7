"""Ports for servers that are started a moment later, chosen here so that others know them beforehand."""

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from random import SystemRandom

_PORTS = range(10_000, 32_000)
"""The system gives none of these to a connection, nor to who asks for any port (`ip_local_port_range`). So nobody
takes one by chance before its server listens, or while that is away."""
_LOOPBACK = ("127.0.0.1",)
_random = SystemRandom()  # several programs may be given the same seed


def free_ports(count: int, addresses: Sequence[str] = _LOOPBACK) -> list[int]:
    """So many different ones that nobody has on any of `addresses`. Raises OSError where this machine lacks an
    address."""
    with ExitStack() as held:
        return [_free(held, addresses) for _ in range(count)]


def free_port(address: str = _LOOPBACK[0]) -> int:
    """One that nobody has on `address`."""
    return free_ports(1, (address,))[0]


def _free(held: ExitStack, addresses: Sequence[str]) -> int:
    while True:
        port = _random.choice(_PORTS)
        try:
            for address in addresses:
                held.enter_context(socket.socket()).bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
