"""The life of one process: signals that ask it to stop, and background tasks that must not die quietly."""

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_log = logging.getLogger("slb")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PARENT_GONE = "parent_gone"
"""The event of the log that whoever started this process is gone, and it ends."""
_LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one line on stdin: settings for a great many routes."""


def use_all_descriptors() -> int:
    """Let this process have as many files open as the system lets it; how many. What it is born with (1,024, as a
    rule) is for programs that use select(2), and a thousand idle clients would reach it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # "no limit" is more than macOS takes
        return soft
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


class Stopping:
    """What signals ask for: the first one to finish in order (`requested`), the second to stop now (`hurried`).
    `on_line` is called with each line that comes on stdin, where that is listened to."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()
        self.on_line: Callable[[bytes], None] = lambda line: None
        self._watch: asyncio.Task[None] | None = None

    def listen(self, end_with_stdin: bool = False) -> None:
        """Take SIGTERM and SIGINT of the running loop's process, and, if asked for, the end of its stdin: the
        process that holds its other end may be killed, and then sends no signal."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.request)
        if end_with_stdin:
            self._watch = asyncio.create_task(self._request_at_end_of_stdin())

    def request(self) -> None:
        """Ask to stop; asked again, ask to stop now."""
        (self.hurried if self.requested.is_set() else self.requested).set()

    async def _request_at_end_of_stdin(self) -> None:
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            self.on_line(line)
        _log.warning(PARENT_GONE)
        self.requested.set()


_CANCEL_AGAIN = 3.0
"""Seconds a cancelled task may take to put its things in order."""


def _log_end(name: str, error: BaseException | None) -> None:
    _log.critical("the background task %r ended", name, exc_info=error)


class Tasks:
    """Background tasks that are to run until they are stopped. Where one ends before, `on_end` is called with its
    name and what it failed with, and `failed` is set: without its watcher a process would keep an old table for
    good."""

    def __init__(self, on_end: Callable[[str, BaseException | None], None] = _log_end) -> None:
        self._on_end = on_end
        self.failed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` from now on."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel what runs, and wait for its end. Again and again where that is lost: in Python 3.11 `wait_for`,
        which redis-py connects with, swallows a cancellation that comes together with its result."""
        running, self._tasks = self._tasks, set()
        while running:
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task not in self._tasks:
            return
        error = None if task.cancelled() else task.exception()
        self._on_end(task.get_name(), error)
        self.failed.set()


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of `events` is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def unless_set(event: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """What `work` returns or raises; None where `event` is set before: `work` is cancelled then, and has ended on
    return."""
    tasks = working, _ = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until `event` is set, but at most so many seconds; None: for as long as it takes."""
    try:
        async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass
