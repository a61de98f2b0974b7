"""Turns that are told one by one, and turns that are told as a number."""

from slb.health.flapping import Flapping, Turns


def told(*at: float, ours: bool = True) -> tuple[Turns, list[Flapping]]:
    """What is told of turns at these seconds, where somebody looks each second."""
    turns = Turns()
    found: list[Flapping | None] = []
    for second in range(int(max(at)) + 1):
        found.append(turns.over(float(second)))
        if second in at:
            found.append(turns.turned(float(second), ours))
    return turns, [each for each in found if each is not None]


def test_three_turns_are_told_one_by_one_and_the_fourth_begins_the_flapping() -> None:
    turns, found = told(10, 20, 30)
    assert (turns.flapping, found) == (False, [])
    turns, found = told(10, 20, 30, 72)
    assert (turns.flapping, found) == (True, [Flapping(4, 62.0, True)])


def test_turns_far_from_each_other_are_no_flapping() -> None:
    turns, found = told(*range(0, 10_000, 101))
    assert (turns.flapping, found) == (False, [])
    assert told(0, 100, 200, 300)[1] == [Flapping(4, 300.0, True)]


def test_what_goes_on_is_told_as_one_number_each_five_minutes() -> None:
    _, found = told(*range(0, 1000, 10))
    assert [(each.turns, each.seconds) for each in found] == [(4, 30), (29, 300), (30, 300), (30, 300)]


def test_after_five_minutes_without_a_turn_the_next_one_is_told_for_itself() -> None:
    turns, found = told(0, 1, 2, 3, 4, 700)
    assert (turns.flapping, found) == (False, [Flapping(4, 3.0, True), Flapping(1, 300.0, True)])


def test_flapping_that_ends_with_its_beginning_is_told_once() -> None:
    turns, found = told(0, 1, 2, 3, 303)
    assert (turns.flapping, found) == (False, [Flapping(4, 3.0, True)])


def test_the_last_one_to_turn_it_tells() -> None:
    turns = Turns()
    for second, ours in enumerate((True, True, True, False)):
        begun = turns.turned(float(second), ours)
    assert begun == Flapping(4, 3.0, False)
    turns.turned(4.0, False)
    turns.turned(5.0, True)
    assert turns.over(302.9) is None
    assert turns.over(303.5) == Flapping(2, 300.0, True)
    turns.turned(304.0, False)
    assert turns.over(603.1) == Flapping(1, 300.0, False), "the five minutes follow on the last ones"


def test_who_looks_late_tells_what_there_was_and_begins_anew() -> None:
    turns = Turns()
    for second in range(5):
        turns.turned(float(second), True)
    assert turns.over(5000.0) == Flapping(1, 300.0, True)
    assert turns.over(5000.0) is None
    assert not turns.flapping
