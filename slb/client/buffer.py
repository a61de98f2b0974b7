"""How many calls are out at once; the rest wait in order. When a call ends, the next one begins."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from slb.client.refusals import CallRefused
from slb.errors import QUEUE_TIMEOUT


class Buffer:
    """At most `width` calls are out, 0 for no limit; the others wait in order, at most `timeout` seconds each."""

    def __init__(self, width: int, timeout: float) -> None:
        self._width = width
        self._timeout = timeout
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.out = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self) -> bool:
        """Take a place at once, if there is room and no call waits. Whether it was taken."""
        if self._width and (self.out >= self._width or self._waiting):
            return False
        self.out += 1
        return True

    async def wait(self) -> None:
        """Wait for a place. Raises CallRefused after `timeout`, and the exception given to `close`."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        waiting = asyncio.timeout(self._timeout)
        try:
            async with waiting:
                await turn
        except BaseException as error:
            self._leave(turn)
            if isinstance(error, TimeoutError) and waiting.expired():
                detail = f"{self._width} calls are out, and none ended within {self._timeout:g} s"
                raise CallRefused(QUEUE_TIMEOUT, detail) from None
            raise

    def give_back(self) -> None:
        """Give a place back; the first call that waits gets it."""
        while self._waiting:
            turn = self._waiting.popitem(last=False)[0]
            if not turn.cancelled():  # whose task has yet to run, as where a whole batch is given up
                turn.set_result(None)
                return
        self.out -= 1

    def close(self, why: Callable[[], Exception]) -> None:
        """Raise the exception that `why` makes in each call that waits."""
        while self._waiting:
            turn = self._waiting.popitem(last=False)[0]
            if not turn.cancelled():
                turn.set_exception(why())

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Of a cancelled call: it gives back a place that it got in the same moment."""
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self.give_back()
        else:
            self._waiting.pop(turn, None)
