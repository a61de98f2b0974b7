"""Worker processes: started, started again when they die, stopped together; and what their supervisor sends them.

A worker gets one line of JSON on its stdin, for settings hold secrets, which arguments and the environment would
show. The pipe ends when the supervisor ends, however that happens, and so does the worker.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import orjson
import structlog
from pydantic import BaseModel, ConfigDict, SecretStr

from slb.backoff import Backoff
from slb.config import Settings
from slb.lifecycle import set_within
from slb.listening import Sockets, listening_unix_socket

LISTENING = b"listening\n"
"""A worker's first line on stdout, once clients can connect: with a table, or after it has waited long for one."""

READY = b"ready\n"  # its second and last, once it has a table


Besides = Literal["nobody", "predecessor", "another"]
"""`predecessor`: a process that serves with them until this one does; `another`: one that may serve with them
later, or systemd."""


class Job(BaseModel):
    """`data_fds`: inherited listening sockets; `api_path`: the unix socket of the worker's API; `api_addresses`:
    the supervisor's API, which is no upstream either; `worker`: its number, for the log; `besides`: who else has
    the `data_fds`, apart from this supervisor and its workers; `replaced`: that one serves, and the worker is to
    stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Settings
    data_fds: list[int]
    api_path: Path
    api_addresses: list[tuple[str, int]]
    worker: str
    besides: Besides = "nobody"
    replaced: bool = False

    def to_line(self) -> bytes:
        """With the secrets in it: for the pipe only."""
        body = self.model_dump(mode="json", exclude={"settings"})
        return orjson.dumps({"settings": _revealed(self.settings), **body}) + b"\n"

    def sockets(self) -> Sockets:
        """The worker's listeners, of which traffic's are shared with all other workers."""
        data = [socket.socket(fileno=fd) for fd in self.data_fds]
        for each in data:
            each.setblocking(False)
        shared = set() if self.besides == "nobody" else set(data)
        return Sockets(data, listening_unix_socket(self.api_path), self.api_addresses, shared=shared)


def _revealed(settings: Settings) -> dict[str, object]:
    values = settings.model_dump(mode="json", exclude_none=True)
    for name in values:
        secret = getattr(settings, name)
        if isinstance(secret, SecretStr):
            values[name] = secret.get_secret_value()
    return values


_FIRST_PAUSE = 0.1
_LAST_PAUSE = 5.0
_STEADY = 10.0  # seconds a worker has to live for its next death to count as the first

_log = structlog.get_logger("slb.supervisor")


class Worker:
    """A place for one process at a time; `life` counts them. `listened`: one of them has let clients connect;
    `cut_off`: the last one, asked to stop, cut requests off or failed."""

    def __init__(self, index: int, job: Job, on_end: Callable[["Worker"], None]) -> None:
        self.index = index
        self.job = job
        self.life = 0
        self.listened = asyncio.Event()
        self.ready = False
        self.cut_off = False
        self.pid: int | None = None
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._stdin: asyncio.StreamWriter | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        backoff = Backoff(_FIRST_PAUSE)
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._live()
            if self._stopping.is_set():
                self.cut_off = code != 0
                return
            backoff = Backoff(_FIRST_PAUSE) if loop.time() - started > _STEADY else backoff
            pause = backoff.pause(loop.time(), _FIRST_PAUSE, _LAST_PAUSE, is_calm=False)
            _log.error("worker_ended", number=self.index, code=code, next_in=pause)
            await set_within(self._stopping, pause)

    def send(self, job: Job) -> None:
        """Let another job hold, for this process and the next. Only its settings may be others, and who else has
        its sockets."""
        self.job = job
        if self._stdin is not None:
            self._stdin.write(job.to_line())

    def leave(self, job: Job) -> None:
        """Ask the process to stop as `job` says, which is that it was replaced."""
        self._stopping.set()
        self.send(job)

    def stop(self) -> None:
        """Ask the process to finish its requests and end."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def hurry(self) -> None:
        """After `stop`: ask it to end at once, by another signal: the kernel merges equal ones."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def shown(self) -> dict[str, Any]:
        return {"index": self.index, "pid": self.pid, "ready": self.ready, "restarts": max(0, self.life - 1)}

    async def _live(self) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "slb",
            "worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=tuple(self.job.data_fds),
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},  # its supervisor's
            # Ctrl-C reaches every process of the terminal; the supervisor passes it on once.
            start_new_session=True,
        )
        self.life += 1
        self.pid = process.pid
        try:
            await self._bring_up(process)
            return await process.wait()
        finally:
            self.ready = False
            self.pid = None
            self._stdin = None
            self._on_end(self)

    async def _bring_up(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        if self._stopping.is_set():  # asked to stop between two lives
            self._signal(signal.SIGTERM)
        process.stdin.write(self.job.to_line())
        self._stdin = process.stdin
        if await process.stdout.readline() == LISTENING:
            self.listened.set()
        self.ready = await process.stdout.readline() == READY

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
