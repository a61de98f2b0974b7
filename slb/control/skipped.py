"""Foreign and broken entries found in Redis: counted as they are now, logged once each."""

from collections import Counter

import structlog

from slb.observe.metrics import Metrics

_MOST = 10_000
"""Entries remembered as logged, and keys with what is wrong with them; others are only counted."""

_SHOWN = 200
"""Characters of a name or an entry that stand in the log."""

_log = structlog.get_logger()


class Found:
    """What one reading met: of each key how many entries of a kind, and in all."""

    def __init__(self) -> None:
        self.by_key: dict[str, Counter[str]] = {}
        self.totals: Counter[str] = Counter()

    def add(self, key: str, counts: Counter[str]) -> None:
        if key in self.by_key or len(self.by_key) < _MOST:
            self.by_key.setdefault(key, Counter()).update(counts)
        self.totals.update(counts)

    def drop(self, key: str) -> None:
        self.totals.subtract(self.by_key.pop(key, Counter()))


class Skipped:
    """`metrics.redis.skipped` by kind: `key` (no path or member in normal form), `type` (it is
    not what it should be), `large` (a set that is not read, a hash read for its known fields), `member`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[tuple[str, str, str]] = set()
        self._found = Found()

    def note(self, found: Found, kind: str, key: str, entry: str = "", **sizes: int) -> None:
        """Count one entry of `key` into `found`, and log it where it is new. `sizes` go into the log."""
        found.add(key, Counter((kind,)))
        shown = kind, _shown(key), _shown(entry)
        if shown in self._logged or len(self._logged) >= _MOST:
            return
        self._logged.add(shown)
        _log.warning("redis_entry_skipped", kind=kind, key=shown[1], entry=shown[2], **sizes)

    def replace(self, found: Found) -> None:
        """What a full sync found is all there is."""
        self._found = found
        self._show()

    def update(self, read: set[str], found: Found) -> None:
        """The keys `read` hold what is in `found`, and nothing else that is broken."""
        for key in read & self._found.by_key.keys():
            self._found.drop(key)
        for key, counts in found.by_key.items():  # as few as were read
            self._found.add(key, counts)
        self._show()

    def _show(self) -> None:
        self._metrics.redis.skipped = {**dict.fromkeys(self._metrics.redis.skipped, 0), **self._found.totals}


def _shown(text: str) -> str:
    """For people, and not all of it: it may be long."""
    return ascii(text[:_SHOWN])[:_SHOWN]
