"""What every slb process has, the supervisor of workers and the quota router too: Redis, the mirror of its routes,
the API; health and the quota router for those that want them. Made and wired here and in app.py, nowhere else."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from random import Random
from typing import Any

import structlog

from slb import systemd
from slb.addresses import AddressRules
from slb.advertised import advertised
from slb.api.parts import ApiParts
from slb.api.show_route import describe_route
from slb.api_server import ApiServer
from slb.config import Settings
from slb.control.connection import Connection, connect
from slb.control.discovered import Discovered, Writers
from slb.control.disk import table_file
from slb.control.health_news import HealthNews
from slb.control.health_store import HealthStore
from slb.control.instances import Instances
from slb.control.leases import Leases
from slb.control.private import check_data_dir
from slb.control.registry import Registry
from slb.control.slices import step_through
from slb.control.watcher import Watcher
from slb.discovery.dns_questions import Questions
from slb.discovery.file import MembersFile
from slb.discovery.kubernetes import services_of
from slb.discovery.pending import WriteTiming
from slb.discovery.registered import RegisteredNames
from slb.discovery.service import Discovery, dns_servers
from slb.discovery.writer import Writer
from slb.dns.kept import KeptInstances
from slb.dns.service import DnsService
from slb.errors import RedisUnavailable
from slb.fleet.service import FleetService, sources_of
from slb.health.active import ActiveTiming
from slb.health.probe import TlsContext
from slb.health.service import HealthService
from slb.identity import binding_of, instance_info, instance_name
from slb.lifecycle import Tasks, first_of, set_within
from slb.listening import Sockets
from slb.observe import frequent
from slb.observe.changes import What
from slb.observe.collectors import MetricsCollector
from slb.observe.exposition import text_of_process
from slb.observe.log import AccessLog, configure_logging, console_lines, is_readable, json_lines, stderr_sink
from slb.observe.metrics import Metrics
from slb.observe.throttle import Throttle
from slb.proxy.tls import LOOK_AGAIN, follow
from slb.quota.local import LocalShare
from slb.quota.service import QuotaService
from slb.quotas import Rules
from slb.reload import Reloader, Source
from slb.routing.mirror import Mirror
from slb.routing.passive import Connect, connects_to_none
from slb.takeover import Predecessor

_log = structlog.get_logger("slb")

_IS_TRUE = 2.0  # seconds of staleness with which the routes are those that Redis has now
_FIRST_TABLE = 5.0  # seconds a starting instance takes no traffic for want of a table
_FIRST_BEAT = 2.0  # seconds at most until the process before this one is told to leave: others see this one first

TRAFFIC_ROLES = ("proxy", "jobs", "extproc")
"""Those in which an instance sends requests to upstreams."""


class Core:
    """What every slb process has. `tasks.failed` is set when a part ended that must not. `bound_fields`: of each
    log line. `extproc_shown`: where Envoys ask, empty where they cannot. `predecessor`: the process that serves
    with the same sockets until this one does. `replaced`: another process serves wherever this one did."""

    extproc_shown = ""
    predecessor: Predecessor | None = None
    replaced = False

    def __init__(
        self,
        settings: Settings,
        sockets: Sockets,
        connection: Connection,
        metrics: Metrics,
        bound_fields: Mapping[str, str],
    ) -> None:
        self.settings = settings
        self.bound_fields = bound_fields
        self.sockets = sockets
        self.connection = connection
        self.metrics = metrics
        self.tasks = Tasks(lambda name, error: _log.critical("task_ended", task=name, exc_info=error))
        self.started = time.time()
        self.mirror = Mirror(settings.route_settings, Random(), zone=settings.zone)
        self.address_rules = AddressRules(settings.upstream_networks, sockets.internet_addresses)
        self.watcher = Watcher(
            connection, self.mirror, metrics, table_file(settings.data_dir, connection.url_shown)
        )
        self._leases = Leases(connection, self.mirror, metrics, self.watcher.on_written)
        self.instances = Instances(connection, instance_info(settings, sockets, self.started))
        self.quota = self._make_quota() if "quota" in settings.roles and not sockets.others else None
        self.dns = self._make_dns() if sockets.dns else None
        self.discovery = None if sockets.others or not settings.discovers else self._make_discovery()
        self.access_log = make_access_log(settings, bound_fields)
        self.api = ApiServer(settings, metrics, self.access_log)
        shows = sources_of(self.instances, self.mirror, metrics, bool(sockets.others))
        shows.staleness, shows.draining = self.watcher.staleness, lambda: self.api.draining
        shows.more.router = self.quota
        self.fleet = FleetService(connection, shows, self.instances)
        metrics.redis.staleness = self.watcher.staleness

    def _make_quota(self) -> QuotaService:
        """The process that answers the API decides; of a worker only its supervisor asks the API."""
        settings = self.settings
        rules = Rules(
            lease=round(settings.quota_lease * 1000), longest_wait=round(settings.quota_longest_wait * 1000)
        )
        share = LocalShare(rules, lambda: time.monotonic_ns() // 1_000_000, self._routers)
        is_open = settings.quota_fail == "open"
        return QuotaService(self.connection, rules, share if is_open else None, self.metrics.quota, Random())

    def _make_discovery(self) -> Discovery:
        """Of a supervisor and its workers the former: one of a machine is enough to take over."""
        settings, info = self.settings, self.instances.info
        questions = Questions(dns_servers(settings))
        writers = Writers(self.connection, info.id, info.name)
        writer = Writer(
            Discovered(self.connection, self.mirror, self.watcher.on_written),
            writers,
            self.mirror,
            self.metrics.discovery,
            Random(),
            WriteTiming(empty_grace=settings.discovery_empty_grace),
            note=self.metrics.changes.note,
        )
        file = settings.discovery_file_path

        async def known() -> Sequence[tuple[str, str]] | None:
            try:
                found = await writers.known()
            except RedisUnavailable:
                return None
            return found if self.mirror.ready and self.watcher.staleness() < _IS_TRUE else None

        return Discovery(
            writer,
            known,
            questions,
            RegisteredNames(self.mirror, questions, self.address_rules),
            MembersFile(file, self.address_rules) if file and "discovery" in settings.roles else None,
            services_of(settings, Random()),
        )

    def _make_dns(self) -> DnsService:
        kept = KeptInstances(self.settings.data_dir, self.connection.url_shown)
        return DnsService(self.settings, self.sockets.dns, self.instances, kept, self.metrics.dns, Random())

    def _routers(self) -> int:
        """How many instances decide, as far as is known."""
        return max(1, sum("quota" in each.roles.split(",") for each in self.instances.known))

    def start_watching(self) -> None:
        self.tasks.start("watcher", self.watcher.run())
        self.tasks.start("leases", self._leases.run())
        self.tasks.start("fleet_view", self.fleet.run())
        if self.quota is not None:
            self.tasks.start("quota", self.quota.run())
        if self.discovery is not None:
            self.tasks.start("discovery", self.discovery.run())

    def follow(self, predecessor: Predecessor, on_gone: Callable[[], None]) -> None:
        """Follow the process whose sockets this one has taken."""

        async def watch() -> None:
            await predecessor.watch(on_gone)
            await asyncio.Event().wait()  # a task that ended would end the process

        self.predecessor = predecessor
        self.tasks.start("predecessor", watch())

    async def replace_predecessor(self) -> None:
        """This process serves: let the one before it drain."""
        if self.predecessor is not None:
            await set_within(self.instances.beaten, _FIRST_BEAT)
            await self.predecessor.replace()

    def sharing_changed(self) -> None:
        """An address that two processes have says nothing of the life of either."""
        shared = bool(self.sockets.shared)
        self.instances.hold_address("" if shared else binding_of(self.sockets))

    async def listen(self, parts: ApiParts, is_serving: bool) -> None:
        """Answer the API: before this process serves, unless the one before it answers there until then. Raises
        ConfigError for certificates that cannot be used."""
        if is_serving != (self.predecessor is not None):
            return
        await self.api.listen(parts, self.sockets.api, self.sockets.shared)
        if self.api.certificates is not None:
            self.tasks.start("api_certificates", follow([self.api.certificates], LOOK_AGAIN))

    async def start_heartbeat(self) -> None:
        """Beat from now on, as one that is ready; and answer DNS, where that is a role, with what beats find."""
        self.tasks.start("heartbeat", self._beat())
        if self.dns is not None:
            self.tasks.start("dns", self.dns.run())
            self.tasks.start("dns_news", self.dns.follow())
            await first_of(self.dns.answers, self.tasks.failed)
        self.fleet.note("started")

    async def _beat(self) -> None:
        self.instances.advertise(*await asyncio.to_thread(self._advertised))
        await self.instances.run()

    def _advertised(self) -> tuple[str, str]:
        settings, sockets = self.settings, self.sockets
        redis = "" if self.connection.embedded else settings.redis_url.get_secret_value()
        data = advertised(sockets.data_addresses(), settings.advertise, redis) if sockets.data else ""
        return data, advertised(sockets.dns_addresses(), (), redis)

    def leave_answers(self) -> float:
        """Leave the answers of DNS responders at once; how many seconds to go on taking connections for those who
        have the address already."""
        self.instances.begin_drain()
        return self.drain_delay()

    def drain_delay(self) -> float:
        """Seconds: the setting, or what the longest answer that a known responder gives needs to be forgotten."""
        settings = self.settings
        if self.replaced:
            return 0.0
        if settings.drain_delay is not None:
            return settings.drain_delay
        return self.instances.longest_answer() if self.sockets.data else 0.0

    def let_go(self) -> None:
        """Another process serves: accept no more on the sockets that it has."""
        self.replaced = self.sockets.all_shared()
        self.api.let_go()
        if self.dns is not None:
            self.dns.let_go(self.sockets.shared)

    def begin_stop(self) -> None:
        """Show that this process is about to stop; to systemd only where no other one goes on with the service."""
        self.api.draining = True
        is_early = self.predecessor is not None and not self.predecessor.gone.is_set()
        if not self.replaced and not is_early:
            systemd.notify(STOPPING=1)

    def begin_drain(self) -> None:
        """Look for expired leases no more: from now on this process gets no renewals."""
        self._leases.leave_to_others()

    async def table_of_follower(self) -> None:
        """Wait until there are routes, as long as another process serves with the same sockets. Raises
        StoppedEarly."""
        if self.predecessor is not None:
            await self.predecessor.outlive(self.watcher.shown(lambda mirror: mirror.ready, None))

    async def first_table(self) -> None:
        """Wait until there are routes, but not for long where Redis is away: until then clients are refused, and go
        to another instance. Raises StoppedEarly."""
        await self.table_of_follower()
        await self.watcher.shown(lambda mirror: mirror.ready, _FIRST_TABLE)

    def health(
        self, makes_checks: bool = True, tls: TlsContext | None = None, connect: Connect = connects_to_none
    ) -> HealthService:
        """The health of the upstreams; without checks, as other instances find it. `tls` gives the context for
        `https` upstreams; `connect` looks for those that have refused connections."""
        return HealthService(
            self.mirror,
            self.metrics.health,
            HealthStore(self.connection),
            HealthNews(self.connection),
            self.address_rules,
            Random(),
            timing=ActiveTiming() if makes_checks else ActiveTiming(at_once=0),
            tls=tls,
            carries_traffic=makes_checks,
            note=self.metrics.changes.note,
            instances=lambda: self.instances.count_of(TRAFFIC_ROLES),
            connect=connect,
            host=self.instances.info.host,
            elsewhere=lambda: self.instances.is_elsewhere(TRAFFIC_ROLES),
        )

    def api_parts(self) -> ApiParts:
        """The API's view of this process; its caller adds what it has besides."""
        parts = ApiParts(
            settings=self.settings,
            mirror=self.mirror,
            registry=Registry(self.connection, self.mirror, self.watcher.on_written),
            watcher=self.watcher,
            instances=self.instances,
            connection=self.connection,
            metrics=self.metrics,
            metrics_text=self.metrics_text,
            draining=lambda: self.api.draining,
            replaced=lambda: self.replaced,
            started=self.started,
            address_rules=self.address_rules,
            quota=self.quota,
            fleet=self.fleet.view,
            read_changes=self.fleet.log.read,
        )
        self.fleet.view.describe = partial(describe_route, parts)
        self.api.parts.append(parts)
        return parts

    def status_extra(self) -> dict[str, Any]:
        """What /status has besides."""
        found = self.discovery.shown() if self.discovery is not None else []
        discovery = {"discovery": [asdict(each) for each in found]} if found else {}
        return {**discovery, **({} if self.dns is None else {"dns": self.dns.shown()})}

    async def reconfigure(self, settings: Settings) -> None:
        """Let other settings hold. Routes are made anew in slices; with the last of them all else follows."""
        if (settings.defaults, settings.routes) != (self.settings.defaults, self.settings.routes):
            await step_through(self.mirror.reconfigure(settings.route_settings))
        self.settings = settings
        self.address_rules.networks = settings.upstream_networks
        if self.discovery is not None:
            self.discovery.reconfigure(settings)
        self.api.reconfigure(settings)
        logging.getLogger().setLevel(settings.log_level.upper())
        self.access_log.set_mode(settings.access_log)
        self.access_log.refused.set_rate(settings.access_log_refused)
        if self.dns is not None:
            self.dns.reconfigure(settings)

    def follow_settings(
        self, source: Source, apply: Callable[[Settings], Awaitable[None]], asked: asyncio.Event
    ) -> None:
        """Reload from now on whenever `asked` is set or a file has changed."""
        reloader = Reloader(self.settings, source, apply, self._count_reload)
        self.tasks.start("reload", reloader.run(asked))

    def _count_reload(self, result: str) -> None:
        self.metrics.process.config_reloads[result] += 1
        self.metrics.process.config_refused = result == "refused"
        what: What = "reloaded" if result == "applied" else "reload_refused"
        self.metrics.changes.note(what, self.instances.info.name)

    async def stop(self) -> None:
        await self.api.close()
        if self.dns is not None:
            await self.dns.leave()
        await self.tasks.stop()
        if self.discovery is not None:
            await self.discovery.leave()
        await self.fleet.leave()

    async def metrics_text(self, open_metrics: bool) -> bytes:
        return await text_of_process(MetricsCollector(self.metrics), open_metrics=open_metrics)


@asynccontextmanager
async def connected_core(
    settings: Settings, sockets: Sockets, revive: bool = True, worker: str = ""
) -> AsyncIterator[Core]:
    """A core with its connection, which is closed at the end (and with it the embedded server left). `worker`:
    which of several processes this is. All lines of the log have its name from here on."""
    bound_fields = {"instance": instance_name(settings, sockets), **({"worker": worker} if worker else {})}
    configure_logging(settings.log_level, settings.log_format, bound_fields=bound_fields)
    frequent.write_to(make_frequent_lines(settings, bound_fields))
    check_data_dir(settings.data_dir)
    metrics = Metrics()
    connection = await connect(settings, metrics, revive=revive)
    try:
        core = Core(settings, sockets, connection, metrics, bound_fields)
        try:
            yield core
        finally:  # where it could not start, nothing else has stopped it
            await core.tasks.stop()
            core.access_log.close()  # what it says of the end comes last
    finally:
        await connection.aclose()


def make_access_log(settings: Settings, bound_fields: Mapping[str, str]) -> AccessLog:
    """Lines as the event log has them: JSON, or readable."""
    make = console_lines if is_readable(settings.log_format, sys.stderr) else json_lines
    refused = Throttle(settings.access_log_refused)
    return AccessLog(settings.access_log, Random(), stderr_sink(), make(bound_fields), refused)


def make_frequent_lines(settings: Settings, bound_fields: Mapping[str, str]) -> AccessLog | None:
    """None where a person reads them: then they are not that many."""
    if is_readable(settings.log_format, sys.stderr):
        return None
    return AccessLog("all", Random(), stderr_sink(), json_lines(bound_fields))
