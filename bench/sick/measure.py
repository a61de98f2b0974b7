"""What was seen of a sick server from outside: by the servers' logs and the clients' results, whatever is between.

A server's fair share is what all servers together get, divided by their number. Times are seconds of one clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.sick.servers import Visit

LEFT_SHARE, LEFT_SECONDS = 0.1, 5.0
BACK_SHARE, BACK_SECONDS = 0.5, 3.0
WRONG_SHARE, WRONG_SECONDS = 0.2, 3.0
LESS_BUSY = 0.5
STEPS_A_SECOND = 4
LEAST_FAIR = 15  # requests: in a window with fewer, chance alone leaves a server out


@dataclass(frozen=True)
class Sickness:
    """Of one server, by its number, between two times; `fair`: its fair share, in requests a second. `hangs`: it
    answers nobody, so that all who count requests in flight ask it seldom."""

    server: int
    since: float
    until: float
    fair: float
    hangs: bool = False

    @property
    def allowed(self) -> int:
        """Requests in 5 s that one may get which is left out: a tenth of its fair share; a single probe where it
        hangs."""
        return 1 if self.hangs else max(1, int(LEFT_SHARE * self.fair * LEFT_SECONDS))


@dataclass(frozen=True)
class Stretch:
    """A server was left out from one time to another."""

    server: int
    begin: float
    end: float


def left_out_after(sickness: Sickness, arrivals: Sequence[float]) -> float | None:
    """Seconds until the sick server was left out: until the last request of the last 5 s in which it got more than
    is `allowed`. None where fewer than 5 s of its sickness were left then. `arrivals` ascend."""
    seen = [arrival for arrival in arrivals if sickness.since <= arrival < sickness.until]
    last = sickness.since
    for first, beyond in zip(seen, seen[sickness.allowed :], strict=False):
        if beyond - first < LEFT_SECONDS:
            last = beyond
    return last - sickness.since if last + LEFT_SECONDS <= sickness.until else None


def back_after(sickness: Sickness, arrivals: Sequence[float]) -> float | None:
    """Seconds from when it is well again until the beginning of the first 3 s in which it got half of its fair
    share. None where there are none. `arrivals` ascend."""
    needed = math.ceil(BACK_SHARE * sickness.fair * BACK_SECONDS)
    seen = [arrival for arrival in arrivals if arrival >= sickness.until]
    for first, enough in zip(seen, seen[needed - 1 :], strict=False):
        if enough - first < BACK_SECONDS:
            return first - sickness.until
    return None


def left_out(logs: Sequence[Sequence[Visit]], begin: float, end: float) -> list[Stretch]:
    """Where a server got less than a fifth of its fair share for 3 s or more, though it had less to do than half of
    what the others had: a server that works off one long request is not left out. At low rates the 3 s are so many
    more that the fair share is 15 requests."""
    grid = _Grid(begin, int((end - begin) * STEPS_A_SECOND))
    arrived = [grid.arrivals(log) for log in logs]
    busy = [grid.busy(log) for log in logs]
    total = sum(sums[-1] for sums in arrived)
    slowest = LEAST_FAIR * len(logs) * grid.steps / max(1.0, total)
    width = max(round(WRONG_SECONDS * STEPS_A_SECOND), math.ceil(slowest))
    found = list[Stretch]()
    for server in range(len(logs)):
        others = [number for number in range(len(logs)) if number != server]
        for at in range(grid.steps - width + 1):
            got, had = ([sums[at + width] - sums[at] for sums in each] for each in (arrived, busy))
            fair = sum(got) / len(logs)
            works = LESS_BUSY * fmean(had[other] for other in others) if others else math.inf
            if got[server] < WRONG_SHARE * fair and had[server] < works:
                found.append(Stretch(server, grid.time(at), grid.time(at + width)))
    return _merged(found)


def _merged(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Those of one server that overlap are one. They ascend by server and beginning."""
    merged = list[Stretch]()
    for each in stretches:
        if merged and merged[-1].server == each.server and each.begin <= merged[-1].end:
            merged[-1] = Stretch(each.server, merged[-1].begin, each.end)
        else:
            merged.append(each)
    return merged


@dataclass(frozen=True)
class _Grid:
    """So many steps from `begin` on. Sums run from 0: item n is that of the first n steps."""

    begin: float
    steps: int

    def time(self, step: int) -> float:
        return self.begin + step / STEPS_A_SECOND

    def arrivals(self, log: Sequence[Visit]) -> list[float]:
        counts = [0.0] * self.steps
        for visit in log:
            step = math.floor((visit.arrived - self.begin) * STEPS_A_SECOND)
            if 0 <= step < self.steps:
                counts[step] += 1
        return _sums(counts)

    def busy(self, log: Sequence[Visit]) -> list[float]:
        """Seconds of slots in use."""
        end = self.time(self.steps)
        changes = [0.0] * self.steps
        for visit in log:
            if visit.began is None:
                continue
            edges = max(visit.began, self.begin), min(end if visit.ended is None else visit.ended, end)
            first, last = (math.floor((edge - self.begin) * STEPS_A_SECOND) for edge in edges)
            for step in range(first, min(last + 1, self.steps)):
                inside = min(edges[1], self.time(step + 1)) - max(edges[0], self.time(step))
                changes[step] += max(0.0, inside)
        return _sums(changes)


def _sums(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums
