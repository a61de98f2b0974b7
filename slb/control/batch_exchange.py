"""When a lane's batch is sent, and how long its reply is waited for: one is in flight, and what is due meanwhile
goes with the next."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import RedisError

from slb.control.batch import Batch
from slb.control.batch_line import BatchLine
from slb.control.deadline import Stopwatch
from slb.control.lane_timing import LaneTiming

_LARGE = 8
_TURNS = 4
"""Behind a batch with so many asks, and upstreams with releases, the next one waits for so many turns of the event
loop, and takes up what they bring. Turns with nothing to do are over in microseconds; a busy instance sends fewer,
larger batches, and each costs it less."""


class Decides(Protocol):
    """The lane, as its exchange has it."""

    timing: LaneTiming

    def is_due(self, now: float) -> bool:
        """Whether there is anything to send, at `now` by the event loop's clock."""

    def next_batch(self) -> Batch:
        """The next one, taken out of the lane."""

    def read(self, batch: Batch, reply: dict[str, Any]) -> Batch | None:
        """Apply the reply. Returns the batch to be sent behind it, at once; None where nothing is left to send.
        Raises RedisError, OSError where the reply is of no use."""

    def fall_behind(self) -> None:
        """Redis has not answered for the budget."""

    def failed(self, error: Exception, is_over: bool) -> bool:
        """The batch may have been run or not. Whether another follows within the same time: not where `is_over`."""

    def patience(self) -> float:
        """Seconds that Redis may be silent for."""

    def pause(self) -> float:
        """Seconds until the next attempt."""

    def tick(self) -> float:
        """Have the next batch ask what is new, where something is waited for. Seconds until one is due in any
        case."""

    def hurry(self) -> None:
        """What was released has waited long enough."""


class BatchExchange:
    """No task waits for a reply: a batch is sent at the end of the event loop's turn that made it due, and its
    reply is read in the turn that brings it. One that fails is followed by others, over as many connections as that
    takes, while Redis may serve in a moment. Where nothing new is asked, batches go for the beat, and more often
    while the lane waits for something. `in_flight`: one has not been answered, nor given up."""

    def __init__(self, line: BatchLine, lane: Decides) -> None:
        self.in_flight = False
        self._line = line
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._stopwatch = Stopwatch(lambda: self._do(self._time_is_up), lane.fall_behind)
        self._sent: Batch | None = None
        self._turn: asyncio.Handle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Send batches until cancelled. Raises what the lane raises, but for RedisError and OSError."""
        self._ended = self._loop.create_future()
        self._look()
        try:
            await self._ended
        finally:
            self._ended = self._sent = None
            self._stopwatch.close()
            for handle in (self._turn, self._pause, self._tick, self._linger):
                if handle is not None:
                    handle.cancel()
            self._line.drop()

    def wake(self) -> None:
        """Send what is due at the end of this turn of the event loop, unless a batch is in flight."""
        if self._turn is None and self._pause is None and not self.in_flight and self._ended is not None:
            self._turn = self._loop.call_soon(self._begin)

    def wake_later(self) -> None:
        """The same, behind what this turn writes."""
        self._loop.call_soon(self.wake)

    def wake_lingering(self) -> None:
        """The same, in `linger` seconds, unless a batch is sent before that."""
        if self._linger is None:
            self._linger = self._loop.call_later(self._lane.timing.linger, self._hurry)

    def _hurry(self) -> None:
        self._linger = None
        self._lane.hurry()
        self.wake()

    def look_soon(self) -> None:
        """From now on the lane waits for something."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = self._loop.call_later(self._lane.timing.look, self._look)

    def _look(self) -> None:
        pause = self._lane.tick()
        self.wake()
        self._tick = self._loop.call_later(max(pause, self._lane.timing.look), self._look)

    def extend(self) -> None:
        """Redis has answered, and more is to be sent: its silence begins anew."""
        self._stopwatch.extend(self._loop.time() + self._lane.patience())

    def _gather(self, turns: int) -> None:
        """Send what is due so many turns of the event loop later."""
        self._turn = self._loop.call_soon(self._gather, turns - 1) if turns else self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._turn = None
        now = self._loop.time()
        if self._lane.is_due(now):
            self.in_flight = True
            self._stopwatch.start(now + self._lane.patience(), now + self._lane.timing.budget)
            self._do(self._send_next)

    def _do(self, step: Callable[..., None], *given: Any) -> None:
        try:
            try:
                step(*given)
            except (RedisError, OSError) as error:
                self._failed(error, is_over=False)
        except Exception as error:  # noqa: BLE001 -- `run` raises it
            if self._ended is not None and not self._ended.done():
                self._ended.set_exception(error)

    def _send_next(self) -> None:
        self._send(self._lane.next_batch())

    def _send(self, batch: Batch) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._sent = batch
        self._line.send(batch, self._lane.timing, lambda reply: self._replied(batch, reply))

    def _replied(self, batch: Batch, reply: Any) -> None:
        if batch is self._sent:  # not given up
            self._do(self._read, batch, reply)

    def _read(self, batch: Batch, reply: Any) -> None:
        behind = self._lane.read(batch, self._line.read(batch, reply))
        if behind is not None:
            self._send(behind)
        else:
            self._sent, self.in_flight = None, False
            self._stopwatch.stop()
            if len(batch.asks) + len(batch.release) < _LARGE:
                self.wake_later()
            else:
                self._gather(_TURNS)

    def _time_is_up(self) -> None:
        self._failed(TimeoutError(), is_over=True)

    def _failed(self, error: Exception, is_over: bool) -> None:
        self._sent = None
        goes_on = self._lane.failed(error, is_over)
        self._line.drop()
        if not goes_on:
            self._stopwatch.stop()
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self._loop.call_later(self._lane.pause(), self._go_on)
        self.in_flight = goes_on

    def _go_on(self) -> None:
        self._pause = None
        if self.in_flight:
            self._do(self._send_next)
        else:
            self.wake()
