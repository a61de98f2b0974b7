"""What all requests of one external processor share."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from slb.admission.gates import Gates
from slb.admission.snapshots import Snapshots
from slb.extproc.failures import Failures
from slb.extproc.routes import Routes
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.routing.witness import UNHEARD, Witness


@dataclass(slots=True)
class ExtProcContext:
    """`clock`: seconds. `tells_all`: clients see the names of upstreams. `witness` is told what requests say of
    their upstreams."""

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
