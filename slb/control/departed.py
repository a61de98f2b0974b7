"""Ids of instances that have died, remembered for a while: what was read before may still name them."""

from collections.abc import Iterable


class Departed:
    """Times are the caller's, in seconds."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def add(self, ids: Iterable[str], until: float) -> None:
        """Remember these until then."""
        self._until.update(dict.fromkeys(ids, until))

    def at(self, now: float) -> set[str]:
        """Those that are remembered still; the others are forgotten."""
        self._until = {each: until for each, until in self._until.items() if until > now}
        return set(self._until)
