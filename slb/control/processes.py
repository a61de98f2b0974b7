"""Which processes of this machine have ended: its kernel knows at once; everybody else waits for a lease to end.

Two processes know of each other where they run in one boot of one kernel and share its process ids: on one host, or
in one container. A container that is started again has process ids of its own: who ran there before ends with the
lease.
"""

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_ENDED = ("Z", "X")
"""States of a process whose main thread runs no more, and whose parent has not asked yet. While another thread is
there its connections are open still, and upstreams work for it: after a kill for up to 0.2 s, since the memory goes
first."""
_LONGEST_PID = 9


def identity() -> str:
    """This process, and none before or after it on any machine: boot, namespace of process ids, id, start in ticks.
    Empty where the system does not tell (it is not Linux)."""
    pid, place = os.getpid(), _place()
    started = _started(pid)
    return f"{place} {pid} {started}" if place and started else ""


def has_ended(process: str) -> bool:
    """Whether `process`, an `identity`, has ended; False where that cannot be known from here."""
    place, _, rest = process.partition(" ")
    pid, _, started = rest.partition(" ")
    if place != _place() or not place or len(pid) > _LONGEST_PID or not (pid.isascii() and pid.isdigit()):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, as somebody else's: by its start we see whether it is another by now
    now = _started(int(pid))
    return now is not None and now != started


@cache
def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
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
