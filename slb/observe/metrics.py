"""What one process counts.

The hot path adds to plain dicts and lists; a locked client-library counter costs more than the rest of the
bookkeeping together. `collectors` shows them to Prometheus, under their names, at a scrape.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slb.observe.health import HealthCounts
from slb.observe.histogram import Histogram
from slb.observe.quota import QuotaCounts
from slb.observe.ring import Rings
from slb.observe.traffic import Members, Traffic


class Metrics:
    """What one process counts. Plain attributes: the part that sees an event adds it here."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.api_requests: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.retries_refused: defaultdict[str, int] = defaultdict(int)
        self.client_disconnects = 0
        self.connections: Callable[[], int] = lambda: 0
        self.api_connections: Callable[[], int] = lambda: 0
        self.redis_up = False
        self.redis_reconnects = 0
        self.full_syncs = 0
        self.polling = False
        self.skipped: dict[str, int] = {}
        self.staleness: Callable[[], float] = lambda: 0.0
        self.inflight: Callable[[], Iterable[tuple[str, int]]] = lambda: ()
        self.health = HealthCounts()
        self.accept_failures: defaultdict[str, int] = defaultdict(int)
        self.proxy_protocol_refused: defaultdict[str, int] = defaultdict(int)
        self.tls_handshake_failures: defaultdict[str, int] = defaultdict(int)
        self.tls_reload_failures = 0
        self.tls_not_after: dict[str, float] = {}
        self.config_reloads: defaultdict[str, int] = defaultdict(int)
        self.registrations_expired = 0
        self.ledger_reaped = 0
        self.ledger_drift = 0
        self.ledger_repaired = 0
        self.grants_taken_back = 0
        self.shed: defaultdict[str, int] = defaultdict(int)
        self.queue_wait: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.queue_positions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.queue_depth: Callable[[], Iterable[tuple[str, str, int]]] = lambda: ()
        self.global_inflight: Callable[[], Iterable[tuple[str, int]]] = lambda: ()
        self.pools_shared: Callable[[], Iterable[tuple[str, bool]]] = lambda: ()
        self.local_decisions = 0
        self.local_grants = 0
        self.above_cap = 0
        self.unanswered: Callable[[], bool] = lambda: False
        self.quota = QuotaCounts()
        self.rings: Rings = lambda: ()

    @property
    def redis_answers(self) -> bool:
        """As far as the watcher and the lanes know: lanes notice a frozen Redis first."""
        return self.redis_up and not self.unanswered()

    def follow_routes(self, routes: Mapping[str, Members]) -> None:
        """`routes` are those of the table from now on: what was counted of others ends with them."""
        self.traffic.follow(routes)
        self.health.follow_routes(routes)
        by_route: tuple[dict[str, Any], ...] = (self.queue_wait, self.queue_positions)
        for counted in by_route:
            for route in counted.keys() - routes.keys():
                del counted[route]

    def forget_upstreams(self, members: Iterable[str]) -> None:
        """No route names these any more."""
        self.health.forget_upstreams(members)
