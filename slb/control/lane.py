"""One instance's way to one pool's ledger: one batch in flight, and what comes meanwhile joins the next.

`held` is the truth about this instance, whoever decided; Redis is told of it in deltas while all is well, and
whole (a full batch) at first, with each beat, and after anything that went wrong. A batch that has failed may have
been run or not: the full one behind it makes that the same.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import orjson
from redis.exceptions import RedisError, ResponseError

from slb.balance.asking import Ask, Candidate
from slb.control import keys
from slb.control.batch import MOST_ASKS, Batch, Seen, Ticket, packed_view
from slb.control.cancelled import raise_if_cancelled
from slb.control.deadline import Deadline
from slb.control.lane_timing import LaneTiming
from slb.control.script_line import ScriptLine

_REFUSALS = frozenset({"pool_saturated", "queue_full"})


class Lane:
    """`new_holder` makes the name leases are held under. While `ready` (at the start too: the budget bounds it),
    asks may be brought here; `settling`: those of capped routes may not, for Redis does not know what others hold.
    `on_change(undecided)` is called when one of the two has changed, with the asks this lane can no longer decide.
    `steady_since`: since when it is the same Redis, and its clock the same; 0.0 before it is known. `queued`: how
    many wait in the whole pool. `seen`: by view the last ask that was the last of its batch."""

    def __init__(
        self,
        pool: str,
        line: ScriptLine,
        new_holder: Callable[[], str],
        start: int,
        timing: LaneTiming,
        on_change: Callable[[Sequence[Ask]], None],
        on_damage: Callable[[], None],
    ) -> None:
        self.pool = pool
        self.held: Counter[str] = Counter()
        self.ready = True
        self.settling = False
        self.steady_since = 0.0
        self.holders = 0
        self.queued = 0
        self.error = "not connected yet"
        self.seen: dict[str, Seen] = {}
        self._line = line
        self._keys = keys.pool_keys(pool)
        self._new_holder = new_holder
        self._holder = new_holder()
        self._start = start
        self.timing = timing
        self._on_change = on_change
        self._on_damage = on_damage
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._pending: dict[Ask, float] = {}
        self._flying: dict[Ask, Ticket] = {}
        self._oldest = 0.0
        self._left_in_flight: set[Ask] = set()
        self._tickets: dict[int, Ticket] = {}
        self._key_of: dict[Ask, int] = {}
        self._next_key = 0
        self._released: Counter[str] = Counter()
        self._release_due = False
        self._linger: asyncio.TimerHandle | None = None
        self._is_capped = False
        self._left: list[int] = []
        self._views: dict[str, tuple[tuple[Candidate, ...], Any]] = {}
        self._changed: set[str] = set()
        self._join = True
        self._full = True
        self._look = False
        self._beat_due = 0.0
        self._seq = 0
        self._acknowledged = 0
        self._heard = 0.0
        self._failures = 0
        self._redis_time = 0, 0.0
        self._since = 0
        self._settled_at = 0.0
        self._limit: Deadline | None = None
        self._tick: asyncio.TimerHandle | None = None

    # -- what the gate does

    def ask(self, ask: Ask) -> None:
        """Bring an ask; `view` has been called for its route. Only while `ready`."""
        now = self._loop.time()
        if not self._pending and self._limit is not None and not self._flying:
            self._limit.not_after(now + self.timing.budget)
        self._pending[ask] = now
        self._wake.set()

    def leave(self, ask: Ask) -> None:
        """Whoever asked has left. What is granted to it all the same is given back."""
        if self._pending.pop(ask, None) is not None:
            return
        if ask in self._flying:
            self._left_in_flight.add(ask)
        elif (key := self._key_of.pop(ask, None)) is not None:
            del self._tickets[key]
            self._left.append(key)
            self._wake.set()

    def release(self, member: str) -> None:
        """A granted slot is free again."""
        self.held[member] -= 1
        if self.held[member] <= 0:
            del self.held[member]
        self._give_back(member)

    def view(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        """The candidates of a route from now on, also for those who wait. The same object where nothing changed."""
        known = self._views.get(name)
        if known is not None and known[0] is candidates:
            return
        self._views[name] = candidates, packed_view(candidates)
        self._is_capped = any(each.capacity for known, _ in self._views.values() for each in known)
        if any(ticket.ask.view == name for ticket in (*self._tickets.values(), *self._flying.values())):
            self._changed.add(name)
            self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, asked or to be said."""
        return not (self.held or self._pending or self._flying or self._tickets or self._released or self._left)

    def say_all(self) -> None:
        """`held` has been changed by somebody else: tell Redis all of it."""
        self._full = True
        self._wake.set()

    def look(self) -> None:
        """Something may have been granted to a ticket of ours."""
        if self._tickets:
            self._look = True
            self._wake.set()

    def dismiss(self, name: str) -> None:
        """A route has no candidates any more: who waits there waits for nothing."""
        for ticket in [ticket for ticket in self._tickets.values() if ticket.ask.view == name]:
            self.leave(ticket.ask)
            ticket.ask.refused("no_upstream")

    @property
    def redis_time(self) -> int:
        """What Redis's clock shows by now, as far as is known: milliseconds."""
        said, heard_at = self._redis_time
        return said + int((self._loop.time() - heard_at) * 1000)

    # -- batches

    async def run(self) -> None:
        """Send batches until cancelled."""
        self._keep_time()
        try:
            while True:
                await self._until_due()
                try:
                    await self._send()
                except (RedisError, OSError, TimeoutError) as error:
                    await self._fail(error)
                raise_if_cancelled()
        finally:
            if self._tick is not None:
                self._tick.cancel()
            await self._line.drop()

    async def _until_due(self) -> None:
        while not (self._full or self._look or self._pending or self._release_due or self._left or self._changed):
            if self._loop.time() >= self._beat_due:
                return
            self._wake.clear()
            await self._wake.wait()

    def _keep_time(self) -> None:
        """Wake the lane for its beat, and more often while something waits in the queue."""
        now = self._loop.time()
        if self._tickets or self.settling:
            self._look = True
        self._wake.set()
        pause = self.timing.look if self._tickets or self.settling else max(self._beat_due - now, 0.0)
        self._tick = self._loop.call_later(max(pause, self.timing.look), self._keep_time)

    async def _send(self) -> None:
        batch = self._compose()
        try:
            async with Deadline(self._due()) as self._limit:
                reply = await self._say(batch)
        finally:
            self._limit = None
        self._settle(batch, reply)

    def _due(self) -> float:
        """When the batch to be sent has taken too long: the first to ask bounds it for all."""
        timing = self.timing
        arrived = self._oldest if self._flying else next(iter(self._pending.values()), None)
        if arrived is not None:
            return arrived + timing.budget
        return self._loop.time() + max(timing.deadline, timing.budget)

    async def say_goodbye(self) -> None:
        """Give all back and leave, once `run` has ended: else the reaper would have to, a lease later. Raises
        RedisError, OSError, TimeoutError."""
        if self.ready and self.steady_since:
            self._seq += 1
            bye = Batch(self._seq, False, True, False, {}, (), {}, (), (), (), bye=True)
            try:
                async with Deadline(self._loop.time() + self.timing.deadline):
                    await self._say(bye)
            finally:
                await self._line.drop()

    async def _say(self, batch: Batch) -> Any:
        timing = self.timing
        data = batch.encode(
            self._holder,
            self._start,
            self._since,
            lease=int(timing.lease * 1000),
            life=int(timing.life * 1000),
            patience=int(timing.patience * 1000),
        )
        self._start = (self._start + len(batch.asks)) % (1 << 30)
        return orjson.loads(await self._line.call(self._keys, (data, keys.GRANTED_CHANNEL, self.pool)))

    def _compose(self) -> Batch:
        self._seq += 1
        now = self._loop.time()
        beat = now >= self._beat_due
        full = self._full or beat
        self._full = self._look = False
        if beat or full:
            self._beat_due = now + self.timing.beat
        batch = Batch(
            seq=self._seq,
            join=self._join,
            full=full,
            beat=beat,
            held=dict(self.held) if full else {},
            waiting=list(self._tickets.values()) if full else (),
            release={} if full else dict(self._released),
            leave=() if full else self._left,
            changed=tuple(self._changed),
            asks=self._board(),
        )
        self._released, self._left, self._changed = Counter(), [], set()
        self._release_due = False
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        names = {ticket.ask.view for ticket in (*batch.asks, *batch.waiting)}
        batch.views = {name: self._views[name][1] for name in names.union(batch.changed)}
        return batch

    def _board(self) -> list[Ticket]:
        """The asks that go with the next batch: at most so many, in the order they came."""
        boarding = list(islice(self._pending, MOST_ASKS)) if self.ready else []
        if boarding:
            self._oldest = self._pending[boarding[0]]
        for ask in boarding:
            del self._pending[ask]
            self._next_key += 1
            self._flying[ask] = Ticket(self._next_key, ask)
        return list(self._flying.values())

    # -- replies

    def _settle(self, batch: Batch, reply: dict[str, Any]) -> None:
        if "granted" not in reply:
            self._begin_anew()
            return
        self._join = False
        for name, member in reply["granted"]:
            self._ticket_granted(int(name.rpartition("/")[2]), member)
        flying, self._flying = self._flying, {}
        left, self._left_in_flight = self._left_in_flight, set()
        if batch.asks:
            ask = batch.asks[-1].ask
            self.seen[ask.view] = Seen(ask, reply["seen"], self._loop.time())
        for ticket, answer in zip(flying.values(), reply["answers"], strict=True):
            self._answered(ticket, answer, ticket.ask in left)
        self._follow(batch, reply)

    def _begin_anew(self) -> None:
        """Our name is worth nothing any more. Either we were frozen, and our share has been given away: it is added
        again under another name. Or our lease cannot have ended: then Redis has lost what it knew of everybody."""
        self._join = True
        if self._loop.time() - self._heard < self.timing.lease:
            raise ConnectionError("Redis has lost the ledger")
        self._holder = self._new_holder()
        self._acknowledged = 0
        self._full = True
        again = {ask: self._oldest for ask in self._flying if ask not in self._left_in_flight}
        self._pending = again | self._pending
        self._flying.clear()
        self._left_in_flight.clear()

    def _ticket_granted(self, key: int, member: str) -> None:
        ticket = self._tickets.pop(key, None)
        if ticket is None:  # it has left
            self._give_back(member)
            return
        del self._key_of[ticket.ask]
        self._grant(ticket.ask, member)

    def _answered(self, ticket: Ticket, answer: Any, left: bool) -> None:
        if isinstance(answer, list):
            if left:
                self._left.append(ticket.key)
                return
            ticket.number, position = answer
            if not self._tickets and self._tick is not None:
                self._tick.cancel()
                self._tick = self._loop.call_later(self.timing.look, self._keep_time)
            self._tickets[ticket.key] = ticket
            self._key_of[ticket.ask] = ticket.key
            self._loop.call_soon(ticket.ask.queued, position)
        elif answer in _REFUSALS:
            if not left:
                self._loop.call_soon(ticket.ask.refused, answer)
        elif left:
            self._give_back(answer)
        else:
            self._grant(ticket.ask, answer)

    def _grant(self, ask: Ask, member: str) -> None:
        self.held[member] += 1
        self._loop.call_soon(ask.granted, member)

    def _give_back(self, member: str) -> None:
        self._released[member] += 1
        if self._is_capped:
            self._release_due = True
            self._wake.set()
        elif self._linger is None:  # nobody waits for it: it may go with the next ask
            self._linger = self._loop.call_later(self.timing.linger, self._release_now)

    def _release_now(self) -> None:
        self._linger = None
        self._release_due = True
        self._wake.set()

    def _follow(self, batch: Batch, reply: dict[str, Any]) -> None:
        """What this reply says of Redis itself."""
        now = self._loop.time()
        was_away = bool(self._failures) or now - self._heard < self.timing.lease
        lost = was_away and reply["last"] < self._acknowledged
        self._acknowledged = batch.seq
        if batch.full:  # only these renew the lease
            self._heard = now
        self._failures = 0
        self.queued = reply["queued"]
        self.error = ""
        if reply["now"] - self.redis_time > self.timing.lease * 500:  # its clock has jumped: leases have not ended
            self.steady_since = 0.0
        self.steady_since = self.steady_since or now
        self._redis_time = reply["now"], now
        if not self.ready:
            self.ready = True
            if lost:
                self._since = int(reply["now"])
                self._settled_at = now + self.timing.settle
                self.settling = True
            self._on_change(())
        elif self.settling:
            if now >= self._settled_at or (self._since and reply["pushed"] >= self.holders):
                self.settling = False
                self._since = 0
                self._on_change(())
        else:
            self.holders = int(reply["holders"])

    async def _fail(self, error: Exception) -> None:
        """Decide nothing here until Redis answers again, and then say all anew."""
        self._full = True
        undecided = [*self._flying, *self._pending]
        undecided = [ask for ask in undecided if ask not in self._left_in_flight]
        waiting = sorted(self._tickets.values(), key=lambda ticket: ticket.number)
        self._flying.clear()
        self._left_in_flight.clear()
        self._pending.clear()
        self._tickets.clear()
        self._key_of.clear()
        self.ready = self.settling = False
        if not isinstance(error, TimeoutError):  # it may be another Redis, or an older one, that answers next
            self.steady_since = 0.0
        self.error = str(error) or "no answer in time"
        self._on_change([*(ticket.ask for ticket in waiting), *undecided])
        if isinstance(error, ResponseError):
            self._on_damage()
        await self._line.drop()
        pause = min(self.timing.backoff * 2**self._failures, self.timing.longest_backoff)
        self._failures = min(self._failures + 1, 16)
        await asyncio.sleep(pause)
