"""Receivers of callbacks that have not answered, and how many callbacks to one are under way. Pure."""

from collections import Counter
from urllib.parse import urlsplit

MOST_TO_SILENT = 4
"""Callbacks at once to a receiver that did not answer the last one. Each holds its place for half a minute, and
without a bound one receiver that is down would have the places of all others."""
_MOST_KNOWN = 1_000
"""Receivers that did not answer: their names are a stranger's. The one that was silent first is forgotten first."""


def receiver_of(url: str) -> str:
    """Host and port, as they are written, without a user. Raises ValueError."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


class Receivers:
    """Those that one instance sends callbacks to."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._silent: dict[str, None] = {}

    def may_send(self, receiver: str) -> bool:
        """Whether one more may be under way."""
        return receiver not in self._silent or self._under_way[receiver] < MOST_TO_SILENT

    def begins(self, receiver: str) -> None:
        """One is sent."""
        self._under_way[receiver] += 1

    def ended(self, receiver: str, has_answered: bool) -> None:
        """One that was sent."""
        self._under_way[receiver] -= 1
        if not self._under_way[receiver]:
            del self._under_way[receiver]
        if has_answered:
            self._silent.pop(receiver, None)
            return
        self._silent[receiver] = None
        if len(self._silent) > _MOST_KNOWN:
            del self._silent[next(iter(self._silent))]
