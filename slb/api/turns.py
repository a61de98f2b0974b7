"""Turns of connections whose bytes wait for aiohttp's parser.

What a parser makes of a byte is the sender's to say: 256 KiB, which one read may bring, are 43,000 chunks of one
byte, and 50 ms. So at most a slice goes to aiohttp at once, and the connections that have more share one slice of a
turn of the event loop. However many they are, everybody else waits for one slice; they wait for one another.
"""

import asyncio
from collections import deque
from collections.abc import Callable

SLICE = 4096
"""Bytes that aiohttp is given at once: 700 chunks at worst, well under 1 ms. A request of ours rarely has more."""


class Turns:
    """Those who wait for their turn, in the order they came. Who has more to do afterwards waits again."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn of the event loop, and nothing else of ours in that turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        if len(self._waiting) > 1:
            asyncio.get_running_loop().call_soon(self._next)
        go_on = self._waiting.popleft()
        go_on()
