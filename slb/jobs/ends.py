"""Ends of attempts here, told to those that wait for one of these jobs. What ends elsewhere is not told."""

import asyncio

from slb.lifecycle import set_within


class Ends:
    """To tell of one costs those that wait for that job, and none of the others, however many there are."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}

    def tell(self, model: str, id_: str) -> None:
        """An attempt at this job has ended, and Redis knows it."""
        for each in self._waiting.get((model, id_), ()):
            each.set()

    async def of(self, model: str, id_: str, seconds: float) -> None:
        """Wait until one is told of, but no longer than this."""
        key, event = (model, id_), asyncio.Event()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(event)
        try:
            await set_within(event, seconds)
        finally:
            waiting.discard(event)
            if not waiting:
                del self._waiting[key]
