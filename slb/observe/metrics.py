"""What one process counts. The hot path adds to plain numbers and dicts: a locked client-library counter costs more
than all other bookkeeping. Fields declared with `counter`, `gauge` or `read_gauge` are shown to Prometheus as they
are, the others by `collectors`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from slb.observe.changes import Changes
from slb.observe.decisions import Decisions
from slb.observe.discovery import DiscoveryCounts
from slb.observe.dns import DnsCounts
from slb.observe.extproc import ExtProcCounts
from slb.observe.families import Histogram, counter, gauge, read_gauge
from slb.observe.health import HealthCounts
from slb.observe.jobs import JobCounts
from slb.observe.quota import QuotaCounts
from slb.observe.ring import Rings
from slb.observe.traffic import Members, Traffic

Counts = defaultdict[str, int]
ByRoute = defaultdict[tuple[str, str], int]
"""By something else and by route."""


@dataclass
class ClientCounts:
    """Of clients of the data listener."""

    connections: Callable[[], int] = read_gauge("slb_client_connections", "Open client connections.")
    disconnects: int = counter("slb_client_disconnects", "Clients that left before their answer ended.")
    proxy_protocol_refused: Counts = counter(
        "slb_proxy_protocol_refused", "Connections ended before they were at HTTP or TLS.", "reason"
    )


@dataclass
class TlsCounts:
    """Of certificates, and of handshakes with clients."""

    handshake_failures: Counts = counter(
        "slb_tls_handshake_failures", "Clients that did not get through the TLS handshake.", "reason"
    )
    reload_failures: int = counter("slb_tls_reload_failures", "Changed certificate files that were refused.")
    not_after: dict[str, float] = gauge(
        "slb_tls_certificate_not_after_seconds", "When the certificate ends, in seconds since 1970.", "certificate"
    )


@dataclass
class RedisCounts:
    """Of Redis and the mirror. `up`: as the watcher knows it; `unanswered`: whether a lane waits in vain, which is
    sooner. `polling_since`: seconds since 1970, while it does."""

    up: bool = False
    unanswered: Callable[[], bool] = bool
    reconnects: int = counter("slb_redis_reconnects", "Connections made again.")
    polling: bool = gauge("slb_redis_polling", "1 where notifications are not to be had.")
    polling_since: float | None = None
    full_syncs: int = counter("slb_full_syncs", "Full syncs that succeeded.")
    staleness: Callable[[], float] = read_gauge(
        "slb_mirror_staleness_seconds", "Since the mirror was last known to be true."
    )
    skipped: dict[str, int] = gauge("slb_skipped_entries", "Foreign or broken entries in Redis.", "kind")
    registrations_expired: int = counter(
        "slb_registrations_expired", "Registrations this instance took out as their lease had ended."
    )

    @property
    def answers(self) -> bool:
        """Whether Redis answers, as far as the watcher and the lanes know."""
        return self.up and not self.unanswered()


@dataclass
class QueueCounts:
    """Of requests that wait for a slot, by route; `shed` by reason and route."""

    depth: Callable[[], Iterable[tuple[str, str, int]]] = read_gauge(
        "slb_queue_depth", "This instance's requests that wait for a slot; 0 where none does.", "route", "priority"
    )
    wait: defaultdict[str, Histogram] = field(default_factory=partial(defaultdict, Histogram))
    positions: defaultdict[str, Counter[str]] = field(default_factory=partial(defaultdict, Counter))
    shed: ByRoute = counter("slb_shed", "Requests that got no slot.", "reason", "route")


@dataclass
class LedgerCounts:
    """Of the slots that all instances share. `global_inflight`: by upstream, the requests of all instances."""

    global_inflight: Callable[[], Iterable[tuple[str, int]]] = tuple
    pools_shared: Callable[[], Iterable[tuple[str, bool]]] = read_gauge(
        "slb_ledger_shared", "1 while Redis decides who gets a pool's slots, 0 while this instance does.", "pool"
    )
    reaped: int = counter("slb_ledger_reaped", "Dead instances whose slots were given back.")
    drift: int = counter("slb_ledger_drift", "By how much scores were not the sum of what is held.")
    repaired: int = counter("slb_ledger_repaired", "Damaged keys and fields of the ledger.")
    grants_taken_back: int = counter("slb_ledger_grants_lapsed", "Grants that were not taken up in time.")
    local_decisions: int = counter("slb_ledger_local", "Requests decided without Redis.")
    local_grants: int = counter("slb_ledger_local_grants", "Slots under a cap given out without Redis.")
    above_cap: int = counter("slb_ledger_above_cap", "By how much upstreams have been seen to rise above caps.")


@dataclass
class TraceCounts:
    """Of spans by what became of them: `sent`; `rejected` by the collector; `failed`, where they were not delivered
    in several tries; `full`, where too many waited; `stopped`, which still waited when the process ended."""

    spans: Counts = counter("slb_trace_spans", "Spans of traced requests.", "result")
    limited: int = counter("slb_trace_limited", "Requests that were not traced because of `trace_rate`.")


@dataclass
class ProcessCounts:
    """Of the API, its listeners and reloads: a supervisor counts these too."""

    accept_failures: Counts = counter("slb_accept_failures", "Times nothing was accepted for a second.", "listener")
    api_connections: Callable[[], int] = read_gauge("slb_api_connections", "Open connections to the API listener.")
    api_requests: defaultdict[tuple[int, str], int] = counter(
        "slb_api_requests", "Requests to slb's own API, on either listener.", "code", "reason"
    )
    config_reloads: Counts = counter("slb_config_reloads", "Settings read anew.", "result")
    config_refused: bool = gauge("slb_config_refused", "1 while the settings that are written are refused.")


@dataclass
class Metrics:
    """What one process counts. `inflight`: upstreams, and how many requests this process has there; `decisions`:
    what became of the last requests; `changes`: what is to be logged for the whole fleet."""

    traffic: Traffic = field(default_factory=Traffic)
    inflight: Callable[[], Iterable[tuple[str, int]]] = tuple
    retries: Counts = counter("slb_retries", "Attempts after the first.", "reason")
    retries_refused: ByRoute = counter(
        "slb_retries_refused", "Attempts that the retry budget did not allow.", "reason", "route"
    )
    clients: ClientCounts = field(default_factory=ClientCounts)
    tls: TlsCounts = field(default_factory=TlsCounts)
    redis: RedisCounts = field(default_factory=RedisCounts)
    queue: QueueCounts = field(default_factory=QueueCounts)
    ledger: LedgerCounts = field(default_factory=LedgerCounts)
    trace: TraceCounts = field(default_factory=TraceCounts)
    process: ProcessCounts = field(default_factory=ProcessCounts)
    health: HealthCounts = field(default_factory=HealthCounts)
    quota: QuotaCounts = field(default_factory=QuotaCounts)
    jobs: JobCounts = field(default_factory=JobCounts)
    discovery: DiscoveryCounts = field(default_factory=DiscoveryCounts)
    dns: DnsCounts = field(default_factory=DnsCounts)
    extproc: ExtProcCounts = field(default_factory=ExtProcCounts)
    rings: Rings = tuple
    decisions: Decisions = field(default_factory=Decisions)
    changes: Changes = field(default_factory=Changes)

    def follow_routes(self, routes: Mapping[str, Members]) -> None:
        """End what is counted of routes that are not in `routes`, those of the table."""
        self.traffic.follow(routes)
        self.health.follow_routes(routes)
        for route in self.queue.wait.keys() - routes.keys():
            del self.queue.wait[route]
        for route in self.queue.positions.keys() - routes.keys():
            del self.queue.positions[route]
        for counts in (self.queue.shed, self.retries_refused):
            for key in [key for key in counts if key[1] not in routes]:
                del counts[key]
