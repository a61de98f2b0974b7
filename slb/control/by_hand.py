"""Changes of routes that have no number: an operator's SADD, or what looks like one."""

from collections.abc import Collection, Iterable

from slb.control.changes import Changes
from slb.control.dirty import Dirty
from slb.control.recovery import Recovery
from slb.control.refused_writes import RefusedWrites
from slb.control.slices import rested


class ByHand:
    """Finds them among what is read, and gives them their numbers. `refused` shows whether Redis accepts writes;
    `dirty` gets the keys that are to be read again."""

    def __init__(self, changes: Changes, recovery: Recovery, refused: RefusedWrites, dirty: Dirty) -> None:
        self._changes = changes
        self._recovery = recovery
        self._refused = refused
        self._dirty = dirty

    async def among(self, changed: Iterable[str | None]) -> list[str]:
        """The entries of these that have no number. Empty at the start, and while Redis lacks entries: those that
        it has lost have numbers."""
        if not (self._recovery.has_synced and self._recovery.is_settled):
            return []
        return [entry async for entry in rested(changed) if not self._changes.explain(entry)]

    async def is_lost(self, found: Collection[str]) -> bool:
        """Whether what looks like changes by hand is the loss of others: another instance, with an older table, has
        written that back, and more has been changed since. Redis is in doubt then, as after a reconnect."""
        with self._refused.passed_over():
            if await self._changes.lacks(found):
                self._recovery.doubt()
                return True
        return False

    async def number(self, found: Collection[str]) -> None:
        """Changes made by hand get their number from the first instance that sees them."""
        with self._refused.passed_over():
            async for key in rested(await self._changes.number(found)):
                self._dirty.mark(key)
