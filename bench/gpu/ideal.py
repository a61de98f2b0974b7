"""The yardsticks, computed: what one queue, and exact counts, would make of the same work without any delay."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from random import Random


def one_queue(arrivals: Sequence[float], services: Sequence[float], pods: int) -> list[float]:
    """Latency of each request where each, first come first served, takes the pod that is free first.

    Seconds; `arrivals` ascend. No pod is idle while a request waits. Where service times differ much, who lets the
    short ones pass has a lower median than this, at the cost of the tail.
    """
    free_at = [0.0] * pods
    heapify(free_at)
    latencies = []
    for arrival, service in zip(arrivals, services, strict=True):
        ends = max(arrival, free_at[0]) + service
        heapreplace(free_at, ends)
        latencies.append(ends - arrival)
    return latencies


def exact_counts(arrivals: Sequence[float], services: Sequence[float], pods: int, rng: Random) -> list[float]:
    """Latency of each request where each is bound at once to a pod with the fewest in flight, ties at random, and
    waits for that pod: the best that counts alone can do."""
    free_at, in_flight = [0.0] * pods, [0] * pods
    ends: list[tuple[float, int]] = []
    latencies = []
    for arrival, service in zip(arrivals, services, strict=True):
        while ends and ends[0][0] <= arrival:
            in_flight[heappop(ends)[1]] -= 1
        fewest = min(in_flight)
        pod = rng.choice([pod for pod, count in enumerate(in_flight) if count == fewest])
        free_at[pod] = max(arrival, free_at[pod]) + service
        in_flight[pod] += 1
        heappush(ends, (free_at[pod], pod))
        latencies.append(free_at[pod] - arrival)
    return latencies
