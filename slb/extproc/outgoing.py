"""The answers of one stream, which have to come in the order of what they answer. The first of them, the upstream,
may take as long as a slot does."""

import asyncio
from collections.abc import Callable

_LATE = 0.25
"""Seconds after which Envoy is told that the first takes longer. Envoy waits for 0.2 s unless set, and should for a
second: a garbage collection takes as long."""
_MOST_HELD = 16
"""Answers to pieces of a body (64 KiB at most, each) that wait behind the first. Then no more is read, and Envoy's
window closes."""


class Outgoing:
    """`send`: what goes to Envoy by itself, rather than as the return value of what took Envoy's message."""

    __slots__ = ("_collects", "_first", "_held", "_is_closed", "_late", "_sent", "_waiting", "send")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self._collects = True
        self._first: bytes | None = None
        self._held: list[bytes] = []
        self._is_closed = False
        self._late: asyncio.TimerHandle | None = None
        self._sent = False
        self._waiting: asyncio.Future[None] | None = None

    def first(self, answer: bytes) -> None:
        """It is there: now, or later than that."""
        self._forget_late()
        if self._is_closed:
            return
        self._sent = True
        if self._collects:
            self._first = answer
            return
        for each in (answer, *self._held):
            self.send(each)
        self._held.clear()
        self._wake()

    def collect(self, late: Callable[[], None]) -> bytes:
        """The first answer, where it was there at once; else empty, and `late` is called if it takes long."""
        self._collects = False
        if self._first is None and not self._is_closed:
            self._late = asyncio.get_running_loop().call_later(_LATE, late)
        return self._first or b""

    def next(self, answer: bytes) -> bytes:
        """A further answer; empty where it has to wait for the first."""
        if self._sent:
            return answer
        self._held.append(answer)
        return b""

    @property
    def is_full(self) -> bool:
        return len(self._held) >= _MOST_HELD

    async def emptied(self) -> None:
        """Wait until it is not full."""
        if self.is_full:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def close(self) -> None:
        """The stream has ended."""
        self._is_closed = True
        self._forget_late()
        self._wake()

    def _forget_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
