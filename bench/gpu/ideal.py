"""The yardstick: one queue in front of all pods, so that none is idle while a request waits.

Where service times differ much, who lets the short ones pass has a lower median than it, at the cost of the tail.
"""

from collections.abc import Iterable
from heapq import heapify, heapreplace


def one_queue(arrivals: Iterable[float], services: Iterable[float], pods: int) -> list[float]:
    """Latency of each request where each, first come first served, takes the pod that is free first.

    Seconds; `arrivals` ascend. No time passes on the way.
    """
    free_at = [0.0] * pods
    heapify(free_at)
    latencies = []
    for arrival, service in zip(arrivals, services, strict=True):
        ends = max(arrival, free_at[0]) + service
        heapreplace(free_at, ends)
        latencies.append(ends - arrival)
    return latencies
