"""What has changed in Redis and is still to be read: names only, each at most once."""

import asyncio
from dataclasses import dataclass
from itertools import islice

from slb.control import keys
from slb.lifecycle import set_within

BATCH = 20
"""Paths, and members, read and swapped in at once."""

_MOST = 5000
"""Names of a kind that wait. 250 batches take longer than a full sync of as many."""


@dataclass(frozen=True)
class Batch:
    """Names to read next."""

    paths: list[str]
    members: list[str]

    def keys(self) -> list[str]:
        """What is read for them."""
        of_paths = (key(path) for path in self.paths for key in (keys.route_key, keys.settings_key))
        return [*of_paths, *map(keys.upstream_key, self.members)]


class Dirty:
    """Marked by events, emptied by the sync loop; a name that is marked again while it waits is read once. `all`:
    so many were marked that reading everything is less work, and names are not kept."""

    def __init__(self) -> None:
        self._kinds: tuple[dict[str, None], ...] = ({}, {})
        self._event = asyncio.Event()
        self.all = False

    def __bool__(self) -> bool:
        return self._event.is_set()

    def mark(self, key: str) -> None:
        """Something happened to `key`. Those that are not ours are left to the next full sync, to be counted."""
        if self.all:
            return
        paths, members = self._kinds
        if (path := keys.path_of(key)) is not None:
            paths[path] = None
        elif (member := keys.member_of(key)) is not None:
            members[member] = None
        else:
            return
        self.all = max(map(len, self._kinds)) > _MOST
        self._event.set()

    def clear(self) -> None:
        """Forget all: a full sync is about to read everything."""
        for names in self._kinds:
            names.clear()
        self.all = False
        self._event.clear()

    def take(self) -> Batch:
        """The names that have waited longest."""
        batch = Batch(*map(_first, self._kinds))
        if not any(self._kinds):
            self._event.clear()
        return batch

    async def wait(self, seconds: float | None = None) -> None:
        await set_within(self._event, seconds)


def _first(names: dict[str, None]) -> list[str]:
    taken = list(islice(names, BATCH))
    for name in taken:
        del names[name]
    return taken
