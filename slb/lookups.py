"""Equal questions at the same time are one look-up."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked", bound=Hashable)
Found = TypeVar("Found")


class SingleFlight(Generic[Asked, Found]):
    """The first question starts the work. It goes on where all callers are cancelled: a look-up holds its thread in
    any case."""

    def __init__(self) -> None:
        self._running: dict[Asked, asyncio.Task[Found]] = {}

    async def of(self, asked: Asked, work: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        """What `work` returns, or raises: that which is under way for `asked`, else a new one."""
        running = self._running.get(asked)
        if running is None:
            running = self._running[asked] = asyncio.get_running_loop().create_task(work())
            running.add_done_callback(lambda done: self._ended(asked, done))
        return await asyncio.shield(running)

    def cancel(self) -> None:
        for running in self._running.values():
            running.cancel()

    def _ended(self, asked: Asked, done: "asyncio.Task[Found]") -> None:
        del self._running[asked]
        if not done.cancelled():
            done.exception()  # whoever waits for it is told; maybe nobody does any more
