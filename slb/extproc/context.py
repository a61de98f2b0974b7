"""What all requests of one external processor share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from slb.admission.gates import Gates
from slb.admission.snapshots import Snapshots
from slb.extproc.failures import Failures
from slb.extproc.routes import Routes
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.routing.witness import UNHEARD, Witness


class Open(Protocol):
    """A request that has not ended."""

    def broke_off(self, served: str) -> bool:
        """Envoy says that the upstream of this address has broken its reply off. False where that is not known to
        be a reply to this request."""


@dataclass(slots=True)
class ExtProcContext:
    """`clock`: seconds. `tells_all`: clients see the names of upstreams. `witness` is told what requests say of
    their upstreams. `open`: the requests that have not ended, by their ids."""

    mirror: Mirror
    metrics: Metrics
    access_log: AccessLog
    gates: Gates
    routes: Routes
    failures: Failures
    clock: Callable[[], float]
    rng: Random
    tells_all: bool
    snapshots: Snapshots
    witness: Witness = UNHEARD
    open: dict[str, Open] = field(default_factory=dict)
