"""Foreign and broken entries found in Redis: counted as they are now, logged once each."""

from collections import Counter
from collections.abc import Mapping

import structlog

from slb.observe.metrics import Metrics

_LOGGED_LIMIT = 10_000
"""Entries remembered as logged; past it they are only counted."""

_log = structlog.get_logger()


class Skipped:
    """`metrics.skipped` by kind: `key` (no path or member in normal form), `type` (not a set or hash), `member`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[tuple[str, str, str]] = set()
        self._found: dict[str, Counter[str]] = {}

    def note(self, found: dict[str, Counter[str]], kind: str, key: str, entry: str = "") -> None:
        """Count one entry of `key` into `found`, and log it where it is new."""
        found.setdefault(key, Counter())[kind] += 1
        if (kind, key, entry) in self._logged or len(self._logged) >= _LOGGED_LIMIT:
            return
        self._logged.add((kind, key, entry))
        _log.warning("redis_entry_skipped", kind=kind, key=ascii(key)[:200], entry=ascii(entry)[:200])

    def replace(self, found: Mapping[str, Counter[str]]) -> None:
        """What a full sync found is all there is."""
        self._found = dict(found)
        self._show()

    def update(self, read: set[str], found: Mapping[str, Counter[str]]) -> None:
        """The keys `read` hold what is in `found`, and nothing else that is broken."""
        for key in read:
            self._found.pop(key, None)
        self._found.update(found)
        self._show()

    def _show(self) -> None:
        totals: Counter[str] = Counter(dict.fromkeys(self._metrics.skipped, 0))
        for counts in self._found.values():
            totals.update(counts)
        self._metrics.skipped = dict(totals)
