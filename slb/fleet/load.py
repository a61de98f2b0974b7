"""What is in flight at one upstream: at each process, and in the fleet. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from slb.fleet.frame_values import Shape, shaped


class Load(NamedTuple):
    """Of one process. `inflight`: requests and jobs that it has there; `held`: the slots that the ledger counts for
    it there; `drains`: it sends nothing new there."""

    inflight: int
    held: int
    drains: bool


_LOAD: Shape = {"inflight": 0, "held": 0, "drains": False}


def read_load(found: Any) -> Load:
    """What another process has sent. Raises ValueError for what is none."""
    load = shaped(found, _LOAD)
    return Load(max(0, int(load["inflight"])), max(0, int(load["held"])), load["drains"])


def in_flight(
    loads: Mapping[str, Load], names: Mapping[str, str], silent: Collection[str], counted: int | None
) -> dict[str, Any]:
    """What the fleet has there. `loads`: by id of those that have answered; `names`: by id of all that serve;
    `silent`: names of those that beat no more, and of which nobody knows whether they have ended; `counted`: slots
    in the ledger, None where that cannot be read."""
    held = sum(load.held for load in loads.values())
    # Slots of what is none of these: a program with the library, or an instance that is gone and not yet reaped.
    elsewhere = None if counted is None else max(0, counted - held)
    unknown = sorted([*(name for id_, name in names.items() if id_ not in loads), *silent])
    unaware = sorted(names.get(id_, id_) for id_, load in loads.items() if not load.drains)
    inflight = sum(load.inflight for load in loads.values()) + (elsewhere or 0)
    return {
        "inflight": inflight,
        "instances": {names.get(id_, id_): load.inflight for id_, load in loads.items() if load.inflight},
        "elsewhere": elsewhere,
        "unknown": unknown,
        "unaware": unaware,
        "empty": not (inflight or unknown or unaware or elsewhere is None),
    }
