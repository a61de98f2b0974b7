"""Every state an upstream's health can be in, and every move between them. Pure: no I/O, no clock.

Two lifecycles stand in one table, and never mix. The result of *checks*, the same on all instances: unknown, up,
down. The result of *traffic*, on each instance separately: trusted, ejected, on probation. A route uses an upstream
that its own check has not found down and that is not ejected.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from slb.errors import SlbError
from slb.model import HealthCheck


class State(StrEnum):
    """The state of an upstream."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    TRUSTED = "trusted"
    EJECTED = "ejected"
    PROBATION = "probation"


class Event(StrEnum):
    """The events of an upstream's health."""

    ROSE = "rose"
    FELL = "fell"
    EJECT = "eject"
    HOLD_OFF_OVER = "hold_off_over"
    SERVED = "served"


TRANSITIONS = MappingProxyType(
    {
        (State.UNKNOWN, Event.ROSE): State.UP,
        (State.UNKNOWN, Event.FELL): State.DOWN,
        (State.UP, Event.FELL): State.DOWN,
        (State.DOWN, Event.ROSE): State.UP,
        (State.TRUSTED, Event.EJECT): State.EJECTED,
        (State.EJECTED, Event.HOLD_OFF_OVER): State.PROBATION,
        (State.PROBATION, Event.EJECT): State.EJECTED,
        (State.PROBATION, Event.SERVED): State.TRUSTED,
    }
)
"""All moves there are."""


class IllegalMove(SlbError):
    """An event that cannot happen in this state: a bug. Nothing has changed."""


def moved(state: State, event: Event) -> State:
    """The state after `event` in `state`. Raises IllegalMove."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalMove(f"{event} cannot happen to what is {state}") from None


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of a check so far: the state, and how many results in a row were against it."""

    state: State = State.UNKNOWN
    run: int = 0

    def after(self, passed: bool, check: HealthCheck) -> "Tally":
        """With one more result. What is unknown is used like what is up, so one pass confirms it."""
        against = passed if self.state is State.DOWN else not passed
        if not against:
            return Tally(moved(self.state, Event.ROSE) if self.state is State.UNKNOWN else self.state)
        run = self.run + 1
        if run < (check.rise if passed else check.fall):
            return Tally(self.state, run)
        return Tally(moved(self.state, Event.ROSE if passed else Event.FELL))


def hold_off(ejections: int, first: float, longest: float) -> float:
    """Seconds an upstream stays out, ejected for the `ejections`th time in succession: each time twice as long."""
    return min(longest, first * 2.0 ** min(ejections - 1, 64))
