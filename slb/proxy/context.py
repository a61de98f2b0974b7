"""What the exchanges of one instance share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from slb.admission.gates import Gates
from slb.admission.snapshots import Snapshots
from slb.config import Settings
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.proxy.identity import Identity
from slb.proxy.retry import Retries
from slb.routing.witness import UNHEARD, Witness
from slb.upstreams.deadlines import Wheel
from slb.upstreams.outbox import Outbox
from slb.upstreams.pool import Pools


@dataclass(slots=True)
class ProxyContext:
    """Made once per instance. `clock`: seconds. `draining`: each reply closes its connection. `tells_all`:
    clients see the names of upstreams. `witness` is told what requests say of their upstreams.
    `make_exchange(context, client, request, started)`: for a request that may be traced, which has a
    traceparent, or is the one at which `until_traced` has been counted down. `on_end(exchange, status, reason,
    detail, now)` is called for each that is traced or failed, unless it is None (tracing.py). All others pay
    for a subtraction."""

    metrics: Metrics
    access_log: AccessLog
    gates: Gates
    pools: Pools
    retries: Retries
    identity: Identity
    wheel: Wheel
    outbox: Outbox
    clock: Callable[[], float]
    rng: Random
    tells_all: bool
    make_exchange: Callable[..., Any]
    snapshots: Snapshots
    until_traced: float = math.inf
    draining: bool = False
    on_end: Callable[..., None] | None = None
    witness: Witness = UNHEARD

    def reconfigure(self, settings: Settings) -> None:
        self.tells_all = settings.client_detail == "full"
        self.pools.reconfigure(settings)
