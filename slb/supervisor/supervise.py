"""The supervisor: sockets, workers, the API; no traffic."""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from slb.announcing import announce
from slb.app import jobs_status
from slb.config import Settings
from slb.core import Core, connected_core
from slb.jobs.runtime import JobRuntime
from slb.jobs.service import JobService
from slb.jobs.task_parts import tasks_of
from slb.lifecycle import Stopping, first_of
from slb.listening import Sockets
from slb.observe.collectors import SharedCollector
from slb.observe.exposition import text_of_process
from slb.proxy.tls import check_files
from slb.reload import Source, reload_on_hangup
from slb.running import follow, leave, offered_until, run_loop
from slb.supervisor.fleet import Fleet
from slb.supervisor.sums import Sums
from slb.supervisor.workers import Besides, Job, Worker
from slb.takeover import Claim, Offer, StoppedEarly, open_sockets, start_at_signal

_KILL_AFTER = 5.0  # seconds a worker may take to end beyond its drain timeout

_LONGEST_DIRECTORY = 70
"""Characters: a socket address holds 104 on macOS, 108 on Linux, the rest of the name included."""

_log = structlog.get_logger("slb.supervisor")


def supervise(settings: Settings, source: Source, end_with_stdin: bool) -> int:
    """`slb serve --workers N`; the exit code. `source`: where to read the settings again. Raises SlbError."""
    check_files(settings)
    with (
        open_sockets(settings) as opened,
        tempfile.TemporaryDirectory(prefix="slb-", dir=_short_directory()) as directory,  # this user's only (0700)
    ):
        return run_loop(
            lambda stopping: _supervise(settings, source, opened, Path(directory), stopping), end_with_stdin
        )


def _short_directory() -> str:
    """Where unix sockets' names stay within what a socket address holds."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _LONGEST_DIRECTORY else "/tmp"


async def _supervise(
    settings: Settings,
    source: Source,
    opened: tuple[Sockets, Claim | None],
    directory: Path,
    stopping: Stopping,
) -> int:
    asked, (sockets, claim) = reload_on_hangup(), opened
    start_at_signal()
    async with connected_core(settings, sockets, worker="supervisor") as core:
        follow(core, claim, stopping, lambda: supervisor.tell_workers())
        supervisor = Supervisor(core, directory)
        core.follow_settings(source, supervisor.reconfigure, asked)
        return await supervisor.run(stopping)


class Supervisor:
    """Runs the workers of one `slb serve`. `directory` holds their unix sockets."""

    def __init__(self, core: Core, directory: Path) -> None:
        self._core = core
        self._directory = directory
        self._workers = [
            Worker(index, self._job(index, core.settings), lambda worker: self._fleet.worker_ended(worker))
            for index in range(core.settings.workers)
        ]
        own_metrics = SharedCollector(core.metrics)
        self._fleet = Fleet(
            self._workers,
            Sums(),
            lambda is_open: text_of_process(own_metrics, open_metrics=is_open),
            self._show_inflight,
        )
        self._busy: set[str] = set()
        self._jobs = self._make_jobs() if "jobs" in core.settings.roles else None

    def _make_jobs(self) -> JobService:
        """The workers run them; this process takes them, for it has the API."""
        core, needs_replica = self._core, self._core.settings.jobs_durability == "replica"
        runtime = JobRuntime(
            core.connection,
            core.mirror,
            core.instances.info.id,
            core.metrics.jobs,
            needs_replica=needs_replica,
            tasks=tasks_of(core.settings),
        )
        return JobService(runtime, core.mirror)

    async def run(self, stopping: Stopping) -> int:
        """Until asked to stop, or until a part of the supervisor ends; the exit code."""
        core = self._core
        running = [asyncio.create_task(worker.run()) for worker in self._workers]
        core.start_watching()
        core.tasks.start("fleet", self._fleet.watch())
        core.tasks.start("instances", core.instances.follow())
        core.tasks.start("health", core.health(makes_checks=False).run())
        fleet = self._fleet
        parts = core.api_parts()
        parts.metrics_text, parts.status_extra, parts.ledger = fleet.metrics_text, self._status_extra, fleet.ledger
        parts.serving, parts.workers_answers, parts.jobs = fleet.ready, fleet.answers, self._jobs
        if self._jobs is not None:  # before a job is acknowledged
            await self._jobs.runtime.prepare()
            core.tasks.start("jobs", self._jobs.runtime.run())
        await core.listen(parts, is_serving=False)
        ends = (stopping.requested, core.tasks.failed)
        for worker in self._workers:
            await first_of(worker.listened, *ends)
        with suppress(StoppedEarly):  # one of `ends` is set then
            await core.table_of_follower()
        if not any(end.is_set() for end in ends):
            await core.listen(parts, is_serving=True)
            announce(core, fleet.ready(), f" with {len(self._workers)} workers")
            await core.replace_predecessor()
            await offered_until(self._offer(stopping), core, *ends)
        await self._stop(running, stopping.hurried)
        cut_off = stopping.hurried.is_set() and any(worker.cut_off for worker in self._workers)
        return int(core.tasks.failed.is_set() or cut_off)

    def _offer(self, stopping: Stopping) -> Offer:
        core = self._core

        def shared() -> None:
            core.sharing_changed()
            self.tell_workers()

        return Offer(core.sockets, core.instances.info.name, shared, lambda pid: leave(core.let_go, stopping, pid))

    def tell_workers(self, settings: Settings | None = None) -> None:
        """What holds from now on: of settings, and who else has their sockets."""
        for worker in self._workers:
            worker.send(self._job(worker.index, settings or self._core.settings))

    async def reconfigure(self, settings: Settings) -> None:
        self.tell_workers(settings)
        await self._core.reconfigure(settings)

    async def _stop(self, running: Sequence[asyncio.Task[None]], hurried: asyncio.Event) -> None:
        self._core.begin_stop()
        self._core.begin_drain()
        for worker in self._workers:
            if self._core.replaced:
                worker.leave(self._job(worker.index, self._core.settings).model_copy(update={"replaced": True}))
            else:
                worker.stop()
        for listener in self._core.sockets.data:
            listener.close()
        await self._ended(running, hurried)
        if self._jobs is not None:
            await self._jobs.runtime.leave(0.0)
        await self._core.stop()

    def _status_extra(self) -> dict[str, Any]:
        shown = {**self._core.status_extra(), **self._fleet.status_extra()}
        return shown if self._jobs is None else {**shown, "jobs": jobs_status(self._jobs)}

    async def _ended(self, running: Sequence[asyncio.Task[None]], hurried: asyncio.Event) -> None:
        """Wait for the workers; in a hurry they get a second signal, and in the end they are killed."""
        hurry = asyncio.create_task(hurried.wait())
        all_ended = asyncio.gather(*running)
        patience = self._core.drain_delay() + self._core.settings.drain_timeout + _KILL_AFTER
        await asyncio.wait((all_ended, hurry), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if hurried.is_set():
            for worker in self._workers:
                worker.hurry()
            await asyncio.wait((all_ended,), timeout=_KILL_AFTER)
        hurry.cancel()
        if not all_ended.done():
            _log.warning("workers_killed", numbers=[each.index for each in self._workers if each.pid is not None])
            for worker in self._workers:
                worker.kill()
        await all_ended

    def _show_inflight(self, counts: Mapping[str, int]) -> None:
        """For /routes: this process has no requests of its own."""
        for member in self._busy | counts.keys():
            live = self._core.mirror.upstream(member)
            if live is not None:
                live.inflight = counts.get(member, 0)
        self._busy = set(counts)

    def _besides(self) -> Besides:
        core = self._core
        if core.sockets.shared.isdisjoint(core.sockets.data):
            return "nobody"
        follows = core.predecessor is not None and not core.predecessor.gone.is_set()
        return "predecessor" if follows else "another"

    def _job(self, index: int, settings: Settings) -> Job:
        name = f"{self._core.instances.info.name}/{index}"
        return Job(
            settings=settings.model_copy(update={"workers": 1, "name": name}),
            data_fds=[each.fileno() for each in self._core.sockets.data],
            api_path=self._directory / f"{index}.sock",
            api_addresses=self._core.sockets.api_addresses(),
            worker=str(index),
            besides=self._besides(),
        )
