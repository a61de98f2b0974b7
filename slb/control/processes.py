"""Which processes of this machine have ended: the kernel shows it at once; elsewhere it shows when a lease ends.

Two processes see each other where they run in one boot of one kernel and share its process ids: on one host, or
in one container. A container that is started again has process ids of its own. But where it has the network of the
one before (a pod's, the host's), an address is the proof: a process that has bound the one another had has proof
that the other has let go of it. In all other cases what ran there before ends with the lease."""

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_ENDED = ("Z", "X")
"""States of a process whose main thread has ended, and whose parent has not asked yet. While another thread is
there its connections are open, and upstreams work for it: up to 0.2 s after a kill, for its memory goes first."""
_LONGEST_PID = 9


def identity(pid: int | None = None) -> str:
    """This process (or another of this machine), and none before or after it on any machine: boot, namespace of
    process ids, id, start in ticks. Empty where the system does not show it (it is not Linux)."""
    pid, place = pid or os.getpid(), _place("pid")
    started = _started(pid)
    return f"{place} {pid} {started}" if place and started else ""


def binding(address: str, owner: str) -> str:
    """That `owner`, an `identity`, has bound `address`, alone, until it ends or holds nothing any more: boot and
    namespace of the network, address, owner. Empty where the system does not show it."""
    place = _place("net")
    return f"{place} {address} {owner}" if place and owner and " " not in address else ""


def network() -> str:
    """The boot and the namespace of the network, in which an address means one thing. Empty where the system does
    not show it."""
    return _place("net")


def is_taken_over(theirs: str, ours: str) -> bool:
    """Whether the owner of `theirs`, a `binding`, has let go of an address that is ours now. Two that share process
    ids are left to `has_ended`: workers go on when their supervisor, which bound it, was killed."""
    place, address, owner = _parts(theirs)
    if not owner or (place, address) != _parts(ours)[:2]:
        return False
    return owner.partition(" ")[0] != _place("pid") != ""


def _parts(written: str) -> tuple[str, str, str]:
    place, _, rest = written.partition(" ")
    address, _, owner = rest.partition(" ")
    return place, address, owner


def has_ended(process: str) -> bool:
    """Whether `process`, an `identity`, has ended; False where that cannot be known from here."""
    place, _, rest = process.partition(" ")
    pid, _, started = rest.partition(" ")
    if place != _place("pid") or not place or len(pid) > _LONGEST_PID or not (pid.isascii() and pid.isdigit()):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, as another user's: by its start we see whether it is another by now
    now = _started(int(pid))
    return now is not None and now != started


@cache
def _place(kind: str) -> str:
    """The boot, and the namespace of process ids (`pid`) or of the network (`net`)."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns' / kind).stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; empty where it has ended, None where that is hidden."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    threads, started = int(fields[16]), fields[18]
    return "" if state in _ENDED and threads <= 1 else started
