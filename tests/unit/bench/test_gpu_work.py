"""The work that every balancer gets, and the ideal it is compared with."""

import statistics
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gpu.work import (
    Shape,
    exact_counts,
    log_normal,
    one_queue,
    poisson_arrivals,
    poisson_work,
    read_trace,
    trace_work,
)
from bench.processes import BenchError

SHAPE = Shape(pods=20, proxies=10, seconds=100, seed=7)
TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.9799600,3180,0
2023-11-16 18:17:07.9799600,110,30
2023-11-16 18:19:03.9799600,110,500
"""
Requests = st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 5)), min_size=1, max_size=40)


def test_one_pod_serves_one_after_another() -> None:
    assert one_queue([0, 1, 10], [4, 2, 1], 1) == [4, 5, 1]


def test_a_request_takes_the_pod_that_is_free_first() -> None:
    assert one_queue([0, 0, 1, 1], [5, 3, 1, 1], 2) == [5, 3, 3, 4]


@given(Requests, st.integers(1, 5))
def test_the_ideal_never_has_an_idle_pod_while_a_request_waits(
    requests: list[tuple[float, float]], pods: int
) -> None:
    arrivals = sorted(arrival for arrival, _ in requests)
    services = [service for _, service in requests]
    latencies = one_queue(arrivals, services, pods)
    spans = [
        (arrival + latency - service, arrival + latency)
        for arrival, latency, service in zip(arrivals, latencies, services, strict=True)
    ]
    for arrival, (begins, _) in zip(arrivals, spans, strict=True):
        assert begins >= arrival - 1e-9
        waited_from = (arrival + begins) / 2
        busy = sum(other < waited_from + 1e-9 and waited_from < ends + 1e-9 for other, ends in spans)
        assert begins - arrival < 1e-6 or busy >= pods


def test_by_counts_a_request_is_bound_at_once_and_waits_though_another_pod_frees_first() -> None:
    arrivals, services = [0, 0, 1, 1], [5, 3, 1, 1]
    assert sorted(exact_counts(arrivals, services, 2, Random(1))) == [3, 3, 5, 5]
    assert sorted(one_queue(arrivals, services, 2)) == [3, 3, 4, 5]


def test_by_counts_an_idle_pod_is_taken_before_a_busy_one() -> None:
    assert exact_counts([0, 1, 2, 6], [5, 5, 5, 1], 3, Random(1)) == [5, 5, 5, 1]


def test_the_same_seed_is_the_same_work_and_another_is_not() -> None:
    first, again = (poisson_work(SHAPE, 0.85, 0.2) for _ in range(2))
    other = poisson_work(Shape(20, 10, 100, seed=8), 0.85, 0.2)
    assert first == again
    assert first.arrivals != other.arrivals


def test_poisson_work_has_the_load_it_was_given() -> None:
    work = poisson_work(SHAPE, 0.85, 0.2)
    assert len(work.arrivals) == 0.85 * 20 / 0.2 * 100
    assert sum(work.services) / (20 * 100) == pytest.approx(0.85, rel=0.02)
    assert list(work.arrivals) == sorted(work.arrivals)
    assert work.arrivals[-1] <= 100


def test_gaps_of_poisson_arrivals_vary_as_much_as_they_are_long() -> None:
    arrivals = poisson_arrivals(Random(1), rate=100, seconds=200)
    gaps = [after - before for before, after in pairwise(arrivals)]
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.05)


def test_log_normal_durations_have_their_mean_and_coefficient_of_variation() -> None:
    values = log_normal(Random(1), mean=0.2, cv=0.25, count=20_000)
    assert statistics.mean(values) == pytest.approx(0.2, rel=0.01)
    assert statistics.stdev(values) / statistics.mean(values) == pytest.approx(0.25, rel=0.03)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_a_trace_is_read_as_seconds_from_its_start_and_tokens(trace: Path) -> None:
    assert read_trace(trace) == [(0, 4808, 10), (1, 3180, 0), (4, 110, 30), (120, 110, 500)]


@pytest.mark.parametrize("text", ["", "TIMESTAMP,GeneratedTokens\nnoon,3\n", "a,b\n1,2\n"])
def test_what_is_no_trace_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(text)
    with pytest.raises(BenchError, match=r"odd\.csv"):
        read_trace(path)


def test_a_trace_is_compressed_to_the_load_and_keeps_its_shape(trace: Path) -> None:
    work = trace_work("x", read_trace(trace)[:3], Shape(1, 2, 100, 1), load=0.5, mean=2.0)
    assert sum(work.services) / work.arrivals[-1] == pytest.approx(0.5)
    assert [arrival / work.arrivals[-1] for arrival in work.arrivals] == pytest.approx([0, 0.25, 1])
    assert [service / work.services[0] for service in work.services] == pytest.approx([1, 0.1, 3])


def test_of_a_long_trace_as_much_is_taken_as_there_is_time_for(trace: Path) -> None:
    work = trace_work("x", read_trace(trace), Shape(1, 2, seconds=12, seed=1), load=0.5, mean=2.0)
    assert len(work.arrivals) == 3
    assert work.arrivals[-1] == 12
