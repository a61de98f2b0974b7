"""How long is waited before what failed is tried again."""

import pytest

from slb.backoff import Backoff, asked_for


def pauses(backoff: Backoff, count: int, now: float = 100.0, **more: bool) -> list[float]:
    """Of so many failures, each as soon as it was tried again."""
    found = []
    for _ in range(count):
        found.append(backoff.pause(now, 0.1, 0.4, **more))
        now += found[-1]
    return found


def test_the_first_attempt_comes_at_once_and_each_pause_is_twice_as_long() -> None:
    assert pauses(Backoff(), 6) == [0.0, 0.1, 0.2, 0.4, 0.4, 0.4]


def test_a_time_of_calm_begins_anew() -> None:
    backoff = Backoff()
    pauses(backoff, 5)
    assert pauses(backoff, 2, now=200.0) == [0.0, 0.1]


def test_it_may_be_known_that_all_this_time_was_no_calm() -> None:
    backoff = Backoff()
    pauses(backoff, 3)
    assert pauses(backoff, 1, now=200.0, is_calm=False) == [0.4]
    assert pauses(backoff, 2, now=200.0, is_calm=True) == [0.0, 0.0]


def test_where_there_is_no_calm_at_all_the_first_attempt_may_wait_too() -> None:
    assert pauses(Backoff(0.1), 5, is_calm=False) == [0.1, 0.2, 0.4, 0.4, 0.4]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("Thu, 01 Jan 1970 00:17:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:40 GMT", 0.0),
        ("-1", 0.0),
        ("soon", 0.0),
        ("1" * 50, 0.0),
        ("", 0.0),
    ],
)
def test_how_long_a_server_asks_for(said: str, seconds: float) -> None:
    assert asked_for(said, now=1000.0) == seconds
