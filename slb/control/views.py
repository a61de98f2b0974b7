"""The candidates of a lane's routes, as the gate knows them and as the script reads them."""

from collections.abc import Callable, Iterable

import orjson

from slb.balance.asking import Candidate
from slb.control.batch import packed_view


class Views:
    """By name, a route's path. `is_capped`: whether any of them has a capacity."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[tuple[Candidate, ...], orjson.Fragment]] = {}
        self.is_capped = False

    def __len__(self) -> int:
        return len(self._views)

    def put(self, name: str, candidates: tuple[Candidate, ...]) -> bool:
        """These from now on; False where they are, the same object, already."""
        known = self._views.get(name)
        if known is not None and known[0] is candidates:
            return False
        self._views[name] = candidates, packed_view(candidates)
        self._look_for_caps()
        return True

    def forget(self, is_dead: Callable[[str], bool]) -> None:
        """Those of which it holds."""
        for name in [name for name in self._views if is_dead(name)]:
            del self._views[name]
        self._look_for_caps()

    def packed(self, names: Iterable[str]) -> dict[str, orjson.Fragment]:
        """For a batch."""
        return {name: self._views[name][1] for name in names}

    def _look_for_caps(self) -> None:
        self.is_capped = any(each.capacity for candidates, _ in self._views.values() for each in candidates)
