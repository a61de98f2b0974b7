"""A name that several ask for at the same time is looked up once for all of them."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked", bound=Hashable)
Found = TypeVar("Found")


class SingleFlight(Generic[Asked, Found]):
    """Work is begun by whoever asks first. It goes on where all who wait for it have given up: a lookup holds its
    thread in any case, and who asks next waits for that one."""

    def __init__(self) -> None:
        self._running: dict[Asked, asyncio.Task[Found]] = {}

    async def of(self, asked: Asked, work: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        """What `work` gives, or raises: that which is under way for `asked`, else a new one."""
        running = self._running.get(asked)
        if running is None:
            running = self._running[asked] = asyncio.get_running_loop().create_task(work())
            running.add_done_callback(lambda done: self._ended(asked, done))
        return await asyncio.shield(running)

    def cancel(self) -> None:
        """End what runs."""
        for running in self._running.values():
            running.cancel()

    def _ended(self, asked: Asked, done: "asyncio.Task[Found]") -> None:
        del self._running[asked]
        if not done.cancelled():
            done.exception()  # whoever waits for it is told; maybe nobody does any more
