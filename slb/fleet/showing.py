"""Shows this process to those who look elsewhere: its frames while they ask, and answers to single questions."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from slb.control.cancelled import raise_if_cancelled
from slb.control.fleet_channel import FleetChannel
from slb.control.slices import Slices
from slb.fleet.answers import Answers
from slb.fleet.asks import read_ask
from slb.fleet.frame import Frame, written
from slb.fleet.pace import PERIOD, Pace

LASTS = 5.0
"""Seconds for which an ask holds."""
_MOST_ASKERS = 64


class Frames(Protocol):
    async def make(self, slices: Slices) -> Frame: ...
    def begin_anew(self) -> None: ...
    def forget(self) -> None: ...


class Showing:
    """`me`: this process; `frames`: its own, None where it has no traffic of its own, as a supervisor. While
    `is_looked_at`, somebody looks here: then the view makes the frames, and shows them to those who ask, too."""

    def __init__(
        self,
        channel: FleetChannel,
        me: str,
        answers: Answers,
        pace: Pace,
        is_looked_at: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.frames: Frames | None = None
        self._channel = channel
        self._me = me
        self._answers = answers
        self._pace = pace
        self._is_looked_at = is_looked_at
        self._clock = clock
        self._askers: dict[str, tuple[float, float]] = {}
        self._asked = asyncio.Event()
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def is_asked(self) -> bool:
        """Whether somebody looks elsewhere."""
        return bool(self._askers)

    async def follow(self) -> None:
        """Hear what is asked, until cancelled."""
        await self._channel.follow_asks(self._on_ask)

    def _on_ask(self, text: str) -> None:
        ask = read_ask(text)
        if ask is None or ask.asker == self._me:
            return
        if ask.is_question:
            self._answer(ask.asker, self._answers.to(ask))
            return
        if self.frames is not None and (ask.is_full or ask.asker not in self._askers):
            self.frames.begin_anew()
        self._askers.pop(ask.asker, None)
        if len(self._askers) >= _MOST_ASKERS:
            del self._askers[next(iter(self._askers))]  # the one that asked longest ago
        self._askers[ask.asker] = self._clock() + LASTS, max(PERIOD, ask.every)
        self._asked.set()

    def _answer(self, asker: str, answer: bytes) -> None:
        if answer and len(self._answering) < _MOST_ASKERS:
            task = asyncio.create_task(self._channel.answer(asker, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def run(self) -> None:
        """Publish a frame every period while somebody elsewhere asks."""
        while True:
            await self._asked.wait()
            now = self._clock()
            self._askers = {asker: each for asker, each in self._askers.items() if each[0] > now}
            if self._askers:
                await self._show()
                await asyncio.sleep(max(self._pace.period, min(every for _, every in self._askers.values())))
            else:
                self._asked.clear()
                if self.frames is not None and not self._is_looked_at():
                    self.frames.forget()

    async def _show(self) -> None:
        if self.frames is None or self._is_looked_at():
            return
        slices = self._pace.slices()
        await self._channel.show(written(await self.frames.make(slices)))
        raise_if_cancelled()
        self._pace.round(slices)
