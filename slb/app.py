"""The composition root: the only place where the parts of a process are made and wired.

`Core` is what every slb process has, the supervisor of workers too: Redis, the mirror of its routes, the API.
`App` adds traffic and a heartbeat.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Protocol
from uuid import uuid4

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from slb import __version__
from slb.addresses import AddressRules
from slb.admission.explain import Explainer
from slb.admission.gates import Gates
from slb.admission.shown import Decision, LedgerShown
from slb.api.answers import Answered
from slb.api.application import make_api, make_data_api, make_shortcut
from slb.api.parts import ApiParts
from slb.api.runner import make_runner
from slb.api.shortcut import Shortcut
from slb.config import Settings
from slb.control.connection import Connection, connect
from slb.control.disk import table_file
from slb.control.health_news import HealthNews
from slb.control.health_store import HealthStore
from slb.control.instances import InstanceInfo, Instances
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.control.registry import Registry
from slb.control.slices import step_through
from slb.control.watcher import Watcher
from slb.health.active import ActiveTiming
from slb.health.probe import TlsContext
from slb.health.service import HealthService
from slb.lifecycle import Stopping, Tasks, first_of
from slb.listening import Sockets, begin_listening
from slb.observe.log import AccessLog, configure_logging, console_line, is_readable, json_line, stderr_sink
from slb.observe.metrics import Metrics, MetricsCollector
from slb.proxy.listener import ProxyServer
from slb.proxy.target import parse_line
from slb.proxy.tls import check_files
from slb.quota.local import LocalShare
from slb.quota.scheduler import Rules
from slb.quota.service import QuotaService
from slb.reload import Reloader, Source, reload_on_hangup
from slb.routing.mirror import Mirror
from slb.routing.rings import Rings

_API_GRACE = 2.0
"""Seconds the applications may take to finish their own answers at the end."""

_FIRST_TABLE = 5.0
"""Seconds a starting instance takes no traffic for want of a table."""

_log = logging.getLogger("slb")


class Core:
    """What every slb process has. `tasks.failed` is set when a part that must go on has ended."""

    def __init__(self, settings: Settings, sockets: Sockets, connection: Connection, metrics: Metrics) -> None:
        self.settings = settings
        self.sockets = sockets
        self.connection = connection
        self.metrics = metrics
        self.tasks = Tasks()
        self.stopping = False
        self.started = time.time()
        self.mirror = Mirror(settings.route_settings, Random(), zone=settings.zone)
        self.address_rules = AddressRules(settings.upstream_networks, sockets.internet_addresses)
        self.registry = Registry(connection, self.mirror.uses)
        self.watcher = Watcher(
            connection, self.mirror, metrics, table_file(settings.data_dir, connection.url_shown)
        )
        self.instances = Instances(connection, _instance_info(settings, sockets, self.started))
        self.watcher.on_instances(self.instances.found)
        self.quota = self._make_quota() if "quota" in settings.roles and not sockets.others else None
        self._runners: list[web.AppRunner] = []
        self.access_log = make_access_log(settings)
        self._parts: list[ApiParts] = []
        metrics.staleness = self.watcher.staleness

    def _make_quota(self) -> QuotaService:
        """Whoever answers the API decides; a worker's is its supervisor's only to ask."""
        settings = self.settings
        rules = Rules(
            lease=round(settings.quota_lease * 1000), longest_wait=round(settings.quota_longest_wait * 1000)
        )
        share = LocalShare(rules, lambda: time.monotonic_ns() // 1_000_000, lambda: self.instances.count)
        is_open = settings.quota_fail == "open"
        return QuotaService(self.connection, rules, share if is_open else None, self.metrics.quota, Random())

    def start_watching(self) -> None:
        """Follow Redis from now on."""
        self.tasks.start("watcher", self.watcher.run())
        if self.quota is not None:
            self.tasks.start("quota", self.quota.run())

    async def first_table(self) -> None:
        """Wait until there are routes to serve, but not for long where Redis is away: until then clients are
        refused, and go to another instance; what connects is answered, if only with `not_ready`."""
        await self.watcher.shown(lambda mirror: mirror.ready, _FIRST_TABLE)

    def health(self, makes_checks: bool = True, tls: TlsContext | None = None) -> HealthService:
        """The health of the upstreams. One that makes no checks shows what the others find. `tls` gives the context
        that `https` upstreams are met with."""
        return HealthService(
            self.mirror,
            self.metrics,
            HealthStore(self.connection),
            HealthNews(self.connection),
            self.address_rules,
            Random(),
            timing=ActiveTiming() if makes_checks else ActiveTiming(at_once=0),
            tls=tls,
        )

    def api_parts(
        self,
        metrics_text: Callable[[], Awaitable[bytes]],
        status_extra: Callable[[], dict[str, Any]],
        ledger: Callable[[], LedgerShown],
        explain: Callable[[str], Awaitable[Decision | None]],
        draining: Callable[[], bool],
    ) -> ApiParts:
        """The API's view of this process."""
        parts = ApiParts(
            settings=self.settings,
            mirror=self.mirror,
            registry=self.registry,
            watcher=self.watcher,
            instances=self.instances,
            connection=self.connection,
            metrics=self.metrics,
            metrics_text=metrics_text,
            status_extra=status_extra,
            ledger=ledger,
            explain=explain,
            draining=draining,
            started=self.started,
            address_rules=self.address_rules,
            quota=self.quota,
        )
        self._parts.append(parts)
        return parts

    async def reconfigure(self, settings: Settings) -> None:
        """Let other settings hold. Routes are made anew in slices; with the last of them all else follows."""
        if (settings.defaults, settings.routes) != (self.settings.defaults, self.settings.routes):
            await step_through(self.mirror.reconfigure(settings.route_settings))
        self.settings = settings
        self.address_rules.networks = settings.upstream_networks
        for parts in self._parts:
            parts.settings = settings
        logging.getLogger().setLevel(settings.log_level.upper())
        self.access_log.set_mode(settings.access_log)

    def follow_settings(
        self, source: Source, apply: Callable[[Settings], Awaitable[None]], asked: asyncio.Event
    ) -> None:
        """Reload from now on whenever `asked` or a file says so."""
        reloader = Reloader(self.settings, source, apply, self._count_reload)
        self.tasks.start("reload", reloader.run(asked))

    def _count_reload(self, result: str) -> None:
        self.metrics.config_reloads[result] += 1

    async def serve_api(self, parts: ApiParts) -> None:
        """Open the API listener."""
        runner = await self.run_application(make_api(parts), make_shortcut(parts, self._answered))
        await web.SockSite(runner, self.sockets.api).start()

    async def run_application(
        self, application: web.Application, shortcut: Shortcut | None = None
    ) -> web.AppRunner:
        """An application's runner, closed with this process."""
        runner = make_runner(application, self.settings, _API_GRACE, parse_line, self._answered, shortcut)
        await runner.setup()
        self._runners.append(runner)
        return runner

    async def stop(self) -> None:
        """Close the API and end the background tasks."""
        for runner in self._runners:
            await runner.cleanup()
        await self.tasks.stop()
        self.access_log.close()

    def _answered(self, answered: Answered) -> None:
        """An answer of the API, on either listener, is counted apart from traffic's and stands in the access log
        with them; but nobody made the requests that a supervisor asks its workers by unix sockets."""
        if not answered.client:
            return
        self.metrics.api_requests[answered.status, answered.reason] += 1
        if self.access_log.wants(answered.status, answered.reason):
            self.access_log.write(
                method=answered.method,
                path=answered.path,
                status=answered.status,
                reason=answered.reason,
                route="",
                duration=answered.seconds,
                client=answered.client,
                request_id=answered.request_id,
            )

    async def metrics_text(self) -> bytes:
        """This process's metrics in the text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MetricsCollector(self.metrics))
        return generate_latest(registry)


class App:
    """One instance: a core, traffic, a heartbeat."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._data_api: web.AppRunner | None = None
        timing = LaneTiming(budget=core.settings.redis_budget)
        self._ledger = Ledger(core.connection, core.instances.info.id, core.metrics, Random(), timing)
        self._gates = Gates(self._ledger, core.mirror, core.metrics, lambda: core.instances.count, Random())
        self._rings = Rings(core.mirror, time.monotonic)
        core.metrics.rings = self._rings.shown
        self._explainer = Explainer(self._gates, core.mirror, asyncio.get_running_loop().time)
        self._proxy = ProxyServer(
            settings=core.settings,
            mirror=core.mirror,
            metrics=core.metrics,
            access_log=core.access_log,
            address_rules=core.address_rules,
            handover=self._handover,
            gates=self._gates,
            rng=Random(),
        )
        self._health = core.health(tls=self._proxy.upstream_tls)
        self._proxy.report_failures_to(self._health.passive.failed)

    async def start(self) -> None:
        """Follow Redis, answer the API, take traffic, beat."""
        core = self.core
        parts = core.api_parts(core.metrics_text, dict, self._gates.shown, self._explain, lambda: core.stopping)
        self._data_api = await core.run_application(make_data_api(parts))
        core.start_watching()
        core.tasks.start("ledger", self._ledger.run())
        core.tasks.start("gates", self._gates.run())
        core.tasks.start("rings", self._rings.run())
        await core.serve_api(parts)
        await core.first_table()
        for bound in core.sockets.data:
            begin_listening(bound, "listen")
        await self._proxy.start(core.sockets.data)
        core.tasks.start("health", self._health.run())
        core.tasks.start("certificates", self._proxy.follow_files())
        core.tasks.start("heartbeat", core.instances.run())

    async def reconfigure(self, settings: Settings) -> None:
        """Let other settings hold; what is being served is not touched."""
        await self.core.reconfigure(settings)
        self._proxy.reconfigure(settings)
        self._ledger.set_budget(settings.redis_budget)

    async def stop(self, hurried: asyncio.Event) -> None:
        """/readyz says no; after drain_delay nobody new is let in, and requests in flight finish, for at most
        drain_timeout; or until `hurried`."""
        self.core.stopping = True
        self._proxy.begin_drain()
        await self._drain(hurried)
        await self._ledger.leave()
        await self.core.stop()
        await self.core.instances.remove()

    async def _drain(self, hurried: asyncio.Event) -> None:
        drain = asyncio.create_task(self._leave())
        hurry = asyncio.create_task(hurried.wait())
        await asyncio.wait((drain, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not drain.done():
            drain.cancel()
            _log.warning("told twice to stop: requests in flight are cut off")
        elif cut := drain.result():
            _log.warning("the drain timeout has passed: %d requests in flight are cut off", cut)

    async def _leave(self) -> int:
        """How many requests were cut off."""
        settings = self.core.settings
        await asyncio.sleep(settings.drain_delay)
        return await self._proxy.drain(settings.drain_timeout)

    async def _explain(self, path: str) -> Decision | None:
        return self._explainer.explain(path)

    def _handover(self, transport: asyncio.Transport, data: bytes) -> None:
        """Make a connection, and what was read of it, aiohttp's."""
        assert self._data_api is not None
        assert self._data_api.server is not None
        handler = self._data_api.server()
        transport.set_protocol(handler)
        handler.connection_made(transport)
        handler.data_received(data)


def run(settings: Settings, source: Source, end_with_stdin: bool = False, revive: bool = True) -> int:
    """`slb serve` with one process; the exit code. Raises SlbError where it cannot start.

    `source`: where to read the settings again when they change.
    `revive`: start an embedded server again when it dies; the demo does that itself, when its time has come.
    """
    configure_logging(settings.log_level, settings.log_format)
    check_files(settings)
    with Sockets.bind(settings) as sockets:
        return run_loop(lambda stopping: _serve(settings, source, sockets, revive, stopping), end_with_stdin)


def run_loop(main: Callable[[Stopping], Coroutine[Any, Any, int]], end_with_stdin: bool) -> int:
    """Run `main` on uvloop, told by SIGTERM, SIGINT and maybe the end of stdin to stop."""

    async def stoppable() -> int:
        stopping = Stopping()
        stopping.listen(end_with_stdin)
        return await main(stopping)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(stoppable())


async def _serve(settings: Settings, source: Source, sockets: Sockets, revive: bool, stopping: Stopping) -> int:
    asked = reload_on_hangup()
    async with connected_core(settings, sockets, revive) as core:
        app = App(core)
        core.follow_settings(source, app.reconfigure, asked)
        return await serve_app(app, stopping, lambda: announce(core))


@asynccontextmanager
async def connected_core(settings: Settings, sockets: Sockets, revive: bool = True) -> AsyncIterator[Core]:
    """A core with its connection, which is closed at the end (and with it the embedded server left)."""
    metrics = Metrics()
    connection = await connect(settings, metrics, revive=revive)
    try:
        yield Core(settings, sockets, connection, metrics)
    finally:
        await connection.aclose()


class Serving(Protocol):
    """What a process does."""

    @property
    def core(self) -> Core: ...
    async def start(self) -> None: ...
    async def stop(self, hurried: asyncio.Event) -> None: ...


async def serve_app(app: Serving, stopping: Stopping, started: Callable[[], None]) -> int:
    """Serve until told to stop, or until a part ends; the exit code."""
    failed = app.core.tasks.failed
    await app.start()
    started()
    await first_of(stopping.requested, failed)
    await app.stop(stopping.hurried)
    return int(failed.is_set() or stopping.hurried.is_set())


async def reset_redis(settings: Settings) -> int:
    """Empty Redis of all routes on purpose; how many there were. Raises SlbError."""
    configure_logging("error")
    connection = await connect(settings, Metrics())
    try:
        return await Registry(connection).reset()
    finally:
        await connection.aclose()


def announce(core: Core, workers: str = "") -> None:
    """One line for a person, and for programs that wait for it, once everything listens."""
    sockets, connection = core.sockets, core.connection
    scheme = "https" if core.settings.tls_certificates else "http"
    traffic = ", ".join(f"{scheme}://{each}" for each in sockets.data_shown()) or "the quota router"
    redis = connection.url_shown
    if connection.embedded is not None:
        redis = f"embedded, for this machine only, in {connection.embedded.directory}"
    print(
        f"slb {__version__} serves {traffic}{workers}, API http://{sockets.api_shown()}, Redis: {redis}", flush=True
    )


def make_access_log(settings: Settings) -> AccessLog:
    """Lines as the event log has them: JSON, or readable."""
    render = console_line if is_readable(settings.log_format, sys.stderr) else json_line
    return AccessLog(settings.access_log, Random(), stderr_sink(), render)


def _instance_info(settings: Settings, sockets: Sockets, started: float) -> InstanceInfo:
    host, address = socket.gethostname(), next(iter(sockets.data_shown()), sockets.api_shown())
    return InstanceInfo(
        id=uuid4().hex,
        name=settings.name or f"{host}:{address.rpartition(':')[2]}",
        address=address,
        api=sockets.api_shown(),
        version=__version__,
        roles=",".join(settings.roles),
        started=f"{started:.3f}",
        pid=str(os.getpid()),
        host=host,
    )
