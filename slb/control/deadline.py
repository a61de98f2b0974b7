"""A deadline that is fair to an answer which has come and only has not been read yet."""

import asyncio
from types import TracebackType

_GRACE = 0.005
"""Of the time there is, for that: this process may have been held up, or frozen."""


class Deadline:
    """What runs inside `async with` raises TimeoutError at `at`, by the event loop's clock."""

    def __init__(self, at: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._at = at

    async def __aenter__(self) -> "Deadline":
        await self._timeout.__aenter__()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disarm()
        await self._timeout.__aexit__(kind, error, trace)

    def not_after(self, at: float) -> None:
        """It is no later than this from now on."""
        if at < self._at:
            self._at = at
            self._disarm()
            self._arm()

    def _arm(self) -> None:
        self._timer = self._loop.call_at(self._at - _GRACE, self._nearly_late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _nearly_late(self) -> None:
        self._timer = self._loop.call_later(_GRACE, self._late)

    def _late(self) -> None:
        self._timeout.reschedule(self._loop.time())
