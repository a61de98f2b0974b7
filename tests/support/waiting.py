"""Waiting for what cannot be awaited, and how long: every deadline of the tests is scaled here."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

_POLL = 0.01

T = TypeVar("T")


def patience(seconds: float) -> float:
    """Seconds, scaled by the load per core: for what takes less than `seconds` on an idle machine."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))


def within(seconds: float) -> asyncio.Timeout:
    """`asyncio.timeout` for what takes less than `seconds` on an idle machine."""
    return asyncio.timeout(patience(seconds))


async def soon(result: Awaitable[T], seconds: float = 10.0) -> T:
    """`asyncio.wait_for` for what takes less than `seconds` on an idle machine."""
    return await asyncio.wait_for(result, patience(seconds))


async def eventually(condition: Callable[[], bool], timeout: float = 10.0, what: str = "") -> None:
    """Return once `condition()` holds; fail where it does not `within(timeout)`."""
    scaled = patience(timeout)
    try:
        async with asyncio.timeout(scaled):
            while not condition():
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"not within {scaled:.0f} s: {what or condition}") from None


async def until_found(look: Callable[[], Awaitable[T]], timeout: float = 20.0, what: str = "") -> T:
    """What `look()` returns once that is not empty; fail where it stays so for longer than `within(timeout)`."""
    scaled = patience(timeout)
    try:
        async with asyncio.timeout(scaled):
            while not (result := await look()):
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"not within {scaled:.0f} s: {what or look}") from None
    return result


async def settled(figure: Callable[[], int], still: float = 0.3, timeout: float = 10.0) -> int:
    """`figure()` once it has not changed for `still` seconds; fail where it goes on changing."""
    async with within(timeout):
        before, now = -1, figure()
        while before != now:
            await asyncio.sleep(still)
            before, now = now, figure()
    return now
