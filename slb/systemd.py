"""What a service manager such as systemd is told (`sd_notify`), and the sockets that it passes on (`LISTEN_FDS`).
Both are environment variables and a socket; where they are not set, nothing happens here."""

import os
import socket
import time
from collections.abc import MutableMapping

import structlog

from slb.listening import CannotListen

_PATIENCE = 1.0
"""Seconds that one message may wait for room at its receiver."""
_FIRST = 3
"""The descriptor of the first socket that is passed on."""
_MOST = 250

_log = structlog.get_logger("slb")


def notify(**said: object) -> None:
    """Tell the service manager, where there is one: `notify(READY=1, STATUS="serves")`. What cannot be told is
    logged."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    lines = (f"{name}={' '.join(str(value).split())}" for name, value in said.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(_PATIENCE)
            manager.sendto("\n".join(lines).encode(), "\0" + place[1:] if place.startswith("@") else place)
    except (OSError, ValueError) as error:
        _log.warning("service_manager_not_told", told=",".join(said), error=str(error))


def notify_reloading() -> None:
    """That settings are read again, until READY=1 is told."""
    notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)


def passed_sockets(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """The sockets that were passed to this process, each with its name there; none the second time. Raises
    CannotListen."""
    given = {name: environ.get(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if given["LISTEN_PID"] != str(os.getpid()):  # a parent's, or none
        return []
    for name in given:
        environ.pop(name, None)
    count = given["LISTEN_FDS"]
    if not count.isdecimal() or not count.isascii() or len(count) > 3 or int(count) > _MOST:
        raise CannotListen(f"LISTEN_FDS={count} is no number of sockets, {_MOST} at most")
    names = given["LISTEN_FDNAMES"].split(":")
    names += [""] * (int(count) - len(names))
    return [(names[number], _socket(_FIRST + number)) for number in range(int(count))]


def _socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        found = socket.socket(fileno=descriptor)
        found.setblocking(False)
    except OSError as error:
        raise CannotListen(f"LISTEN_FDS: descriptor {descriptor}: {error.strerror}") from None
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        raise CannotListen(f"LISTEN_FDS: descriptor {descriptor} is a socket without an internet address")
    return found
