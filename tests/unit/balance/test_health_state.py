"""Every move of the transition table, and every one that is not in it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.health_state import TRANSITIONS, IllegalMove, State, Tally, hold_off, moved
from slb.model import HealthCheck

CHECK = HealthCheck("/h", 5.0, rise=2, fall=3, timeout=1.0)

MOVES = {
    ("unknown", "up"),
    ("unknown", "down"),
    ("up", "down"),
    ("down", "up"),
    ("trusted", "ejected"),
    ("ejected", "probation"),
    ("probation", "ejected"),
    ("probation", "trusted"),
}


@pytest.mark.parametrize(("state", "to"), list(product(State, State)))
def test_a_state_is_followed_by_those_of_the_table_and_no_others(state: State, to: State) -> None:
    if (state, to) in MOVES:
        assert moved(state, to) is to
    else:
        with pytest.raises(IllegalMove, match=f"{state} .*{to}"):
            moved(state, to)


def test_the_two_lifecycles_never_mix() -> None:
    checks = {State.UNKNOWN, State.UP, State.DOWN}
    for state, after in TRANSITIONS.items():
        assert {state in checks} == {each in checks for each in after}


@pytest.mark.parametrize(
    ("start", "results", "states"),
    [
        pytest.param(State.UP, "ffpff", "up up up up up", id="a pass in between begins the count anew"),
        pytest.param(State.UP, "fff", "up up down", id="fall"),
        pytest.param(State.DOWN, "pfpp", "down down down up", id="rise"),
        pytest.param(State.UNKNOWN, "p", "up", id="one pass confirms what is unknown"),
        pytest.param(State.UNKNOWN, "ffp", "unknown unknown up", id="unknown, then a pass"),
        pytest.param(State.UNKNOWN, "fff", "unknown unknown down", id="unknown, then down"),
        pytest.param(State.UP, "fffpp", "up up down down up", id="down and up again"),
    ],
)
def test_an_upstream_rises_and_falls_by_results_in_a_row(start: State, results: str, states: str) -> None:
    tally, found = Tally(start), []
    for result in results:
        tally = tally.after(result == "p", CHECK)
        found.append(tally.state.value)
    assert found == states.split()


@given(st.lists(st.booleans()), st.integers(1, 5), st.integers(1, 5))
def test_a_state_changes_only_after_as_many_results_against_it_as_are_asked_for(
    results: list[bool], rise: int, fall: int
) -> None:
    check = CHECK._replace(rise=rise, fall=fall)
    tally, seen = Tally(State.UP), list[bool]()
    for passed in results:
        before, tally = tally, tally.after(passed, check)
        seen.append(passed)
        needed = rise if before.state is State.DOWN else fall
        against = before.state is State.DOWN
        turned = len(seen) >= needed and all(each is against for each in seen[-needed:])
        assert (tally.state is not before.state) == (turned and before.run == needed - 1)
        assert 0 <= tally.run < max(rise, fall)


def test_each_hold_off_in_succession_is_twice_as_long_up_to_the_longest() -> None:
    assert [hold_off(times, 10, 300) for times in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]
    assert hold_off(10_000, 10, 300) == 300
