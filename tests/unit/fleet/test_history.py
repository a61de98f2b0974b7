"""The last hour of one process."""

from types import SimpleNamespace
from typing import Any

import pytest

from slb.fleet.history import FIGURES, POINTS, STEP, History, read_history
from slb.observe.traffic import Traffic


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(traffic: Traffic, status: int, seconds: float) -> None:
    made: Any = SimpleNamespace(
        route=SimpleNamespace(path="/p"), started=1.0, sent_at=1.0, first_byte_at=0.0, bytes_in=0, bytes_out=0
    )
    traffic.request_ended(made, "a", status, "", 1.0 + seconds)


async def test_a_point_has_what_has_happened_since_the_one_before() -> None:
    traffic, clock = Traffic(), Clock()
    request(traffic, 200, 0.3)
    history = History(traffic, lambda: 7, clock)
    await history.take()
    for _ in range(9):
        request(traffic, 200, 0.02)
    request(traffic, 502, 0.02)
    clock.now += STEP
    await history.take()
    clock.now += STEP
    await history.take()
    shown = history.shown("one")
    assert shown["name"] == "one"
    assert shown["until"] == 1010.0
    assert (shown["requests"], shown["errors"], shown["inflight"]) == ([2.0, 0.0], [0.2, 0.0], [7, 7])
    assert 0.01 < shown["p50"][0] <= shown["p99"][0] <= 0.025
    assert shown["p50"][1] is None


async def test_it_is_bounded_and_has_a_place_for_each_moment_that_was_missed() -> None:
    clock = Clock()
    history = History(Traffic(), lambda: 0, clock)
    await history.take()
    for _ in range(3):
        clock.now += STEP
        await history.take()
    clock.now += 4 * STEP
    await history.take()
    assert len(history.shown("one")["requests"]) == 7
    for _ in range(POINTS):
        clock.now += STEP
        await history.take()
    assert {len(history.shown("one")[each]) for each in FIGURES} == {POINTS}


async def test_a_clock_that_is_set_back_makes_no_harm() -> None:
    clock, traffic = Clock(), Traffic()
    history = History(traffic, lambda: 0, clock)
    await history.take()
    clock.now -= 3600
    request(traffic, 200, 0.02)
    await history.take()
    assert history.shown("one")["requests"] == [0.2]


async def test_one_without_a_point_shows_empty_figures() -> None:
    shown = History(Traffic(), lambda: 0).shown("one")
    assert {each: shown[each] for each in FIGURES} == {each: [] for each in FIGURES}


@pytest.mark.parametrize("found", [None, [], {"name": "x"}, {"name": 1}])
def test_what_is_no_history_is_refused(found: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        read_history(found)
