"""Simulated time."""

import pytest

from bench.lab.model import Schedule


def test_things_happen_in_order_of_time_and_equals_as_they_were_scheduled() -> None:
    schedule, seen = Schedule(), list[tuple[str, float]]()
    for name, when in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        schedule.at(when, lambda name=name: seen.append((name, schedule.clock())))  # type: ignore[misc]
    schedule.run(5.0)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0)]
    assert schedule.now == 5.0


def test_a_run_ends_at_its_time_and_the_next_goes_on_from_there() -> None:
    schedule, seen = Schedule(), list[float]()
    for when in (1.0, 2.0, 2.5):
        schedule.at(when, lambda: seen.append(schedule.now))
    schedule.run(2.0)
    assert seen == [1.0, 2.0]
    schedule.run(3.0)
    assert seen == [1.0, 2.0, 2.5]


def test_what_comes_of_an_event_happens_in_the_same_run() -> None:
    schedule, seen = Schedule(), list[float]()

    def again() -> None:
        seen.append(schedule.now)
        if schedule.now < 3:
            schedule.at(schedule.now + 1, again)

    schedule.at(1.0, again)
    schedule.drain()
    assert seen == [1.0, 2.0, 3.0]


def test_nothing_is_scheduled_in_the_past() -> None:
    schedule = Schedule()
    schedule.run(2.0)
    with pytest.raises(ValueError, match=r"1\.0 is before 2\.0"):
        schedule.at(1.0, schedule.clock)  # type: ignore[arg-type]
