"""What an external processor counts besides the requests themselves."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from slb.observe.families import counter, read_gauge


@dataclass
class ExtProcCounts:
    """`moved`: by `retry`, or `unknown` where Envoy has passed over the pick. `turned_away`: by `silent`
    or `full`."""

    streams: Callable[[], int] = read_gauge(
        "slb_extproc_streams", "Open streams of Envoys: one for each request in flight."
    )
    moved: defaultdict[str, int] = counter(
        "slb_extproc_moved", "Requests that Envoy sent to another upstream than the one chosen.", "why"
    )
    unanswered: int = counter("slb_extproc_unanswered", "Requests whose stream ended before their answer.")
    turned_away: defaultdict[str, int] = counter(
        "slb_extproc_turned_away", "Streams that were ended because they said nothing, or were too many.", "why"
    )
