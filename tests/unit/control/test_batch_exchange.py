"""When the next batch is sent. The line to Redis and the lane are played: what counts here is the turn."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from slb.control.batch import Batch, Ticket
from slb.control.batch_exchange import BatchExchange
from slb.control.lane_timing import LaneTiming
from tests.unit.control.asked import Asked


class PlayedLine:
    """Each reply is given by the test."""

    def __init__(self) -> None:
        self._on_reply: Callable[[Any], None] | None = None

    def reply(self) -> None:
        """To the batch in flight, if any."""
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            on_reply(None)

    def send(self, batch: Batch, timing: LaneTiming, on_reply: Callable[[Any], None]) -> None:
        self._on_reply = on_reply

    def read(self, batch: Batch, reply: Any) -> dict[str, Any]:
        return {}

    def drop(self) -> None: ...


class PlayedLane:
    """It has so many asks to send; `sent` are the sizes of its batches."""

    timing = LaneTiming()

    def __init__(self) -> None:
        self.asks = 0
        self.sent: list[int] = []

    def is_due(self, now: float) -> bool:
        return bool(self.asks)

    def next_batch(self) -> Batch:
        count, self.asks = self.asks, 0
        self.sent.append(count)
        return Batch(len(self.sent), asks=[Ticket(key, Asked("p"), 0) for key in range(count)])

    def read(self, batch: Batch, reply: dict[str, Any]) -> Batch | None:
        return None

    def fall_behind(self) -> None: ...

    def failed(self, error: Exception, is_over: bool) -> bool:
        return False

    def patience(self) -> float:
        return 60.0

    def pause(self) -> float:
        return 60.0

    def tick(self) -> float:
        return 60.0

    def hurry(self) -> None: ...


async def sizes_behind(first: int) -> list[int]:
    """Of the batches, where one ask comes in each of the three turns of the event loop behind a first batch with so
    many."""
    line, lane = PlayedLine(), PlayedLane()
    exchange = BatchExchange(cast("Any", line), lane)
    running = asyncio.create_task(exchange.run())
    await asyncio.sleep(0)

    async def come(count: int) -> None:
        lane.asks += count
        exchange.wake()
        await asyncio.sleep(0)

    await come(first)
    await asyncio.sleep(0)
    assert lane.sent == [first]
    line.reply()
    for _ in range(3):
        await come(1)
        line.reply()
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    return lane.sent


async def test_behind_a_small_batch_the_next_is_sent_at_the_end_of_the_turn() -> None:
    assert len(await sizes_behind(1)) > 2


async def test_behind_a_large_batch_what_some_turns_bring_goes_together() -> None:
    assert await sizes_behind(100) == [100, 3]
