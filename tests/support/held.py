"""How long the event loop is held, in units of work and not in seconds: a busy machine changes nothing of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType


@asynccontextmanager
async def held() -> AsyncIterator[Callable[[], int]]:
    """Inside, `most()` is how many functions, Python's and C's, were called at most from one turn of the loop to
    the next."""
    calls, most = 0, 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    async def turn() -> None:
        nonlocal calls, most
        while True:
            most, calls = max(most, calls), 0
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    sys.setprofile(count)
    try:
        yield lambda: max(most, calls)
    finally:
        sys.setprofile(None)
        turning.cancel()
        await asyncio.wait([turning])
