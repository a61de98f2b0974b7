"""The composition root: makes and wires the parts of a process that takes traffic. core.py has what all processes
need."""

import asyncio
import os
import time
from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from slb import __version__
from slb.addresses import CallbackRules
from slb.admission.explain import Explainer
from slb.admission.gates import Gates
from slb.announcing import log_stopping
from slb.api.application import make_data_api
from slb.api.job_pages import shown
from slb.api.jobs import stats_shown
from slb.api.shapes import JobsStatus
from slb.config import Settings
from slb.control.kept_lines import KeptLines
from slb.control.ledger import Ledger
from slb.core import TRAFFIC_ROLES, Core
from slb.errors import ConfigError
from slb.jobs.callbacks import Callbacks
from slb.jobs.calling import Calls
from slb.jobs.dispatcher import Means
from slb.jobs.outcomes import KIND, Outcomes
from slb.jobs.posting import Posting
from slb.jobs.runtime import JobRuntime, Runs
from slb.jobs.service import JobService
from slb.jobs.task_parts import tasks_of
from slb.lifecycle import unless_set, use_all_descriptors
from slb.listening import begin_listening
from slb.observe.trace_export import TraceExporter
from slb.proxy.listener import ProxyServer
from slb.proxy.tracing import Tracing
from slb.routing.rings import Rings
from slb.setting_values import signing_keys

if TYPE_CHECKING:
    from slb.extproc.server import ExtProcServer

_LEAST_FLUSH, _LONGEST_FLUSH = 1.0, 5.0
"""Seconds that a collector has for the last spans."""

_log = structlog.get_logger("slb")


class App:
    """One instance: a core, traffic, a heartbeat."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._data_api: web.AppRunner | None = None
        self._serves = False
        self._drain_delay = self._drained_until = 0.0
        self._ledger = Ledger(core.connection, core.instances.info.id, core.metrics, Random())
        self._ledger.set_patience(core.settings.redis_budget, core.settings.ledger_patience)
        self._gates = Gates(self._ledger, core.mirror, core.metrics, _sharers(core), Random())
        self._rings = Rings(core.mirror, time.monotonic)
        core.metrics.rings = self._rings.shown
        core.fleet.sources.gates = self._gates
        core.fleet.show_itself()
        self._explainer = Explainer(self._gates, core.mirror, asyncio.get_running_loop().time)
        self._proxy = ProxyServer(
            settings=core.settings,
            mirror=core.mirror,
            metrics=core.metrics,
            access_log=core.access_log,
            address_rules=core.address_rules,
            handover=self._application,
            gates=self._gates,
            rng=Random(),
        )
        self._traces = _trace_exporter(core)
        self._tracing = Tracing(core.settings, self._proxy.context, self._traces)
        self._health = core.health(tls=self._proxy.upstream_tls, connect=self._proxy.pools.look)
        self._proxy.context.witness = self._health.passive
        self._extproc = self._make_extproc() if "extproc" in core.settings.roles else None
        self._callback_rules = CallbackRules(core.settings.jobs_callback_networks, core.address_rules)
        self._callbacks = self._make_callbacks()
        self._jobs = self._make_jobs() if "jobs" in core.settings.roles else None
        if self._jobs is not None:
            tells, runtime = core.fleet.sources.more, self._jobs.runtime
            tells.jobs, tells.at_risk = self._jobs, lambda: runtime.durability.at_risk
        core.instances.on_death = self._bury

    def _make_callbacks(self) -> Callbacks:
        keys, counts = _callback_keys(self.core.settings), self.core.metrics.jobs
        return Callbacks(Posting(self._callback_rules), shown, keys, counts, Random())

    def _make_jobs(self) -> JobService:
        core, passive = self.core, self._health.passive
        outcomes = Outcomes(KeptLines(core.settings.data_dir, KIND, core.connection.url_shown))
        mirror, counts = core.mirror, core.metrics.jobs
        calls = Calls(self._proxy.pools, passive, lambda path: mirror.table.routes.get(path))
        means = Means(self._gates, core.mirror, calls, calls.look, counts, Random(), outcomes)
        runtime = JobRuntime(
            core.connection,
            core.mirror,
            core.instances.info.id,
            counts,
            Runs(means, self._callbacks),
            core.settings.jobs_durability == "replica",
            tasks_of(core.settings),
        )
        return JobService(runtime, core.mirror, self._gates.scores_of)

    def _make_extproc(self) -> "ExtProcServer":
        core, passive = self.core, self._health.passive
        made = extproc_server()(core.settings, core.mirror, core.metrics, core.access_log, self._gates, Random())
        made.context.witness = passive
        return made

    def _bury(self, instances: Collection[str]) -> None:
        self._ledger.bury(instances)
        if self._jobs is not None:
            self._jobs.runtime.bury(instances)

    async def start(self) -> None:
        """Follow Redis, answer the API, take traffic, beat."""
        core = self.core
        parts = core.api_parts()
        parts.ledger, parts.explain = self._gates.shown, self._explainer.explain
        parts.route_now = self._explainer.now
        parts.serving = lambda: self._serves
        parts.status_extra, parts.jobs = self._status_extra, self._jobs
        self._data_api = await core.api.run(make_data_api(parts))
        self._warn_of_few_descriptors()
        core.start_watching()
        core.tasks.start("ledger", self._ledger.run())
        core.tasks.start("gates", self._gates.run())
        core.tasks.start("rings", self._rings.run())
        if self._jobs is not None:  # before a job is acknowledged
            await self._jobs.runtime.prepare()
        await core.listen(parts, is_serving=False)
        await core.first_table()
        await self._gates.opened(core.settings.ledger_patience)
        for bound in core.sockets.data:
            begin_listening(bound, "listen")
        await self._proxy.start(core.sockets.data, core.sockets.shared)
        if self._extproc is not None:
            core.extproc_shown = await self._extproc.start()
            core.tasks.start("extproc", self._extproc.follow_readiness())
        self._serves = True
        await core.listen(parts, is_serving=True)
        core.tasks.start("traces", self._traces.run())
        core.tasks.start("health", self._health.run())
        if self._jobs is not None:
            core.tasks.start("jobs", self._jobs.runtime.run())
        core.tasks.start("certificates", self._proxy.follow_files())
        await core.start_heartbeat()

    def _warn_of_few_descriptors(self) -> None:
        limit, wanted = use_all_descriptors(), self.core.settings.max_connections
        if self.core.sockets.data and limit < wanted:
            _log.warning("few_descriptors", max_connections=wanted, open_files=limit, hint="raise ulimit -n")

    async def reconfigure(self, settings: Settings) -> None:
        await self.core.reconfigure(settings)
        self._proxy.reconfigure(settings)
        self._tracing.reconfigure(settings)
        if self._extproc is not None:
            self._extproc.reconfigure(settings)
        self._ledger.set_patience(settings.redis_budget, settings.ledger_patience)
        self._callback_rules.networks = settings.jobs_callback_networks
        self._callbacks.keys = _callback_keys(settings)

    def let_go(self) -> None:
        """Another process serves: accept no more on the sockets that it has."""
        self._proxy.let_go()
        self.core.let_go()

    async def stop(self, hurried: asyncio.Event) -> bool:
        """/readyz says no; after drain_delay no new connection is taken, and requests in flight may finish for
        drain_timeout, or until `hurried`. Whether any was cut off by the latter."""
        self.core.begin_stop()
        self._drain_delay = self.core.leave_answers()
        self._proxy.begin_drain()
        if self._extproc is not None:
            self._extproc.begin_drain()
        log_stopping(self.core, self.core.metrics.clients.connections() + self._proxy.arriving)
        in_a_hurry = await self._drain(hurried)
        if not in_a_hurry:
            await unless_set(hurried, self._traces.leave(self._left_to_drain()))
        await self._ledger.leave()
        await self.core.stop()
        await self.core.instances.remove()
        return in_a_hurry

    async def _drain(self, hurried: asyncio.Event) -> bool:
        late = await unless_set(hurried, self._leave())
        if late:
            _log.warning("requests_cut_off", requests=late, why="drain_timeout")
        if late is not None:
            return False
        if self._jobs is not None:
            await self._jobs.runtime.leave(0.0)
        cut = await self._proxy.drain(0.0)  # before their slots are given back
        if self._extproc is not None:
            cut += await self._extproc.drain(0.0)
        if cut:
            _log.warning("requests_cut_off", requests=cut, why="told_twice")
        return cut > 0

    async def _leave(self) -> int:
        settings = self.core.settings
        await asyncio.sleep(self._drain_delay)
        self.core.begin_drain()
        until = self._drained_until = asyncio.get_running_loop().time() + settings.drain_timeout
        if self._jobs is not None:  # its calls go over the proxy's connections
            await self._jobs.runtime.leave(settings.drain_timeout)
        left = max(0.0, until - asyncio.get_running_loop().time())
        if self._extproc is None:
            return await self._proxy.drain(left)
        return sum(await asyncio.gather(self._proxy.drain(left), self._extproc.drain(left)))

    def _left_to_drain(self) -> float:
        """Seconds that spans may take to be sent once all requests have ended: what is left of the drain, and a
        second in any case."""
        left = self._drained_until - asyncio.get_running_loop().time()
        return min(max(left, _LEAST_FLUSH), _LONGEST_FLUSH)

    def _status_extra(self) -> dict[str, Any]:
        return {**self.core.status_extra(), **({} if self._jobs is None else {"jobs": jobs_status(self._jobs)})}

    def _application(self) -> asyncio.Protocol:
        """What serves one connection that the data listener hands over."""
        assert self._data_api is not None
        assert self._data_api.server is not None
        return self._data_api.server()


def extproc_server() -> "type[ExtProcServer]":
    """Imported where that role is on: it is an extra. Raises ConfigError where that is not installed."""
    # gRPC reads this when it is loaded. Its listener of old wakes one thread less for each message, which is a
    # quarter of what a request costs; a version that has it no more says so in one line.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    try:
        from slb.extproc.server import ExtProcServer
    except ImportError as error:
        raise ConfigError(f"roles: extproc needs `pip install slb[extproc]`: {error}") from None
    return ExtProcServer


def _trace_exporter(core: Core) -> TraceExporter:
    info = core.instances.info
    resource = {
        "service.version": __version__,
        "service.instance.id": info.id,
        "slb.instance": info.name,
        "host.name": info.host,
    }
    return TraceExporter(resource, ("slb", __version__), core.metrics.trace, time.monotonic, Random())


def _sharers(core: Core) -> Callable[[], int]:
    """How many instances share a cap where Redis is away: those that take slots."""
    return lambda: core.instances.count_of(TRAFFIC_ROLES)


def jobs_status(jobs: JobService) -> JobsStatus:
    """What /status says of jobs."""
    return JobsStatus(at_risk=jobs.runtime.durability.at_risk or None, models=stats_shown(jobs.seen, jobs.models))


def _callback_keys(settings: Settings) -> tuple[bytes, ...]:
    secrets = settings.jobs_callback_secrets
    return signing_keys(secrets.get_secret_value()) if secrets is not None else ()
