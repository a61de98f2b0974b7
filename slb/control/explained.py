"""The scores that an ask found in Redis, kept to be explained: of some asks, since it costs Redis about
half as much as the ask itself."""

from slb.balance.asking import Scores
from slb.control.batch import Batch, Seen

_EVERY = 0.1
_BURST = 10
"""Of a view one ask in `_EVERY` seconds is explained; beyond that one of a lane, in bursts of `_BURST`."""


class Explained:
    """`seen`: by view an ask that was its batch's last: the last one, or where many come, one that came at most
    0.1 s before. Times are the event loop's, in seconds."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self._paid_until = 0.0

    def wants(self, batch: Batch, now: float) -> bool:
        """Whether the reply is to explain the decision of this batch's last ask."""
        if not batch.asks:
            return False
        known = self.seen.get(batch.asks[-1].ask.view)
        if known is None or now - known.at >= _EVERY:
            return True
        self._paid_until = max(self._paid_until, now - _BURST * _EVERY)
        if self._paid_until + _EVERY > now:
            return False
        self._paid_until += _EVERY
        return True

    def keep(self, batch: Batch, scores: dict[str, int] | None, now: float) -> None:
        """The scores; None where there were too many."""
        ask = batch.asks[-1].ask
        if scores is not None:
            ask.scores = Scores(scores, now)
        self.seen[ask.view] = Seen(ask, scores, now)
