"""Locks between the slb processes of one machine: flock, which the kernel gives back however a process ends."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_POLL = 0.02


class FileLock:
    """One open lock file. Shared or exclusive; dropped by `release`, or with the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def fd(self) -> int:
        """The open file, for a child to inherit: the lock then lives as long as any holder of the file does."""
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return self._fd

    def try_shared(self) -> bool:
        """Take the lock with others, now or not at all."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock alone, now or not at all. Held shared before, it is lost where this fails."""
        return self._try(fcntl.LOCK_EX)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the lock back and close the file. A child that inherited the file keeps the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Block until `condition()` holds, or `seconds` have passed. Returns whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True
