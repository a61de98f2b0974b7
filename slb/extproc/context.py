"""What all requests of one external processor share."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from slb.admission.gates import Gates
from slb.balance.upstream import LiveUpstream
from slb.extproc.failures import Failures
from slb.extproc.routes import Routes
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror


@dataclass(slots=True)
class ExtProcContext:
    """`clock`: seconds. `tells_all`: clients see the names of upstreams. `on_failure(upstream, reason)` is called
    for each attempt that failed at an upstream, and before it `on_refusal(upstream)` where the connection was
    refused."""

    mirror: Mirror
    metrics: Metrics
    access_log: AccessLog
    gates: Gates
    routes: Routes
    failures: Failures
    clock: Callable[[], float]
    rng: Random
    tells_all: bool
    on_failure: Callable[[LiveUpstream, str], None] = lambda upstream, reason: None
    on_refusal: Callable[[LiveUpstream], None] = lambda upstream: None
