"""Every state of an upstream's health, and every move between them. Pure: no I/O, no clock.

Two lifecycles in one table. By *checks*, the same on all instances: unknown, up, down. By *traffic*, on each
instance separately: trusted, ejected, on probation. A route uses an upstream that its own check has not found down
and that is not ejected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from slb.errors import SlbError
from slb.model import HealthCheck

FOUND_BY_OTHERS = "found by the fleet"
"""Why an upstream is down, where another instance has made the check."""


class State(StrEnum):
    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    TRUSTED = "trusted"
    EJECTED = "ejected"
    PROBATION = "probation"


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.UNKNOWN: frozenset({State.UP, State.DOWN}),
        State.UP: frozenset({State.DOWN}),
        State.DOWN: frozenset({State.UP}),
        State.TRUSTED: frozenset({State.EJECTED}),
        State.EJECTED: frozenset({State.PROBATION}),
        State.PROBATION: frozenset({State.EJECTED, State.TRUSTED}),
    }
)
"""All moves there are: state -> those that may follow it."""


class IllegalMove(SlbError):
    """A move that is not in the table: a bug. Nothing has changed."""


def moved(state: State, to: State) -> State:
    """`to`, where it may follow `state`. Raises IllegalMove."""
    if to not in TRANSITIONS[state]:
        raise IllegalMove(f"what is {state} cannot become {to}")
    return to


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of a check so far: the state, and how many results in a row were against it."""

    state: State = State.UNKNOWN
    run: int = 0

    def after(self, passed: bool, check: HealthCheck) -> "Tally":
        """With one more result. An unknown upstream is used like one that is up, so one pass confirms it."""
        against = passed if self.state is State.DOWN else not passed
        if not against:
            return Tally(State.UP if self.state is State.UNKNOWN else self.state)
        run = self.run + 1
        if run < (check.rise if passed else check.fall):
            return Tally(self.state, run)
        return Tally(moved(self.state, State.UP if passed else State.DOWN))


def hold_off(ejections: int, first: float, longest: float) -> float:
    """Seconds an upstream stays out the `ejections`th time in succession: each time twice as long."""
    return min(longest, first * 2.0 ** min(ejections - 1, 64))
