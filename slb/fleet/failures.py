"""Failures of the last hour at all processes: how many since when, and since when a route fails. Pure.

Every process counts whether anybody looks or not (hours.py), in points of 30 s: so a beginning is that of a point,
and a number may have up to 30 s too much at its early end.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slb.fleet import hours
from slb.fleet.hours import POINTS, Failures

LEAST_SHARE = 0.05
LEAST_ERRORS = 3
"""Of the requests of a minute: below these nothing is said to fail."""
MOST_AT_ONCE = 32
"""Names in one question."""
_MOST = 256
"""Names of which failures are kept."""
_AGAIN = 5.0
"""Seconds after which a name is asked for again."""
_MINUTE = 60.0


class _Sums:
    """Of one route or upstream at all processes. Places are points, the last of which has not ended; `began` and
    `share` as of `FailureHistory`."""

    def __init__(self, told: Iterable[Failures]) -> None:
        self.told = list(told)
        self._last = max(each.until for each in self.told) + 1
        self._asked, self._failed = [0] * (POINTS + 1), [0] * (POINTS + 1)

    def add_up(self) -> Iterator[None]:
        for each in self.told:
            first = POINTS + each.until + 2 - len(each.asked) - self._last
            for place, (asked, failed) in enumerate(zip(each.asked, each.failed, strict=True), first):
                if place >= 0:
                    self._asked[place] += asked
                    self._failed[place] += failed
            yield
        self.share = self._share(POINTS) if self._is_trouble(POINTS) else None
        self.began = self._begins() if self.share is not None else None

    def failed(self, since: float) -> int:
        first = int(since // hours.STEP) + 1 - self._last + POINTS
        return sum(self._failed[max(0, first) :])

    def _begins(self) -> float:
        place = POINTS
        while place > 1 and self._is_trouble(place - 1):
            place -= 1
        if self._failed[place - 1] > LEAST_SHARE * self._asked[place - 1]:
            place -= 1
        return float((self._last - POINTS + place - 1) * hours.STEP)

    def _share(self, place: int) -> float:
        """Of the requests of this point and the one before."""
        failed = sum(self._failed[place - 1 : place + 1])
        return failed / max(failed, sum(self._asked[place - 1 : place + 1]), 1)

    def _is_trouble(self, place: int) -> bool:
        enough = sum(self._failed[place - 1 : place + 1]) >= LEAST_ERRORS
        return enough and self._share(place) >= LEAST_SHARE


class FailureHistory:
    """What processes have told of those that fail, by name and process."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, Failures]] = {}
        self._sums: dict[str, _Sums] = {}
        self._asked_at: dict[str, float] = {}

    def wanted(self, names: Iterable[str], now: float) -> Sequence[str]:
        """Those of `names` to be asked for now, the new ones first. All others are forgotten."""
        kept = dict.fromkeys(sorted(set(names))[:_MOST])  # routes come first, by their slash
        for each in (self._told, self._sums, self._asked_at):
            for name in each.keys() - kept:
                del each[name]
        due = [name for name in kept if not 0.0 <= now - self._asked_at.get(name, -math.inf) < _AGAIN]
        return sorted(due, key=lambda name: self._asked_at.get(name, -math.inf))[:MOST_AT_ONCE]

    def take(self, names: Iterable[str], told: Mapping[str, Mapping[str, Failures]], now: float) -> Iterator[None]:
        """What processes have answered to a question for these names, in steps. What one told before counts until
        it answers again."""
        for name in names:
            self._asked_at[name] = now
            found = self._told.setdefault(name, {})
            possible = now // hours.STEP + 1
            for id_, of_process in told.items():
                if name in of_process and of_process[name].until <= possible:
                    found[id_] = of_process[name]
            last = max((each.until for each in found.values()), default=0)
            self._told[name] = found = {id_: each for id_, each in found.items() if each.until > last - POINTS}
            if found:
                sums = _Sums(found.values())
                yield from sums.add_up()
                self._sums[name] = sums

    def failed(self, name: str, since: float | None, now: float) -> int:
        """How many requests have failed since then, in the last hour at most; None: in the last minute."""
        sums = self._sums.get(name)
        return 0 if sums is None else sums.failed(now - _MINUTE if since is None else since)

    def knows(self, name: str) -> bool:
        """Whether any process has told of it."""
        return name in self._sums

    def share(self, name: str) -> float | None:
        """Of the requests of the last minute that failed; None where nothing is said to fail."""
        sums = self._sums.get(name)
        return None if sums is None else sums.share

    def began(self, name: str) -> float | None:
        """Since when it has failed without a minute in which it did not, in seconds since 1970; None where it does
        not fail."""
        sums = self._sums.get(name)
        return None if sums is None else sums.began
