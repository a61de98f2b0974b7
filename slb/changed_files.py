"""When files have changed: the config file, and whatever else is followed like it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from slb.lifecycle import set_within

LOOK_EVERY = 1.0
"""Seconds between two looks at the files; what has changed is read when it was the same at two looks."""


class ChangedFiles:
    """Compares `files` with what they were when this was made, or when `changed` last returned."""

    def __init__(self, files: Sequence[Path], look_every: float = LOOK_EVERY) -> None:
        self._files = files
        self._look_every = look_every
        self._seen = self._look()

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

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_print_of(file) for file in self._files]


def _print_of(file: Path) -> tuple[int, int, int] | None:
    """A fingerprint that changes with the file; None where there is no file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
