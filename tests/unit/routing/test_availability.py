"""Since when an upstream is out: one trouble is as old as its first ejection, or failed check."""

import pytest

from slb.balance.health_state import State
from slb.balance.upstream import LiveUpstream
from slb.model import HealthCheck
from slb.routing.availability import Availability
from tests.unit.health.fleet import Clock, Routes

CHECK, OTHER = (HealthCheck(path, interval=5.0, rise=1, fall=1, timeout=1.0) for path in ("/health", "/other"))


class Moves:
    """An upstream that is moved as the checks and the judge do it; `wall` is seconds since 1970."""

    def __init__(self) -> None:
        routes, self.wall = Routes(), Clock()
        routes.members("/p", 1)
        self.live: LiveUpstream = routes.live(1)
        self._availability = Availability(routes.mirror, routes.metrics.health, wall=self.wall)

    def traffic(self, before: State, after: State) -> None:
        self.live.available, self.live.on_probation = after is not State.EJECTED, after is State.PROBATION
        self._moved(before, after)

    def check(self, before: State, after: State, check: HealthCheck = CHECK) -> None:
        self.live.down = self.live.down | {check} if after is State.DOWN else self.live.down - {check}
        self._moved(before, after)

    def _moved(self, before: State, after: State) -> None:
        self._availability.moved(self.live, before, after, "why")
        self.wall.passes(10.0)


@pytest.fixture
def moves() -> Moves:
    return Moves()


def test_ejections_in_succession_are_one_trouble(moves: Moves) -> None:
    moves.traffic(State.TRUSTED, State.EJECTED)
    moves.traffic(State.EJECTED, State.PROBATION)
    moves.traffic(State.PROBATION, State.EJECTED)
    assert moves.live.since == 1000.0
    moves.traffic(State.EJECTED, State.PROBATION)
    moves.traffic(State.PROBATION, State.TRUSTED)
    moves.traffic(State.TRUSTED, State.EJECTED)
    assert moves.live.since == 1050.0


def test_what_is_down_while_it_is_ejected_was_out_before(moves: Moves) -> None:
    moves.traffic(State.TRUSTED, State.EJECTED)
    moves.check(State.UP, State.DOWN)
    moves.check(State.UP, State.DOWN, OTHER)
    moves.traffic(State.EJECTED, State.PROBATION)
    moves.traffic(State.PROBATION, State.TRUSTED)
    moves.traffic(State.TRUSTED, State.EJECTED)
    assert moves.live.since == 1000.0


def test_a_check_that_is_not_asked_for_any_more_leaves_no_trouble_behind(moves: Moves) -> None:
    moves.check(State.UP, State.DOWN)
    moves.live.down = frozenset()
    moves.check(State.UNKNOWN, State.DOWN, OTHER)
    assert moves.live.since == 1010.0
