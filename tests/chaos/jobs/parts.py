"""The processes of a run. They end with it, also where it is killed: the kernel sees to that (Linux), since a Redis
does not end with its stdin."""

import ctypes
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with(parent: int) -> None:
    """In the new process, before it is the program: be killed when the thread that made it ends."""
    _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


class Part:
    """One process that may die, and begins again as it was. To be started by the main thread."""

    def __init__(self, name: str, folder: Path, *command: str, **environment: str) -> None:
        self.name = name
        self._environment = {**os.environ, **environment}
        self._command = command
        self._log = (folder / f"{name}.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=self._environment,
            preexec_fn=partial(_end_with, os.getpid()),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()
