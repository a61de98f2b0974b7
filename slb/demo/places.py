"""Where the demo's instances listen: two addresses and one port, or, where a system has one loopback address
only (macOS), one address and two ports."""

import socket
from collections.abc import Sequence

_TWO_ADDRESSES = ("127.0.0.2", "127.0.0.3")
_ONE_ADDRESS = "127.0.0.1"
_TRIES = 20

Address = tuple[str, int]


def two_places() -> list[Address]:
    """Two free addresses for traffic."""
    return _one_port_on(_TWO_ADDRESSES) or [free_address(_ONE_ADDRESS), free_address(_ONE_ADDRESS)]


def free_address(host: str) -> Address:
    """`host` and a port that is free there now."""
    with socket.create_server((host, 0)) as probe:
        return host, probe.getsockname()[1]


def _one_port_on(hosts: Sequence[str]) -> list[Address]:
    """The same port on all hosts; empty where this machine has not all of them, or no such port."""
    for _ in range(_TRIES):
        try:
            _, port = free_address(hosts[0])
        except OSError:
            return []
        if all(_is_free(host, port) for host in hosts[1:]):
            return [(host, port) for host in hosts]
    return []


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
