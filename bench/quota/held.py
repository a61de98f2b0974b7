"""Was the rate held? Judged from the book alone, by other sums than the router's."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate

from bench.quota.book import Entry
from bench.quota.models import MINUTE

SETTLING = 60.0
"""Seconds after the start that a long-run rate does not count: the first buckets are spent by then."""


def most_in_a_minute(entries: Sequence[Entry], minute: float = MINUTE) -> int:
    """The most tokens admitted in any 60 s window, each task counted when it was admitted with what could be known
    of it at the window's end: its estimate, or what it came to."""
    counted: dict[int, int] = {}
    inside: deque[int] = deque()
    ends: list[tuple[float, int]] = []
    most = total = 0
    ordered = sorted(entries, key=lambda each: each.admitted)
    for number, entry in enumerate(ordered):
        now = entry.admitted
        while inside and ordered[inside[0]].admitted <= now - minute:
            total -= counted.pop(inside.popleft())
        while ends and ends[0][0] <= now:
            ended = heappop(ends)[1]
            if ended in counted:
                total += ordered[ended].known(now) - counted[ended]
                counted[ended] = ordered[ended].known(now)
        inside.append(number)
        heappush(ends, (entry.ended, number))
        counted[number] = entry.estimate
        total += entry.estimate
        most = max(most, total)
    return most


def most_spent_in_a_minute(entries: Sequence[Entry], minute: float = MINUTE) -> int:
    """The same with what each task came to in the end, which nobody could know when it was admitted."""
    times = sorted((entry.admitted, entry.known(math.inf)) for entry in entries)
    sums = [0, *accumulate(tokens for _, tokens in times)]
    most = first = 0
    for at, (now, _) in enumerate(times):
        while times[first][0] <= now - minute:
            first += 1
        most = max(most, sums[at + 1] - sums[first])
    return most


def overdrawn(
    entries: Sequence[Entry], rate: float, burst: float, returned: Sequence[tuple[float, int]] = ()
) -> float:
    """By how many tokens the worst interval, of whatever length, had more than one bucket and what was refilled
    meanwhile: at most 0 where none had. `rate` is tokens a second. `returned`: when, and how many tokens were given
    back; an interval may have those besides.

    Counted in an interval is only what was certainly decided within it (asked and told in it), so that no doubt
    about the moment of a decision can make a fault.
    """
    begins = sorted({entry.asked for entry in entries})
    drawn = [0.0] * len(begins)
    backs = sorted(returned, reverse=True)
    worst = -math.inf
    for entry in sorted(entries, key=lambda each: each.admitted):
        while backs and backs[-1][0] <= entry.admitted:
            at, tokens = backs.pop()
            for place in range(bisect_right(begins, at)):
                drawn[place] -= tokens
        inside = bisect_right(begins, entry.asked)
        for place in range(inside):
            drawn[place] += entry.estimate
        most = max(drawn[place] + rate * begins[place] for place in range(inside))
        worst = max(worst, most - rate * entry.admitted - burst)
    return worst


def long_run(entries: Sequence[Entry], rate: float, until: float, since: float = SETTLING) -> float:
    """The rate at which tokens were admitted from `since` to `until`, as a share of `rate`."""
    tokens = sum(entry.known(math.inf) for entry in entries if since < entry.admitted <= until)
    return tokens / (rate * (until - since)) if until > since else math.nan


def idle(entries: Sequence[Entry], rate: float, burst: float, until: float) -> float:
    """The share of the quota, its first bucket included, that was left unused until then."""
    used = sum(entry.known(math.inf) for entry in entries if entry.admitted <= until)
    return max(0.0, 1 - used / (burst + rate * until))


def most_at_once(entries: Sequence[Entry]) -> int:
    """Tasks in flight, as their callers see it: from being told to having ended."""
    changes = [(entry.admitted, 1) for entry in entries] + [(entry.ended, -1) for entry in entries]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def in_use(entries: Sequence[Entry], slots: int, until: float) -> float:
    """The share of the slots that was taken until then, on average."""
    held = sum(min(entry.ended, until) - entry.admitted for entry in entries if entry.admitted < until)
    return held / (slots * until) if until else math.nan
