"""One instance's exchange with Redis for one pool: which batch is sent next, and what is done with its reply.

Redis gets what is held here in deltas while all is well, and whole (a full batch) at first, with each beat, and
after anything that went wrong. A batch that has failed may have been run or not: the full one behind it makes that
the same, and what was asked in it is asked again. A Redis that answers within `silence`, by whatever connection,
has only been late: a patient ask stays here and waits for it. When a batch is sent is decided in `batch_exchange`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.exceptions import InvalidResponse, ResponseError

from slb.backoff import Backoff
from slb.balance.asking import Ask
from slb.control.batch import Batch, key_of
from slb.control.batch_exchange import BatchExchange
from slb.control.batch_line import BatchLine
from slb.control.epoch_tracker import EpochTracker
from slb.control.explained import Explained
from slb.control.lane_state import LaneState
from slb.control.lane_timing import LaneTiming
from slb.control.resp import readable
from slb.control.retry import may_pass
from slb.control.script_line import ScriptLine
from slb.control.slots import Slots

_log = structlog.get_logger()


class Dialogue:
    """`new_holder` makes the name leases are held under. `slots`: what this instance has and asks for; `held` of
    that is the truth about it, whatever decided. `on_change(undecided)` is called when `state` or `settling` has
    changed, with the asks that Redis can no longer decide; `on_damage` when Redis could not run a batch; `on_late`
    with how many grants were acknowledged that Redis had taken back. `timing` may be set to another."""

    def __init__(
        self,
        pool: str,
        line: ScriptLine,
        new_holder: Callable[[], str],
        start: int,
        timing: LaneTiming,
        on_change: Callable[[Sequence[Ask]], None],
        on_damage: Callable[[], None],
        on_late: Callable[[int], None],
    ) -> None:
        self.pool = pool
        self.timing = timing
        self.slots = Slots()
        self.held = self.slots.held
        self.state = LaneState()
        self.epochs = EpochTracker()
        self.explained = Explained()
        self._line = BatchLine(pool, line, new_holder, start)
        self._on_change = on_change
        self._on_damage = on_damage
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff()
        self.exchange = BatchExchange(self._line, self)

    async def run(self) -> None:
        """Send batches until cancelled; raises what went wrong here, for the ledger is blind without its lane."""
        await self.exchange.run()

    @property
    def holder(self) -> str:
        """The name that leases are held under."""
        return self._line.holder

    @property
    def settling(self) -> bool:
        """Whether Redis still lacks what some holders have."""
        return self.epochs.settling

    # -- batches

    def is_due(self, now: float) -> bool:
        return self.slots.builder.is_due(now)

    def tick(self) -> float:
        if self.slots.asks.queued or self.epochs.settling:
            self.slots.builder.look()
            return 0.0
        return self.slots.builder.beat_due - self._loop.time()

    def hurry(self) -> None:
        self.slots.builder.hurry()

    def released(self) -> None:
        """Slots were given back: that is sent at once, or, where no request waits for them, soon."""
        if self.slots.views.is_capped:
            self.exchange.wake()
        else:
            self.exchange.wake_lingering()

    def patience(self) -> float:
        timing = self.timing
        return max(timing.silence, timing.budget, 0.0 if self.state.ready else timing.deadline)

    def next_batch(self) -> Batch:
        if self._line.is_cut:  # while nothing was under way
            self.slots.builder.failed()
            self.epochs.cut()
        batch = self.slots.builder.batch(self._loop.time(), self.timing.beat, self.epochs.settling)
        batch.explain = self.explained.wants(batch, self._loop.time())
        return batch

    def read(self, batch: Batch, reply: dict[str, Any]) -> Batch | None:
        """Apply it. Returns the batch to send at once, or None; where Redis lacked candidates, the same batch."""
        if "unknown" in reply and not batch.lacked:
            self._answered_in_part()
            with readable():
                self.slots.builder.lacks(batch, reply["unknown"])
            return batch
        try:
            is_over = self._settle(batch, reply)
        finally:
            self.slots.answers.give()  # before the next batch is made
        if not is_over:
            return self.next_batch()
        if self.slots.builder.lingers:
            self.released()
        return None

    async def say_goodbye(self) -> None:
        """Give all back, once `run` has ended: else the reaper does, a lease later. Raises RedisError, OSError,
        TimeoutError."""
        if self.state.ready and self.epochs.steady_since:
            try:
                async with asyncio.timeout(self.timing.deadline):
                    await self._line.run(self.slots.builder.goodbye(), self.timing)
            finally:
                self._line.drop()

    # -- replies

    def _answered_in_part(self) -> None:
        """More is to be sent: the time that Redis may be silent for begins again."""
        if not self.state.has_refused:
            self.exchange.extend()

    def _settle(self, batch: Batch, reply: dict[str, Any]) -> bool:
        """Whether Redis has applied the batch, and has the count of what is held here."""
        slots = self.slots
        if "granted" not in reply:
            self._answered_in_part()
            self._begin_anew(reply)
            return False
        slots.builder.ran(batch)
        if reply["differs"]:
            slots.builder.differs()
        late = sum(slots.ticket_granted(key_of(name, self.holder), member) for name, member in reply["granted"])
        if late + reply["late"]:
            self._on_late(late + reply["late"])
        if batch.explain:
            self.explained.keep(batch, reply.get("seen"), self._loop.time())
        waited = bool(slots.asks.queued)
        for (ticket, left), answer in zip(slots.asks.land(), reply["answers"], strict=True):
            slots.answered(ticket, answer, left)
        if slots.asks.queued and not waited:
            self.exchange.look_soon()
        if self.epochs.has_lost(reply):
            _log.warning("ledger_lost", pool=self.pool, held=slots.held.total())
        self.epochs.follow(batch, reply, self._line.sent, self._loop.time(), self.timing)
        if batch.fresh and not batch.full:
            self._answered_in_part()
            return False
        self._follow(reply)
        return True

    def _begin_anew(self, reply: dict[str, Any]) -> None:
        """Redis has no holder of this name. Where its lease may have ended, its slots were given away, and are
        added again under another name; else Redis has lost all holders."""
        self.slots.builder.begin_anew()
        self.slots.asks.turn_back()
        if self.epochs.renamed(reply, self._loop.time(), self.timing.lease):
            self._line.rename()
            _log.warning("ledger_lease_ended", pool=self.pool, held=self.slots.held.total())
        else:
            raise ConnectionError("Redis has lost the ledger")

    def _follow(self, reply: dict[str, Any]) -> None:
        asks, settling = self.slots.asks, self.epochs.settling
        was_shared, was_settling = self.state.is_shared, asks.parks
        self.state.follow(reply, self._line.sent)
        undecided: Sequence[Ask] = ()
        if settling and not was_settling:
            undecided = asks.park()
            self.exchange.look_soon()
        elif was_settling and not settling:
            asks.unpark()
        if not settling:
            self.slots.builder.settled()
        if not was_shared or settling != was_settling:
            self._on_change(undecided)

    # -- no reply

    def fall_behind(self) -> None:
        """Redis has not answered for the budget: asks that cannot wait any longer are handed back."""
        if self.state.fall_behind():
            self._on_change(self.slots.asks.hand_back_hurried())

    def failed(self, error: Exception, is_over: bool) -> bool:
        """A batch was run or not. Whether Redis may still serve in a moment."""
        waits = self.state.ready and not is_over and may_pass(error)
        if not waits:
            self._give_up(error)
        self.state.fail(error)
        self.slots.builder.failed()
        self.slots.asks.turn_back()
        if not isinstance(error, TimeoutError):
            self.epochs.cut()
        if isinstance(error, ResponseError | InvalidResponse):
            self._on_damage()
        return waits

    def pause(self) -> float:
        longest = self.timing.longest_retry if self.state.ready else self.timing.longest_backoff
        return self._backoff.pause(self._loop.time(), self.timing.backoff, longest)

    def _give_up(self, error: Exception) -> None:
        undecided, was_ready = self.slots.asks.hand_back(), self.state.give_up(error)
        self.epochs.given_up()
        self.slots.asks.unpark()
        if was_ready:
            self._on_change(undecided)
