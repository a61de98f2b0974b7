"""How busy an upstream is found, at times the test sets."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.load_stats import BUCKET, MOST, WINDOW, LoadStats, PoolLoad
from slb.balance.upstream import Handle
from tests.unit.balance.served import START, Clock, served
from tests.unit.balance.upstreams import upstream

# -- occupancy


def test_a_thousand_hits_of_a_millisecond_in_a_second_occupy_one(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, *[0.001] * 1000)
    assert load_stats.occupancy(clock.now) == pytest.approx(1.0, abs=BUCKET / WINDOW)
    assert load_stats.inflight == 0


def test_two_at_a_time_occupy_two(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    for _ in range(100):
        tokens = load_stats.begin(), load_stats.begin()
        clock.now += 0.003
        for token in tokens:
            load_stats.end(token, completed=True)
    assert load_stats.occupancy(clock.now) == pytest.approx(2.0, abs=2 * BUCKET / WINDOW)


def test_of_a_long_request_only_what_lies_in_the_window_counts(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, 100.0)
    assert 1.0 - BUCKET / WINDOW <= load_stats.occupancy(clock.now) <= 1.0


def test_busy_time_stands_where_it_was_spent_and_leaves_the_window_bucket_by_bucket(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, 3 * BUCKET)
    found = []
    for number in range(7):
        clock.now = START + number * BUCKET + 3 * BUCKET + 0.001
        found.append(round(load_stats.occupancy(clock.now) * WINDOW / BUCKET))
    assert found == [3, 3, 2, 1, 0, 0, 0]


@given(
    spans=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.4)), max_size=20),
    wait=st.floats(0, 0.3),
)
def test_occupancy_is_the_busy_time_that_overlaps_the_buckets(
    spans: list[tuple[float, float]], wait: float
) -> None:
    clock = Clock()
    load_stats = LoadStats(clock)
    events = sorted((at, at + length) for at, length in spans)
    tokens = {}
    moments = sorted({moment for event in events for moment in event})
    for moment in moments:
        clock.now = START + moment
        for number, (began, _) in enumerate(events):
            if began == moment:
                tokens[number] = load_stats.begin()
        for number, (_, ended) in enumerate(events):
            if ended == moment:
                load_stats.end(tokens.pop(number), completed=True)
    clock.now = START + (moments[-1] if moments else 0.0) + wait
    first = (int(clock.now / BUCKET) - 4) * BUCKET
    expected = sum(max(0.0, START + ended - max(START + began, first)) for began, ended in events)
    assert load_stats.occupancy(clock.now) * WINDOW == pytest.approx(expected, abs=1e-6)


def test_after_a_long_silence_nothing_is_left(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, 0.1)
    clock.now += 1000.0
    assert load_stats.occupancy(clock.now) == 0.0


# -- latency


def test_latency_is_the_mean_of_late(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    assert load_stats.latency is None
    served(load_stats, clock, 0.010)
    assert load_stats.latency == pytest.approx(0.010)
    served(load_stats, clock, *[0.030] * 500)
    assert load_stats.latency == pytest.approx(0.030, rel=0.01)


def test_a_hold_that_goes_over_to_the_next_request_is_a_latency_for_each(clock: Clock) -> None:
    live, load_stats = upstream("a"), LoadStats(clock)
    live.load_stats = load_stats
    handle = Handle(live)
    for _ in range(4):
        clock.now += 0.010
        handle.goes_over()
    assert (live.inflight, load_stats.inflight) == (1, 1)
    assert load_stats.latency == pytest.approx(0.010)
    handle.release(completed=False)
    handle.goes_over()
    assert (live.inflight, load_stats.inflight) == (0, 0)


def test_what_failed_or_was_abandoned_counts_for_occupancy_and_not_for_latency(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, 0.050)
    served(load_stats, clock, *[0.001] * 100, completed=False)
    assert load_stats.latency == pytest.approx(0.050)
    assert load_stats.occupancy(clock.now) > 0.8


# -- effective load


def test_the_seeds_two_pods(clock: Clock) -> None:
    """Ten hits of a millisecond against three misses that are open; the pool's mean is a millisecond."""
    a, b = LoadStats(clock), LoadStats(clock)
    served(a, clock, *[0.001] * 15)
    served(b, clock, 0.060)
    clock.now = START + 0.1
    for _ in range(3):
        b.begin()
    assert a.effective_load(0.001, clock.now) == pytest.approx(0.1)
    assert b.effective_load(0.001, clock.now) == pytest.approx(15.0)


def test_one_as_fast_as_the_pool_counts_what_it_has(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, 0.010)
    clock.now += 1.0
    load_stats.begin()
    load_stats.begin()
    assert load_stats.effective_load(0.010, clock.now) == pytest.approx(2.0)
    assert load_stats.effective_load(0.005, clock.now) == pytest.approx(4.0)
    assert load_stats.effective_load(0.020, clock.now) == pytest.approx(1.0)


def test_an_upstream_that_has_never_completed_anything_and_is_not_late_counts_what_it_has(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    load_stats.begin()
    assert load_stats.effective_load(0.010, clock.now + 0.1) == 1.0


def test_an_idle_upstream_has_no_load_however_slow_it_was(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, 5.0)
    assert load_stats.effective_load(0.001, clock.now + 1.0) == 0.0


# -- stuck


def test_a_cold_upstream_that_answers_nothing_is_stuck_after_the_window(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    load_stats.begin()
    assert not load_stats.is_stuck(0.001, START + WINDOW - 0.001)
    assert load_stats.is_stuck(0.001, START + WINDOW + 0.001)
    assert load_stats.effective_load(0.001, START + 1.0) == MOST


def test_a_warm_upstream_that_freezes_is_stuck_too(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, *[0.001] * 100)
    frozen_at = clock.now
    load_stats.begin()
    load_stats.begin()
    assert load_stats.effective_load(0.001, frozen_at + 0.140) == pytest.approx(2.0)
    assert load_stats.effective_load(0.001, frozen_at + 0.160) == pytest.approx(2 * MOST)


def test_in_a_slow_pool_an_upstream_has_twice_the_pools_latency(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    load_stats.begin()
    assert not load_stats.is_stuck(10.0, START + 19.9)
    assert load_stats.is_stuck(10.0, START + 20.1)


def test_in_a_slow_pool_none_looks_stuck_because_none_has_completed_anything_for_a_while(clock: Clock) -> None:
    """Ten seconds each, and a lull of twenty."""
    pool = [LoadStats(clock) for _ in range(4)]
    for load_stats in pool:
        served(load_stats, clock, 10.0)
    clock.now += 20.0
    pool[0].begin()
    clock.now += 1.0
    load = PoolLoad()
    load.watch(pool)
    load.look(clock.now)
    assert load.latency == pytest.approx(10.0)
    assert load.total == pytest.approx(1.0)


def test_a_slow_upstreams_latency_is_that_of_several_requests(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    served(load_stats, clock, *[10.0] * 20, 20.0)
    assert load_stats.latency is not None
    assert load_stats.latency < 13.0


def test_an_upstream_that_goes_on_completing_is_not_stuck_with_one_request_that_takes_long(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    load_stats.begin()
    for _ in range(20):
        served(load_stats, clock, 0.1)
        assert not load_stats.is_stuck(0.001, clock.now + 0.1)


def test_a_failure_is_no_sign_of_life(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    load_stats.begin()
    for _ in range(4):
        served(load_stats, clock, 0.05, completed=False)
    assert load_stats.is_stuck(0.001, clock.now)


def test_it_is_stuck_no_more_when_it_completes_one(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    token = load_stats.begin()
    load_stats.begin()
    clock.now += 3.0
    assert load_stats.is_stuck(0.001, clock.now)
    load_stats.end(token, completed=True)
    assert not load_stats.is_stuck(0.001, clock.now)


def test_the_memory_of_a_slow_upstream_is_as_long_as_eight_of_its_requests_take(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    for _ in range(3):
        served(load_stats, clock, 10.0)
    _, seconds, count = load_stats.lately(clock.now)
    _, left, remembered = load_stats.lately(clock.now + 80.0)
    assert (left / seconds, remembered / count) == pytest.approx((exp(-1), exp(-1)))


def test_a_request_that_lasts_is_in_flight_and_no_sign_of_being_stuck(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    pool = PoolLoad()
    pool.watch([load_stats])
    tunnel = load_stats.begin()
    clock.now += 0.001
    load_stats.lasts(tunnel)
    assert load_stats.latency == pytest.approx(0.001)
    clock.now += 1.0
    load_stats.lasts(tunnel)
    clock.now += 3600.0
    assert load_stats.inflight == 1
    assert load_stats.effective_load(0.001, clock.now) == pytest.approx(1.0)
    load_stats.begin()
    clock.now += 1.0
    assert load_stats.effective_load(0.001, clock.now) == 2 * MOST  # of the other one
    load_stats.end(tunnel, completed=True)
    assert (load_stats.inflight, pool.inflight, load_stats.completed()[0]) == (1, 1, 1)
    assert load_stats.latency == pytest.approx(0.001)  # until it was answered: an hour would be no latency
    assert load_stats.occupancy(clock.now) == pytest.approx(1.0, rel=0.3)  # of the last window, all of it


def test_an_answer_that_lasts_is_a_sign_of_life_whatever_ended_before_it_and_was_not_read_yet(
    clock: Clock,
) -> None:
    load_stats = LoadStats(clock)
    load_stats.begin()
    served(load_stats, clock, 0.001)
    clock.now += 1.0
    load_stats.lasts(load_stats.begin())
    assert not load_stats.is_stuck(0.001, clock.now + 0.1)
    assert load_stats.is_stuck(0.001, clock.now + WINDOW + 0.001)


def test_an_upstream_that_sends_part_of_an_answer_is_not_stuck_until_it_stops(clock: Clock) -> None:
    load_stats = LoadStats(clock)
    token = load_stats.begin()
    for _ in range(10):
        clock.now += 0.1
        load_stats.progresses()
        assert not load_stats.is_stuck(0.001, clock.now + 0.1)
    assert load_stats.is_stuck(0.001, clock.now + WINDOW + 0.001)
    assert not load_stats.is_stuck(1.0, clock.now + WINDOW + 0.001)
    load_stats.end(token, completed=True)
    assert load_stats.latency == pytest.approx(1.0)


# -- handles


def test_a_handle_counts_once(clock: Clock) -> None:
    live = upstream("a")
    live.load_stats = LoadStats(clock)
    handle = Handle(live)
    assert live.load_stats.inflight == live.inflight == 1
    clock.now += 0.25
    handle.release()
    handle.release()
    assert live.load_stats.inflight == live.inflight == 0
    assert live.load_stats.latency == pytest.approx(0.25)


def test_a_handle_from_before_there_were_signals_does_not_count(clock: Clock) -> None:
    live = upstream("a")
    handle = Handle(live)
    live.load_stats = LoadStats(clock)
    handle.release()
    assert live.load_stats.inflight == 0
    assert live.load_stats.latency is None
