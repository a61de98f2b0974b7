"""Receivers of callbacks that are slow or do not answer, and how many callbacks to one are under way. Pure."""

from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

from slb.jobs.posting import WITHIN
from slb.jobs.webhook import LONGEST

MOST_TO_SILENT, MOST_TO_SLOW = 4, 16
"""Callbacks at once to a receiver that did not answer the last one, or took long to: each holds its place for up to
half a minute, and without a bound one receiver would have the places of all others."""
SLOW = 1.0
"""Seconds from which on an answer took long."""
_MOST_KNOWN = 1_000
"""Receivers that are slow or silent: their names are a stranger's. The one known first is forgotten first."""


def receiver_of(url: str) -> str:
    """Host and port, as they are written, without a user. Raises ValueError."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


@dataclass(slots=True)
class _Slow:
    """`most`: places that it may have; `took`: seconds of its last callback; `filled`: until when they are taken by
    those that were put off."""

    most: int
    took: float
    filled: float = 0.0


class Receivers:
    """Those that one instance sends callbacks to."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._slow: dict[str, _Slow] = {}

    def put_off(self, receiver: str, now: float) -> float:
        """Seconds for which a callback is put off: 0 where it has a place; else until one is free for it, behind
        those that were put off before. So each is looked at about once for each that is sent."""
        slow = self._slow.get(receiver)
        if slow is None or self._under_way[receiver] < slow.most:
            return 0.0
        slow.filled = min(max(slow.filled, now) + slow.took / slow.most, now + LONGEST)
        return slow.filled - now

    def begins(self, receiver: str) -> None:
        """One is sent."""
        self._under_way[receiver] += 1

    def ended(self, receiver: str, took: float | None) -> None:
        """One that was sent: answered after so many seconds, or not at all (None)."""
        self._under_way[receiver] -= 1
        if not self._under_way[receiver]:
            del self._under_way[receiver]
        if took is not None and took < SLOW:
            self._slow.pop(receiver, None)
            return
        slow = self._slow.setdefault(receiver, _Slow(0, 0.0))
        slow.most, slow.took = (MOST_TO_SILENT, WITHIN) if took is None else (MOST_TO_SLOW, took)
        if len(self._slow) > _MOST_KNOWN:
            del self._slow[next(iter(self._slow))]
