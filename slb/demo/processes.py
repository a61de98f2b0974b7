"""The processes of the demo: started with their output in files, and gone when the demo is, whatever ends it."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from slb.errors import SlbError

_START_TIMEOUT, _STOP_TIMEOUT = 20.0, 10.0  # seconds


class DemoFailed(SlbError):
    """A part of the demo did not start or did not answer; the message has its name and its last log line."""


class Process:
    """One running process; its stderr goes to the file `log`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path, slowness: float = 1.0) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._start_timeout = _START_TIMEOUT * slowness
        self._stop_timeout = _STOP_TIMEOUT * slowness

    @property
    def pid(self) -> int:
        return self._process.pid

    async def first_line(self) -> str:
        """The first line on stdout, which a command prints once it serves. Raises DemoFailed."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), self._start_timeout)
        except TimeoutError:
            raise DemoFailed(
                f"{self.name} did not start within {self._start_timeout:.0f} s: {self._last_words()}"
            ) from None
        if not line:
            raise DemoFailed(f"{self.name} did not start: {self._last_words()}")
        return line.decode().strip()

    def running(self) -> bool:
        return self._process.returncode is None

    def close_stdin(self) -> None:
        """What happens when the process that started it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        if self.running():
            self._process.kill()

    async def stop(self) -> int:
        if self.running():
            self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        try:
            return await asyncio.wait_for(self._process.wait(), self._stop_timeout)
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Processes:
    """Starts processes and stops them all; their logs are in `directory`. `slowness`: a factor for time limits."""

    def __init__(self, directory: Path, slowness: float = 1.0) -> None:
        self._directory = directory
        self._slowness = slowness
        self._started: list[Process] = []

    async def slb(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """`slb ARGUMENTS...`, by this interpreter, without the caller's SLB_ settings; `env` is added."""
        log = self._directory / f"{name}.log"
        inherited = {each: value for each, value in os.environ.items() if not each.startswith("SLB_")}
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "slb",
                *arguments,
                env={**inherited, **(env or {})},
                # Its end ends them, should the demo be killed.
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                # Ctrl-C on the terminal is for the demo, which then stops them in order.
                start_new_session=True,
            )
        self._started.append(Process(name, process, log, self._slowness))
        return self._started[-1]

    async def stop_all(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._started))
        self._started.clear()
