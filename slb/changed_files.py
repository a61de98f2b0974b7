"""When files have changed: the config file, and whatever else is followed like it."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from slb.lifecycle import set_within

LOOK_EVERY = 1.0
"""Seconds between two looks at the files; what has changed is read when it was the same at two looks."""


Print = tuple[int, int, int] | None
"""Of a file or a directory: it changes with that; None where there is none."""


class ChangedFiles:
    """Compares files with what they were when this was made, or when `changed` last returned. `seen`: what they
    were, where that is known."""

    def __init__(
        self, files: Iterable[Path], look_every: float = LOOK_EVERY, seen: Mapping[Path, Print] | None = None
    ) -> None:
        self._files = tuple(files)
        self._look_every = look_every
        self._seen = self._look() if seen is None else seen

    async def changed(self, asked: asyncio.Event) -> None:
        """Return when any has changed, or `asked` is set, which is cleared."""
        while not await self._is_due(asked):
            pass
        asked.clear()
        self._seen = self._look()

    async def _is_due(self, asked: asyncio.Event) -> bool:
        await set_within(asked, self._look_every)
        if asked.is_set():
            return True
        found = self._look()
        if found == self._seen:
            return False
        # The file may still be written: wait until a look finds what the one before it found.
        await asyncio.sleep(self._look_every)
        return self._look() == found or asked.is_set()

    def _look(self) -> Mapping[Path, Print]:
        return {file: print_of(file) for file in self._files}


def print_of(file: Path) -> Print:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
