"""The load of a pool: what is seen at a look, and what counts at once."""

from math import inf

import pytest

from slb.balance.load_stats import NONE, WINDOW, LoadStats, PoolLoad
from tests.support.memory import kept_of
from tests.unit.balance.served import Clock, served


def test_the_mean_of_a_pool_goes_by_requests_and_forgets_upstreams_without_any_of_late(clock: Clock) -> None:
    busy, idle, silent = LoadStats(clock), LoadStats(clock), LoadStats(clock)
    pool = PoolLoad()
    pool.watch((busy, idle, silent))
    served(idle, clock, 0.1)
    clock.now += 30.0
    served(busy, clock, *[0.010] * 50)
    pool.look(clock.now)
    assert pool.latency == pytest.approx(0.010, rel=0.01)
    clock.now += 30.0
    pool.look(clock.now)
    assert pool.latency == 0.0


def test_what_begins_or_ends_between_two_looks_counts_at_once(clock: Clock) -> None:
    one, other, load = LoadStats(clock), LoadStats(clock), PoolLoad()
    load.watch((one, other))
    load.look(clock.now)
    assert load.total == 0.0
    tokens = [one.begin(), other.begin(), one.begin()]
    assert load.total == 3.0
    load.look(clock.now)
    assert load.total == 3.0
    for token, load_stats in zip(tokens, (one, other, one), strict=True):
        load_stats.end(token, completed=True)
    assert load.total == 0.0


def test_an_upstream_that_is_watched_no_more_counts_no_more(clock: Clock) -> None:
    one, other, load = LoadStats(clock), LoadStats(clock), PoolLoad()
    load.watch((one, other))
    one.begin()
    other.begin()
    load.watch((other,))
    load.look(clock.now)
    one.begin()
    assert load.total == 1.0


def test_an_upstream_of_two_routes_counts_in_both(clock: Clock) -> None:
    load_stats, loads = LoadStats(clock), (PoolLoad(), PoolLoad())
    for load in loads:
        load.watch((load_stats,))
    load_stats.begin()
    assert [load.total for load in loads] == [1.0, 1.0]


def test_what_has_ended_does_not_pile_up_where_no_figure_is_read(clock: Clock) -> None:
    asked, alone = LoadStats(clock), LoadStats(clock)
    for _ in range(1000):
        clock.now += 0.004
        for load_stats in (asked, alone):
            load_stats.end(load_stats.begin(), completed=True)
        asked.occupancy(clock.now)
    assert len(kept_of(alone, tuple)) < 100
    assert alone.completed() == asked.completed() == (1000, 0.0, 0.0)
    assert alone.occupancy(clock.now) == asked.occupancy(clock.now)


def test_in_flight_counts_at_once_and_latency_from_the_next_look(clock: Clock) -> None:
    fast, slow = LoadStats(clock), LoadStats(clock)
    pool = PoolLoad()
    pool.watch([fast, slow])
    pool.look(clock.now)
    served(slow, clock, 0.1, 0.1)
    served(fast, clock, *[0.001] * 4)
    slow.begin()
    assert pool.load_of(slow) == 1.0
    pool.look(clock.now)
    assert pool.load_of(slow) > 2.0
    slow.begin()
    assert pool.load_of(slow) == pytest.approx(2 * slow.weight(pool.latency, clock.now))


# -- room


def looked_at(clock: Clock, *took: float) -> tuple[PoolLoad, list[LoadStats]]:
    """A pool of upstreams that have served one request each, of so many seconds."""
    pool, load_stats = PoolLoad(), [LoadStats(clock) for _ in took]
    pool.watch(load_stats)
    for each, seconds in zip(load_stats, took, strict=True):
        served(each, clock, seconds)
    pool.look(clock.now)
    return pool, load_stats


@pytest.mark.parametrize("took", [0.001, 0.010, 0.050])
def test_room_is_how_many_in_flight_make_a_load_of_one_at_most(clock: Clock, took: float) -> None:
    pool, (load_stats, _) = looked_at(clock, took, 0.010)
    room = pool.room_of(load_stats)
    while load_stats.inflight <= room:
        assert pool.load_of(load_stats) <= 1.0
        load_stats.begin()
    assert pool.load_of(load_stats) > 1.0


def test_an_upstream_that_was_busy_with_what_has_ended_has_no_room_for_certain(clock: Clock) -> None:
    pool, (_, slow) = looked_at(clock, 0.001, 0.100)
    assert pool.room_of(slow) == NONE


def test_an_upstream_whose_requests_take_no_time_has_room_for_any(clock: Clock) -> None:
    pool, (load_stats, _) = looked_at(clock, 0.0, 0.010)
    assert pool.room_of(load_stats) == inf


# -- a batch


@pytest.mark.parametrize("took", [0.002, 0.030])
def test_an_idle_upstream_takes_a_batch_that_it_is_done_with_in_a_window(clock: Clock, took: float) -> None:
    pool, (load_stats, _) = looked_at(clock, took, took)
    clock.now += WINDOW
    pool.look(clock.now)
    begun = 0
    while pool.takes_batch(load_stats):
        load_stats.begin()
        begun += 1
    assert begun == int(WINDOW / took) + 1


def test_an_upstream_that_is_behind_with_a_batch_takes_no_more_of_it(clock: Clock) -> None:
    pool, (load_stats, _) = looked_at(clock, 0.010, 0.010)
    clock.now += WINDOW
    pool.look(clock.now)
    load_stats.begin()
    clock.now += 0.019
    assert pool.takes_batch(load_stats)
    clock.now += 0.002
    assert not pool.takes_batch(load_stats)


@pytest.mark.parametrize(("took", "takes"), [(0.017, True), (0.030, False)])
def test_one_that_is_slow_takes_no_batch(clock: Clock, took: float, takes: bool) -> None:
    pool, (slow, *_) = looked_at(clock, took, 0.010, 0.010, 0.010, 0.010)
    clock.now += WINDOW
    pool.look(clock.now)
    assert pool.takes_batch(slow) is takes


def test_one_that_was_busy_or_of_which_nothing_is_known_takes_no_batch(clock: Clock) -> None:
    pool, (_, slow) = looked_at(clock, 0.001, 0.100)
    assert not pool.takes_batch(slow)
    pool, (unknown,) = PoolLoad(), (LoadStats(clock),)
    pool.watch((unknown,))
    pool.look(clock.now)
    assert not pool.takes_batch(unknown)
