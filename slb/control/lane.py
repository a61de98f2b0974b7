"""One instance's way to one pool's ledger: one batch in flight, and what comes meanwhile joins the next.

`held` is the truth about this instance, whatever decided; Redis gets it in deltas while all is well, and whole (a
full batch) at first, with each beat, and after anything that went wrong. A batch that has failed may have been run
or not: the full one behind it makes that the same, and what was asked in it is asked again. A Redis that answers
within `silence`, by whatever connection, has only been late: a patient ask stays here and waits for it. What a
batch says is made up in `builder`; when it is sent is decided in `exchange`; here is what is done with the reply.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Sequence
from time import monotonic
from typing import Any

import structlog
from redis.exceptions import InvalidResponse, ResponseError

from slb.backoff import Backoff
from slb.balance.asking import Ask, Candidate
from slb.control.asks import Answers, Asks, is_capped
from slb.control.batch import Batch, Ticket, key_of
from slb.control.batch_builder import BatchBuilder
from slb.control.batch_exchange import BatchExchange
from slb.control.batch_line import BatchLine
from slb.control.deadline import Deadline
from slb.control.epoch_tracker import EpochTracker
from slb.control.explained import Explained
from slb.control.granted import Granted
from slb.control.lane_timing import LaneTiming
from slb.control.resp import readable
from slb.control.retry import may_pass
from slb.control.script_line import ScriptLine
from slb.control.views import Views

_REFUSALS = frozenset({"pool_saturated", "queue_full"})

_log = structlog.get_logger()


class Lane:
    """`new_holder` makes the name leases are held under. While `ready` (at the start too: `silence` bounds it),
    asks that are patient may be brought here; the others not while it is `late`, for Redis takes longer than the
    budget, and those of capped routes not while `settling`, for Redis does not know what others hold.
    `on_change(undecided)` is called when one of the three has changed, with the asks that this lane can no longer
    decide, `on_late` with how many grants were acknowledged that Redis had taken back. `silent`: Redis did not
    answer; `answered`: it ever has. `queued`: how many wait in the whole pool; `number`: the last place that was
    given there before the last batch's asks."""

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
        self.held: Counter[str] = Counter()
        self.ready = True
        self.late = False
        self.silent = False
        self.epochs = EpochTracker()
        self.queued = 0
        self.number = 0
        self.error = "not connected yet"
        self.explained = Explained()
        self._line = BatchLine(pool, line, new_holder, start, self._answered_in_part)
        self.timing = timing
        self._on_change = on_change
        self._on_damage = on_damage
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._asks = Asks()
        self._views = Views()
        self._builder = BatchBuilder(self.held, self._asks, self._views)
        self._linger: asyncio.TimerHandle | None = None
        self._backoff = Backoff()
        self._failure: Exception | None = None
        self._exchange = BatchExchange(self._line, self)
        self.answered = asyncio.Event()
        self._tick: asyncio.TimerHandle | None = None
        self._answers = Answers()

    # -- what the gate does

    def takes(self, ask: Ask) -> bool:
        """Whether it may be brought here now; else it cannot wait for Redis, or Redis has not answered for long."""
        doubtful = self.late or (self.settling and is_capped(ask))
        return self.ready and (ask.patient or not doubtful)

    def ask(self, ask: Ask) -> None:
        """Bring one that it takes; `view` has been called for its route."""
        self._asks.bring(ask)
        self.wake()

    def leave(self, ask: Ask) -> None:
        """The asking request has left. What is granted to it all the same is given back."""
        key = self._asks.leave(ask)
        if key is not None:
            self._builder.leave(key)
            self.wake()

    def release(self, member: str) -> None:
        """A granted slot is free again."""
        self.held[member] -= 1
        if self.held[member] <= 0:
            del self.held[member]
        self._give_back(member)

    def view(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        """The candidates of a route from now on, also for tickets that wait. The same object where nothing
        changed."""
        if self._views.put(name, candidates) and any(
            ticket.ask.view == name for ticket in self._asks.known_to_redis()
        ):
            self._builder.change(name)
            self.wake()

    def unanswered(self) -> set[str]:
        """The routes of those that wait for Redis, and not in its queue."""
        return self._asks.unanswered()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, asked or to be sent."""
        return not (self.held or self._asks) and self._builder.is_idle

    def keep_views(self, names: Container[str]) -> None:
        """Forget the candidates of all routes but these, and those in which a request still waits."""
        in_use = self._builder.keeps()
        self._views.forget(lambda name: name not in names and name not in in_use)

    def say_all(self) -> None:
        """`held` was changed from outside the lane: send Redis all of it."""
        self._builder.say_all()
        self.wake()

    def hear(self, granted: Granted) -> None:
        """A message of grants: they are used at once, and acknowledged behind that. Where that is not safe, or none
        of them is for one that waits here, Redis is asked. The loop's clock shows when its turn began: the process
        may have been frozen since."""
        if self.ready and self.epochs.trusts(granted, max(self._loop.time(), monotonic()), self.timing):
            for name, member in granted.grants:
                self._take(key_of(name, self._line.holder), member)
        if self._answers:
            self._answers.give()
            self._exchange.wake_later()
        else:
            self.look()

    def look(self) -> None:
        """Something may have been granted to a ticket of ours."""
        if self._asks.queued or self._asks.flying:
            self._builder.look()
            self.wake()

    def _take(self, key: int, member: str) -> None:
        """Where this ticket waits still, and for such a slot, it is granted."""
        ticket = self._asks.queued.get(key)
        if ticket is not None and self._views.has(ticket.ask.view, member):
            self._asks.take(key)
            self._builder.take(key, member)
            self._grant(ticket.ask, member)

    def dismiss(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        """These are a route's candidates now: a request that waits there and can use none of them waits in vain."""
        left = {each.member for each in candidates}
        waiting = [ticket.ask for ticket in self._asks.queued.values() if ticket.ask.view == name]
        for ask in [ask for ask in waiting if len(ask.avoid) >= len(left) and left.issubset(ask.avoid)]:
            self.leave(ask)
            ask.refused("no_upstream")

    @property
    def settling(self) -> bool:
        """Whether Redis does not know yet what all holders have."""
        return self.epochs.settling

    # -- batches

    async def run(self) -> None:
        """Send batches until cancelled; raises what went wrong here, for the ledger is blind without its lane."""
        self._keep_time()
        try:
            await self._exchange.run()
        finally:
            for timer in (self._tick, self._linger):
                if timer is not None:
                    timer.cancel()

    def wake(self) -> None:
        """Send what is due, unless a batch is in flight."""
        self._exchange.wake()

    @property
    def in_flight(self) -> bool:
        """Whether a batch has not been answered yet."""
        return self._exchange.in_flight

    def is_due(self, now: float) -> bool:
        return self._builder.is_due(now)

    def _keep_time(self) -> None:
        """Wake the lane for its beat, and more often while something waits in the queue."""
        pause = self._builder.beat_due - self._loop.time()
        if self._asks.queued or self.settling:
            self._builder.look()
            pause = 0.0
        self.wake()
        self._tick = self._loop.call_later(max(pause, self.timing.look), self._keep_time)

    def _look_soon(self) -> None:
        """From now on there is something to look for."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = self._loop.call_later(self.timing.look, self._keep_time)

    def patience(self) -> float:
        """Seconds that Redis may be silent for."""
        timing = self.timing
        return max(timing.silence, timing.budget, 0.0 if self.ready else timing.deadline)

    def _answered_in_part(self) -> None:
        """Redis has answered, and more is to be sent: its silence begins anew. Not where it refused something
        before: that is no service, however often it answers."""
        if not isinstance(self._failure, ResponseError | InvalidResponse):
            self._exchange.extend()

    def next_batch(self) -> Batch:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._line.is_cut:  # while nothing was under way
            self._builder.failed()
            self.epochs.cut()
        batch = self._builder.batch(self._loop.time(), self.timing.beat, self.settling)
        batch.explain = self.explained.wants(batch, self._loop.time())
        return batch

    def read(self, batch: Batch, reply: dict[str, Any]) -> Batch | None:
        """Do what it says. The batch that is to follow at once, if any: where Redis lacked candidates the same."""
        if "unknown" in reply and not batch.lacked:
            self._answered_in_part()
            with readable():
                self._builder.lacks(batch, reply["unknown"])
            return batch
        try:
            is_over = self._settle(batch, reply)
        finally:
            self._answers.give()  # before the next batch is made
        return None if is_over else self.next_batch()

    def fall_behind(self) -> None:
        """Redis has not answered for the budget: asks that cannot wait any longer are handed back."""
        if self.ready and not self.late:
            self.late = True
            self._on_change(self._asks.hand_back_hurried())

    async def say_goodbye(self) -> None:
        """Give all back and leave, once `run` has ended: else the reaper would have to, a lease later. Raises
        RedisError, OSError, TimeoutError."""
        if self.ready and self.epochs.steady_since:
            try:
                with Deadline(self._loop.time() + self.timing.deadline):
                    await self._line.run(self._builder.goodbye(), self.timing)
            finally:
                self._line.drop()

    # -- replies

    def _settle(self, batch: Batch, reply: dict[str, Any]) -> bool:
        """Whether Redis has taken it up, and knows what is held here."""
        if "granted" not in reply:
            self._answered_in_part()
            self._begin_anew(reply)
            return False
        self._builder.ran(batch)
        if reply["differs"]:
            self._builder.differs()
        for name, member in reply["granted"]:
            self._ticket_granted(key_of(name, self._line.holder), member)
        if reply["late"]:
            self._on_late(reply["late"])
        if batch.explain:
            self.explained.keep(batch, reply.get("seen"), self._loop.time())
        for (ticket, left), answer in zip(self._asks.land(), reply["answers"], strict=True):
            self._answered(ticket, answer, left)
        if self.epochs.has_lost(reply):
            _log.warning("ledger_lost", pool=self.pool, held=self.held.total())
        self.epochs.follow(batch, reply, self._line.sent, self._loop.time(), self.timing)
        if batch.fresh and not batch.full:
            self._answered_in_part()
            return False
        self._follow(reply)
        return True

    def _begin_anew(self, reply: dict[str, Any]) -> None:
        """Our name is worth nothing any more. Either we were frozen, and our share has been given away: it is added
        again under another name. Or our lease cannot have ended: then Redis has lost what it knew of all."""
        self._builder.begin_anew()
        self._asks.turn_back()
        if self.epochs.renamed(reply, self._loop.time(), self.timing.lease):
            self._line.rename()
            _log.warning("ledger_lease_ended", pool=self.pool, held=self.held.total())
        else:
            raise ConnectionError("Redis has lost the ledger")

    def _ticket_granted(self, key: int, member: str) -> None:
        if self._builder.was_taken(key, member):
            return
        ticket = self._asks.take(key)
        if ticket is None:  # it has left, or has a slot
            self._give_back(member)
            if self._builder.is_overtaken(key):
                self._on_late(1)
        else:
            self._grant(ticket.ask, member)

    def _answered(self, ticket: Ticket, answer: Any, left: bool) -> None:
        if isinstance(answer, list):
            if left:
                self._builder.leave(ticket.key)
                return
            ticket.number, position = answer
            if not self._asks.queued:
                self._look_soon()
            self._asks.queue(ticket)
            self._answers.add(ticket.ask.queued, position, ticket.number)
        elif answer in _REFUSALS:
            if not left:
                self._answers.add(ticket.ask.refused, answer)
        elif left:
            self._give_back(answer)
        else:
            self._grant(ticket.ask, answer)

    def _grant(self, ask: Ask, member: str) -> None:
        self.held[member] += 1
        self._answers.add(ask.granted, member)

    def _give_back(self, member: str) -> None:
        self._builder.release(member)
        if self._views.is_capped:
            self._builder.hurry()
            self.wake()
        elif self._linger is None:  # nothing waits for it: it may go with the next ask
            self._linger = self._loop.call_later(self.timing.linger, self._release_now)

    def _release_now(self) -> None:
        self._linger = None
        self._builder.hurry()
        self.wake()

    def _follow(self, reply: dict[str, Any]) -> None:
        """What this reply says of Redis itself."""
        was_shared, was_settling = self.ready and not self.late, self._asks.parks
        self.ready, self.late, self.silent, self.error, self._failure = True, False, False, "", None
        self.answered.set()
        self.queued = reply["queued"]
        if reply["number"] is not False:
            self.number = reply["number"]
        undecided: Sequence[Ask] = ()
        if self.settling and not was_settling:
            undecided = self._asks.park()
            self._look_soon()
        elif was_settling and not self.settling:
            self._asks.unpark()
        if not self.settling:
            self._builder.settled()
        if not was_shared or self.settling != was_settling:
            self._on_change(undecided)

    def failed(self, error: Exception, is_over: bool) -> bool:
        """A batch was run or not. Whether Redis may still serve in a moment."""
        waits = self.ready and not is_over and may_pass(error)
        if not waits:
            self._give_up(error)
        self._failure = error
        self._builder.failed()
        self._asks.turn_back()
        if not isinstance(error, TimeoutError):
            self.epochs.cut()
        if isinstance(error, ResponseError | InvalidResponse):
            self._on_damage()
        return waits

    def pause(self) -> float:
        longest = self.timing.longest_retry if self.ready else self.timing.longest_backoff
        return self._backoff.pause(self._loop.time(), self.timing.backoff, longest)

    def _give_up(self, error: Exception) -> None:
        """Decide nothing here until Redis answers again. Where time was up, the last failure is the cause."""
        why = self._failure or error if isinstance(error, TimeoutError) else error
        undecided, was_ready = self._asks.hand_back(), self.ready
        self.ready = self.late = False
        self.silent = not isinstance(why, ResponseError)
        self.error = str(why) or "no answer in time"
        self.epochs.given_up()
        self._asks.unpark()
        if was_ready:
            self._on_change(undecided)
