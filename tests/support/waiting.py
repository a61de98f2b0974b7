"""Waiting for what cannot be awaited, and how long: every deadline of the tests is scaled here."""

import asyncio
import os
import time
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


def wait_until(condition: Callable[[], bool], timeout: float = 30.0, what: str = "") -> None:
    """`eventually` for tests without an event loop: it blocks."""
    end = time.monotonic() + patience(timeout)
    while not condition():
        assert time.monotonic() < end, what or condition
        time.sleep(_POLL)


async def until(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], timeout: float = 20.0, what: str = ""
) -> T:
    """The first result of `look()` for which `holds(result)`; fail where there is none `within(timeout)`."""
    scaled, last = patience(timeout), "nothing yet"
    try:
        async with asyncio.timeout(scaled):
            while not holds(result := await look()):
                last = repr(result)
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"not within {scaled:.0f} s: {what or look}, but {last}") from None
    return result


async def until_found(look: Callable[[], Awaitable[T]], timeout: float = 20.0, what: str = "") -> T:
    """The first result of `look()` that is not empty; fail where there is none `within(timeout)`."""
    return await until(look, bool, timeout, what)


async def settled(figure: Callable[[], int], still: float = 0.3, timeout: float = 10.0) -> int:
    """`figure()` once it has not changed for `still` seconds; fail where it goes on changing."""
    async with within(timeout):
        before, now = -1, figure()
        while before != now:
            await asyncio.sleep(still)
            before, now = now, figure()
    return now
