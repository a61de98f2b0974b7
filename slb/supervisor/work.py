"""A worker: an instance that gets its settings from its supervisor, and ends with it."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import structlog

from slb.app import App
from slb.core import Core, connected_core
from slb.lifecycle import PARENT_GONE, Stopping
from slb.observe.log import configure_logging
from slb.reload import hold
from slb.running import run_loop, serve_app
from slb.supervisor.workers import LISTENING, READY, Job
from slb.takeover import Predecessor

_log = structlog.get_logger("slb.reload")


def run_worker() -> int:
    """The hidden command `slb worker`; the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's to hear; its workers get new settings on stdin
    line = _first_line()
    if not line.endswith(b"\n"):
        configure_logging()
        _log.warning(PARENT_GONE)
        return 0
    job = Job.model_validate_json(line)
    configure_logging(job.settings.log_level, job.settings.log_format)
    return run_loop(lambda stopping: _work(job, stopping), end_with_stdin=True)


def _first_line() -> bytes:
    """Unbuffered, so that what follows, the pipe's end, is left for the loop to see."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as pipe:
        return pipe.readline()


async def _work(job: Job, stopping: Stopping) -> int:
    jobs: asyncio.Queue[bytes] = asyncio.Queue()
    stopping.on_line = jobs.put_nowait
    async with connected_core(job.settings, job.sockets(), worker=job.worker) as core:
        if job.besides == "predecessor":
            core.predecessor = Predecessor(stopping.requested, core.tasks.failed)
        app = App(core)
        core.tasks.start("reload", _follow(jobs, app, stopping))
        return await serve_app(app, stopping, lambda: _print_serving(core))


async def _follow(jobs: asyncio.Queue[bytes], app: App, stopping: Stopping) -> None:
    while True:
        line = await jobs.get()
        try:
            job = Job.model_validate_json(line)
            _share(app.core, job)
            if job.replaced:
                app.let_go()
                stopping.requested.set()
            await hold(app.reconfigure, job.settings, app.core.settings)
        except Exception as error:  # noqa: BLE001 -- logged; what held before goes on
            _log.exception("settings_refused", error=repr(error))


def _share(core: Core, job: Job) -> None:
    """Who else has the sockets of traffic may have changed."""
    shared = set() if job.besides == "nobody" else set(core.sockets.data)
    if shared != core.sockets.shared:
        core.sockets.shared.clear()
        core.sockets.shared.update(shared)
        core.sharing_changed()
    if core.predecessor is not None and job.besides != "predecessor":
        core.predecessor.gone.set()


def _print_serving(core: Core) -> None:
    """That it listens, and once there is a table to serve from, that it is ready."""
    if core.mirror.ready:
        _print(LISTENING + READY)  # at once: a process that listens and has a table is ready
        return
    _print(LISTENING)
    pending = [READY]

    def print_ready(_: object) -> None:
        if pending:
            _print(pending.pop())

    core.mirror.on_swap(print_ready)


def _print(line: bytes) -> None:
    """Without effect where the supervisor is gone. Unbuffered: a buffer would fail again at exit."""
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line)
