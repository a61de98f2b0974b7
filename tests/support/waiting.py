"""Waiting for what cannot be awaited."""

import asyncio
from collections.abc import Callable

_POLL = 0.01


async def eventually(condition: Callable[[], bool], timeout: float = 10.0, what: str = "") -> None:
    """Return once `condition()` holds; fail where it does not within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"not within {timeout:g} s: {what or condition}") from None


async def settled(figure: Callable[[], int], still: float = 0.3, timeout: float = 10.0) -> int:
    """`figure()` once it has not changed for `still` seconds; fail where it goes on changing."""
    async with asyncio.timeout(timeout):
        before, now = -1, figure()
        while before != now:
            await asyncio.sleep(still)
            before, now = now, figure()
    return now
