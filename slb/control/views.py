"""The candidates of a lane's routes, in the form of the gate and in the form the script reads."""

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import orjson

from slb.balance.asking import Candidate


class View(NamedTuple):
    """A route's candidates; `digest`: what Redis stores them under; `packed`: as the script reads them."""

    candidates: tuple[Candidate, ...]
    digest: str
    packed: orjson.Fragment
    members: frozenset[str]


class Views:
    """By name, a route's path. Redis stores the candidates under a name of their own, made of how many they are and
    what they are: holders that have the same share it. `is_capped`: whether any of them has a capacity."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}
        self._stored: set[str] = set()
        self._replaced: set[str] = set()
        self.is_capped = False

    def __len__(self) -> int:
        return len(self._views)

    def put(self, name: str, candidates: tuple[Candidate, ...]) -> bool:
        """These from now on; False where they are, the same object, already."""
        known = self._views.get(name)
        if known is not None and known.candidates is candidates:
            return False
        self._views[name] = _packed(candidates)
        if known is not None and known.digest in self._stored:
            self._replaced.add(known.digest)
        self._look_for_caps()
        return True

    def take_replaced(self) -> list[str]:
        """What Redis has stored candidates under that none of these has any more: each is returned once."""
        replaced, self._replaced = self._replaced, set()
        return list(replaced.difference(self.in_use())) if replaced else []

    def has(self, name: str, member: str) -> bool:
        view = self._views.get(name)
        return view is not None and member in view.members

    def forget(self, is_dead: Callable[[str], bool]) -> None:
        """Those of which it holds."""
        for name in [name for name in self._views if is_dead(name)]:
            del self._views[name]
        self._look_for_caps()

    def named(self, names: Iterable[str]) -> dict[str, View]:
        return {name: self._views[name] for name in names}

    def in_use(self) -> list[str]:
        """What all of them are stored under."""
        return list({view.digest for view in self._views.values()})

    def not_stored(self, views: Iterable[View]) -> dict[str, orjson.Fragment]:
        """Of those that Redis is not known to have: what they are stored under -> the candidates as the script
        reads them."""
        return {view.digest: view.packed for view in views if view.digest not in self._stored}

    def stored(self, digests: Iterable[str]) -> None:
        """Redis has these."""
        self._stored = {view.digest for view in self._views.values()} & self._stored.union(digests)

    def lost(self) -> None:
        """Redis may have none of them."""
        self._stored = set()

    def _look_for_caps(self) -> None:
        self.is_capped = any(each.capacity for view in self._views.values() for each in view.candidates)


def _packed(candidates: tuple[Candidate, ...]) -> View:
    packed = orjson.dumps([list(each) for each in candidates])
    digest = hashlib.blake2b(packed, digest_size=12, person=b"2").hexdigest()  # 2: the form Redis stores them in
    members = frozenset(each.member for each in candidates)
    return View(candidates, f"{len(candidates)}-{digest}", orjson.Fragment(packed), members)
