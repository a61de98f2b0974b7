"""What a lane has yet to send to Redis, and the next batch of it. No I/O; the time is passed in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slb.control.asks import Asks
from slb.control.batch import MOST_ASKS, Batch, Ticket
from slb.control.parts import Parts
from slb.control.views import Views


@dataclass(slots=True)
class _Deltas:
    """What has changed since the last batch. `hurries`: releases, or grants that were taken, make one due; `look`:
    so does an answer that Redis may have."""

    released: dict[str, int] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    hurries: bool = False
    look: bool = False


class BatchBuilder:
    """`held`, `asks` and `views` are the lane's own, read when a batch is made. Deltas wait here until a batch
    carries them; a full batch carries the result of all deltas, so they end with it. Where more tickets wait than
    fit into one batch, those behind it carry the rest, and no asks before. Times are the event loop's, in seconds;
    `beat_due` is when all is sent again at the latest."""

    def __init__(self, held: Mapping[str, int], asks: Asks, views: Views) -> None:
        self.beat_due = 0.0
        self._held = held
        self._asks = asks
        self._views = views
        self._deltas = _Deltas()
        self._taken: dict[int, str] = {}
        self._join = True
        self._fresh = True
        self._owes_full = True
        self._owes_queue = False
        self._full = True
        self._seq = 0
        self._parts = Parts(held, asks)

    # -- what happens

    def release(self, member: str) -> None:
        """A slot is free again. It goes with whatever batch is next; `hurry` makes one due."""
        released = self._deltas.released
        released[member] = released.get(member, 0) + 1

    def hurry(self) -> None:
        """Releases have waited long enough: a batch is due."""
        self._deltas.hurries = True

    def leave(self, key: int) -> None:
        """No request waits for this ticket any more."""
        self._deltas.left.append(key)

    def take(self, key: int, member: str) -> None:
        """A message brought this grant, and it is used: the next batch, which is due now, acknowledges it."""
        self._taken[key] = member
        self._deltas.hurries = True

    def was_taken(self, key: int, member: str) -> bool:
        """Whether the grant in a reply was taken from a message. Then nothing is left to acknowledge."""
        if self._taken.get(key) != member:
            return False
        del self._taken[key]
        return True

    def is_overtaken(self, key: int) -> bool:
        """A reply grants this ticket another slot. Whether it uses one that a message granted, and Redis must have
        taken back since: then the next batch carries all that is held, this slot too."""
        if self._taken.pop(key, None) is None:
            return False
        self._full = True
        return True

    def change(self, view: str) -> None:
        """Requests that wait there have other candidates now."""
        self._deltas.changed.add(view)

    def look(self) -> None:
        """Redis may have an answer: a batch is due, even an empty one."""
        self._deltas.look = True

    def send_all(self) -> None:
        """The next batch is a full one."""
        self._full = True

    def differs(self) -> None:
        """Redis's count differs: the next batch is a full one, unless parts of one are still to be sent."""
        self._full = self._full or not self._parts.unsent

    # -- what is due

    def is_due(self, now: float) -> bool:
        """Whether a batch is to be sent."""
        return self._is_urgent or self._deltas.hurries or now >= self.beat_due

    @property
    def _is_urgent(self) -> bool:
        """Whether there is more to send, or to ask, than releases and which grants have been taken."""
        deltas = self._deltas
        of_itself = self._full or deltas.look or deltas.left or deltas.changed or self._parts.unsent
        return bool(of_itself or self._asks.pending)

    @property
    def lingers(self) -> bool:
        """Whether releases wait for a batch, and make none due."""
        return bool(self._deltas.released) and not self._deltas.hurries

    @property
    def is_idle(self) -> bool:
        """Whether Redis has all releases, departures and accepted grants of this lane."""
        return not (self._deltas.released or self._deltas.left or self._taken)

    def keeps(self) -> set[str]:
        """The routes that batches to come name."""
        return self._asks.views() | self._deltas.changed

    # -- batches

    def batch(self, now: float, beat: float, settling: bool) -> Batch:
        """The next one, taken out of here. The first on a connection only checks which Redis that is, and takes
        nothing out. No ask is sent, or waits in Redis's queue, before Redis has all counts: it may have lost what
        others hold. While `settling` nothing waits there either. All other batches acknowledge the grants that were
        taken, until one of them has been run."""
        self._seq += 1
        if self._fresh and not self._join:
            return Batch(self._seq, fresh=True, settling=settling)
        is_beat, deltas = now >= self.beat_due, self._deltas
        if self._taken and not (is_beat or settling or self._owes_full or self._is_urgent or deltas.released):
            deltas.hurries = False
            return Batch(self._seq, took=dict(self._taken), only_took=True)
        is_full = self._full or (is_beat and self._parts.are_one)
        if is_beat or is_full:
            self.beat_due = now + beat
        if is_full:
            self._owes_queue = (settling or self._join) and bool(self._asks.queued)
            self._parts.begin(tickets=not self._owes_queue)
        held = dict(self._held) if is_full else {}
        waiting: Sequence[Ticket] = self._parts.next_unsent()
        if is_beat and not is_full:
            held, part = self._parts.next_of_all()
            waiting = waiting or part
        if not (self._owes_full or self._parts.unsent):
            self._asks.board()
        made = Batch(
            seq=self._seq,
            join=self._join,
            fresh=self._fresh,
            settling=settling,
            full=is_full,
            beat=is_beat,
            held=held,
            waiting=() if self._owes_queue else waiting,
            tickets=list(self._asks.queued) if is_full and not self._owes_queue else (),
            holds=len(self._held),
            waits=0 if self._owes_queue else len(self._asks.queued),
            release={} if is_full else deltas.released,
            leave=() if is_full else deltas.left[:MOST_ASKS],
            took=dict(self._taken),
            changed=tuple(deltas.changed),
            asks=list(self._asks.flying.values()),
        )
        made.views = self._views.named({each.ask.view for each in (*made.asks, *made.waiting)} | deltas.changed)
        made.contents = self._views.not_stored(made.views.values())
        made.drops = self._views.take_replaced()
        made.uses = self._views.in_use() if is_beat or is_full else ()
        self._full, self._deltas = False, _Deltas(left=[] if is_full else deltas.left[MOST_ASKS:])
        return made

    def goodbye(self) -> Batch:
        """The last one: all is given back."""
        self._seq += 1
        return Batch(self._seq, full=True, bye=True)

    # -- what became of the batch

    def ran(self, batch: Batch) -> None:
        """Redis has run `batch`: this holder and this connection are registered."""
        self._join = self._fresh = False
        self._owes_full = self._owes_full and not batch.full
        if batch.contents:
            self._views.stored(batch.contents)
        for key, member in batch.took.items():
            self.was_taken(key, member)

    def settled(self) -> None:
        """Redis has the counts of all holders: what waits here may have what is free."""
        self._full = self._full or self._owes_queue

    def lacks(self, batch: Batch, digests: list[str]) -> None:
        """Redis has not run it, since it lacked these candidates: `batch` carries them now, to be sent again."""
        batch.lacked = True
        self._views.lost()
        packed = {view.digest: view.packed for view in batch.views.values()}
        batch.contents = {digest: packed[digest] for digest in digests}

    def failed(self) -> None:
        """It may have been run or not: behind the first batch of the next connection goes a full one."""
        self._fresh = self._owes_full = self._full = True
        self._views.lost()

    def begin_anew(self) -> None:
        """Redis has no data of this holder or its grants any more."""
        self._join = True
        self._taken.clear()
        self.failed()
