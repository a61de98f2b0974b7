"""What a lane has yet to say to Redis, and the batch that says it next. No I/O; the time is passed in."""

from collections import Counter
from collections.abc import Mapping

from slb.control.asks import Asks
from slb.control.batch import Batch
from slb.control.views import Views


class Outgoing:
    """`held`, `asks` and `views` are the lane's own, read when a batch is made. Deltas wait here until a batch
    carries them; a full batch says whole what they would come to, so they end with it. Times are the event loop's,
    in seconds; `beat_due` is when all is said again at the latest."""

    def __init__(self, held: Mapping[str, int], asks: Asks, views: Views) -> None:
        self.beat_due = 0.0
        self._held = held
        self._asks = asks
        self._views = views
        self._released: Counter[str] = Counter()
        self._left: list[int] = []
        self._changed: set[str] = set()
        self._join = True
        self._fresh = True
        self._untold = True
        self._owes_queue = False
        self._full = True
        self._look = False
        self._hurries = False
        self._seq = 0

    # -- what happens

    def release(self, member: str) -> None:
        """A slot is free again. It goes with whatever batch is next; `hurry` makes one due."""
        self._released[member] += 1

    def hurry(self) -> None:
        """What has been released has waited long enough."""
        self._hurries = True

    def leave(self, key: int) -> None:
        """Nobody waits for this ticket any more."""
        self._left.append(key)

    def change(self, view: str) -> None:
        """Those who wait there have other candidates now."""
        self._changed.add(view)

    def look(self) -> None:
        """There may be an answer to be had: a batch is due, if only an empty one."""
        self._look = True

    def say_all(self) -> None:
        """The next batch is a full one."""
        self._full = True

    # -- what is due

    def is_due(self, now: float) -> bool:
        """Whether a batch is to be sent."""
        is_urgent = self._full or self._look or self._hurries or self._left or self._changed or self._asks.pending
        return bool(is_urgent) or now >= self.beat_due

    @property
    def is_idle(self) -> bool:
        """Whether Redis knows of all that has ended here."""
        return not (self._released or self._left)

    @property
    def is_full(self) -> bool:
        """Whether the next batch has to be a full one, beat or not."""
        return self._full

    def keeps(self) -> set[str]:
        """The routes that batches to come name."""
        return self._asks.views() | self._changed

    # -- batches

    def batch(self, now: float, beat: float, settling: bool) -> Batch:
        """The next one, taken out of here. The first on a connection only looks which Redis that is, and takes
        nothing out. Nobody asks, or waits in its queue, before it has been told all: it may have lost what others
        hold. While `settling` nobody waits there either."""
        if self._fresh and not self._join:
            self._seq += 1
            return Batch(self._seq, fresh=True, settling=settling)
        is_beat = now >= self.beat_due
        is_full = self._full or is_beat
        if is_full:
            self.beat_due = now + beat
        if not self._untold:
            self._asks.board()
        says_who_waits = is_full and not (settling or self._join)
        if is_full:
            self._owes_queue = not says_who_waits and bool(self._asks.queued)
        self._seq += 1
        made = Batch(
            seq=self._seq,
            join=self._join,
            fresh=self._fresh,
            settling=settling,
            full=is_full,
            beat=is_beat,
            held=dict(self._held) if is_full else {},
            waiting=list(self._asks.queued.values()) if says_who_waits else (),
            release={} if is_full else dict(self._released),
            leave=() if is_full else self._left,
            changed=tuple(self._changed),
            asks=list(self._asks.flying.values()),
        )
        made.views = self._views.packed({ticket.ask.view for ticket in (*made.asks, *made.waiting)} | self._changed)
        self._clear()
        return made

    def _clear(self) -> None:
        self._released, self._left, self._changed = Counter(), [], set()
        self._full = self._look = self._hurries = False

    def goodbye(self) -> Batch:
        """The last one: all is given back."""
        self._seq += 1
        return Batch(self._seq, full=True, bye=True)

    # -- what became of the batch

    def ran(self, batch: Batch) -> None:
        """Redis knows this holder, and this connection."""
        self._join = self._fresh = False
        self._untold = self._untold and not batch.full

    def settled(self) -> None:
        """Redis knows what everybody holds: who waits here may have what is free."""
        self._full = self._full or self._owes_queue

    def failed(self) -> None:
        """It was run or not: after the first by another connection, one says all."""
        self._fresh = self._untold = self._full = True

    def begin_anew(self) -> None:
        """Redis knows nothing of this holder."""
        self._join = True
        self.failed()
