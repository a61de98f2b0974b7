"""Starting processes on a core of their own, and leaving none behind, whatever happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).parents[1]
MARK = "BENCH_HOME"  # in the environment of all that is started; a daemon keeps it though it leaves its parent
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG, TAIL_CHARACTERS = "output.log", 400
STOP_SECONDS, POLL_SECONDS = 10.0, 0.02


class BenchError(Exception):
    """What can go wrong with one measurement, in one line: shown in the table, never hidden."""


class TookTooLong(BenchError):
    """What was waited for did not come in time."""


@dataclass(frozen=True)
class Running:
    """A process that was started here, and the folder that is its own; its output goes to a file in there."""

    process: subprocess.Popen[bytes]
    home: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def check_alive(self) -> None:
        """Raises BenchError with the last of its output where it has ended."""
        if self.process.poll() is not None:
            raise BenchError(f"ended with {self.process.returncode}: {self.tail()}")

    def tail(self) -> str:
        return (self.home / LOG).read_text(errors="replace").strip()[-TAIL_CHARACTERS:]


class Processes:
    """Owner of everything that is started. Leaving the `with` block ends it all, daemons included."""

    def __init__(self) -> None:
        self._running: list[Running] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # A second Ctrl-C must not leave half of it running.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
        try:
            for running in list(self._running):
                self.stop(running)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, argv: Sequence[str], core: int | None, home: Path, environment: Mapping[str, str]) -> Running:
        """Run `argv` in `home`, pinned to `core` unless that is None; its output goes to a file there."""
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        with (home / LOG).open("wb") as output:
            process = subprocess.Popen(
                [*pinned, *argv],  # taskset execs: the pid stays the program's
                cwd=home,
                env={**os.environ, **environment, MARK: str(home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only the bench, which then stops them in order
            )
        self._running.append(Running(process, home))
        return self._running[-1]

    def start_module(self, home: Path, module: str, *arguments: object, core: int | None = None) -> Running:
        """`python -m MODULE ARGUMENTS...` of this repository, in `home`, which is made where it is not there."""
        home.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", module, *map(str, arguments)]
        return self.start(argv, core, home, {"PYTHONPATH": str(REPOSITORY)})

    def kill(self, running: Running) -> None:
        """SIGKILL at once, as a crash would end it."""
        running.process.kill()
        self.stop(running)

    def stop(self, running: Running) -> None:
        """SIGTERM, then SIGKILL to what is left of its group and to the daemons it left behind."""
        running.process.terminate()
        try:
            running.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.process.wait()
        self._running.remove(running)
        _end_marked(running.home)


def _end_marked(home: Path) -> None:
    """End whatever still carries `home`'s mark: SIGTERM, and SIGKILL when it takes too long."""
    deadline = time.monotonic() + STOP_SECONDS
    while pids := marked(home):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if time.monotonic() > deadline else signal.SIGTERM)
        time.sleep(POLL_SECONDS)


def marked(home: Path) -> list[int]:
    """The processes that were started in `home`, or by one that was."""
    mark, found = f"{MARK}={home}".encode(), list[int]()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


def wait_until(
    ready: Callable[[], bool], running: Running, seconds: float, what: str, every: float = POLL_SECONDS
) -> None:
    """Poll `ready` until it is true. Raises BenchError where `running` ends first, TookTooLong after `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        running.check_alive()
        if time.monotonic() > deadline:
            raise TookTooLong(f"{what} took more than {seconds:.0f} s: {running.tail()}")
        time.sleep(every)
