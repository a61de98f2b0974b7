"""A worker: an instance that was told everything by its supervisor, and ends with it."""

import sys

from slb.app import App, Core, connected_core, run_loop, serve_app
from slb.lifecycle import Stopping
from slb.observe.log import configure_logging
from slb.supervisor.job import READY, Job


def run_worker() -> int:
    """The hidden command `slb worker`; the exit code."""
    job = Job.from_line(_first_line())
    configure_logging(job.settings.log_level, job.settings.log_format)
    return run_loop(lambda stopping: _work(job, stopping), end_with_stdin=True)


def _first_line() -> bytes:
    """Unbuffered, so that what follows, the pipe's end, is left for the loop to see."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as pipe:
        return pipe.readline()


async def _work(job: Job, stopping: Stopping) -> int:
    async with connected_core(job.settings, job.sockets()) as core:
        return await serve_app(App(core), stopping, lambda: _say_ready(core))


def _say_ready(core: Core) -> None:
    """Once there is a table to serve from."""
    pending = [READY]

    def say(_: object = None) -> None:
        if pending:
            sys.stdout.buffer.write(pending.pop())
            sys.stdout.flush()

    if core.mirror.ready:
        say()
    else:
        core.mirror.on_swap(say)
