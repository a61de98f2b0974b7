"""The process that begins: finds the one that has its addresses, and takes their sockets. All of this blocks, for a
few seconds at most; nothing else runs yet."""

import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import structlog

from slb.control import processes
from slb.control.private import check_own, exists
from slb.given_sockets import Place, place_of
from slb.takeover.messages import (
    LONGEST,
    MOST_SOCKETS,
    NAME,
    UNDER_WAY,
    Answer,
    Hello,
    Stranger,
    Take,
    TakeoverRefused,
    process_at,
    short_name,
)

_PATIENCE = 5.0
"""Seconds that the other process may take for one line, in however many pieces it comes."""
_MOST_PROCESSES = 1000
"""That may run with one `data_dir`; of others nothing is asked."""

_log = structlog.get_logger("slb.takeover")


class Vanished(Exception):
    """The other process has ended, or is about to, before it gave its sockets."""


@dataclass(frozen=True)
class Claim:
    """The sockets of the process `pid`, which serves with them until it is told that this one does."""

    connection: socket.socket
    pid: int
    sockets: Sequence[socket.socket]

    def close(self) -> None:
        """Give it up: the other process goes on."""
        for each in (self.connection, *self.sockets):
            each.close()


@dataclass(frozen=True)
class _Found:
    connection: socket.socket
    pid: int
    hello: Hello

    def numbers(self, wanted: set[Place]) -> list[int]:
        """Which of its places are wanted here; none where its network is another one."""
        if self.hello.network != processes.network():
            return []
        return [number for number, place in enumerate(self.hello.places) if place in wanted]


def take_over(data_dir: Path, wanted: set[Place]) -> Claim | None:
    """The sockets that are bound to the `wanted` places; None where no process with this `data_dir` has any of
    them. Raises TakeoverRefused, ConfigError, Vanished."""
    found, claim = list(_processes(data_dir)), None
    try:
        those = [each for each in found if each.numbers(wanted)]
        if len(those) > 1:
            pids = " and ".join(str(each.pid) for each in those)
            raise TakeoverRefused(f"takeover_ambiguous: each of the processes {pids} has one of these addresses")
        if those:
            claim = _claimed(those[0], those[0].numbers(wanted))
            _log.info("takes_over", pid=claim.pid, name=those[0].hello.name, sockets=len(claim.sockets))
        return claim
    finally:
        for each in found:
            if claim is None or each.connection is not claim.connection:
                each.connection.close()


def _processes(data_dir: Path) -> Iterator[_Found]:
    """Those that offer their sockets here. Raises ConfigError where others may write to the directory."""
    try:
        if not exists(data_dir):
            return
        check_own(data_dir, "data_dir")
        paths = sorted(islice(data_dir.glob(NAME.format("*")), _MOST_PROCESSES))
    except OSError as error:
        raise TakeoverRefused(f"takeover_unreadable: {error}") from None
    for path in paths:
        if found := _met(path):
            yield found


def _met(path: Path) -> _Found | None:
    """Whoever listens there."""
    connection, pid = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), 0
    connection.settimeout(_PATIENCE)
    try:
        with short_name(path) as name:
            connection.connect(name)
        pid = process_at(connection)
        line, descriptors = _line(connection)
        _close(descriptors)  # none goes with a hello
        return _Found(connection, pid, Hello.model_validate_json(line))
    except ConnectionRefusedError:  # of a process that was killed
        pass
    except (OSError, ValueError, Stranger, Vanished) as error:  # it may be one that we do not want anything of
        _log.warning("takeover_not_offered", pid=pid, error=str(error) or type(error).__name__)
    connection.close()
    return None


def _claimed(found: _Found, numbers: Sequence[int]) -> Claim:
    """Raises TakeoverRefused, Vanished."""
    sockets: list[socket.socket] = []
    try:
        found.connection.sendall(Take(take=list(numbers)).to_line())
        line, descriptors = _line(found.connection)
        sockets = [socket.socket(fileno=each) for each in descriptors]
        answer = Answer.model_validate_json(line)
        if answer.refused == UNDER_WAY:
            raise TakeoverRefused(f"{UNDER_WAY}: process {answer.by} is taking over from process {found.pid}")
        if answer.refused or [place_of(each) for each in sockets] != [found.hello.places[each] for each in numbers]:
            raise TakeoverRefused(f"takeover_not_understood: process {found.pid} did not give what it offered")
    except (TakeoverRefused, ValueError, OSError, Vanished) as error:
        for each in sockets:
            each.close()
        if isinstance(error, TakeoverRefused | Vanished):
            raise
        if isinstance(error, TimeoutError):
            raise TakeoverRefused(f"takeover_silent: process {found.pid} does not answer") from None
        raise Vanished(str(error)) from None
    for each in sockets:
        each.setblocking(False)
    return Claim(found.connection, found.pid, sockets)


def _line(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A line, and the descriptors that came with it. Raises OSError, Vanished."""
    line, descriptors = b"", list[int]()
    until = time.monotonic() + _PATIENCE
    try:
        while not line.endswith(b"\n") and len(line) < LONGEST:
            connection.settimeout(max(0.001, until - time.monotonic()))
            more, found, *_ = socket.recv_fds(connection, LONGEST - len(line), MOST_SOCKETS)
            for each in found:
                os.set_inheritable(each, False)  # `recv_fds` takes no flag for that, whatever it says
            descriptors += found
            line += more
            if not more:
                raise Vanished("it has closed the connection")
            if len(descriptors) > MOST_SOCKETS or time.monotonic() > until:
                raise TimeoutError("its line does not end")
    except (OSError, Vanished):
        _close(descriptors)
        raise
    connection.settimeout(_PATIENCE)
    return line, descriptors


def _close(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        with suppress(OSError):
            os.close(each)
