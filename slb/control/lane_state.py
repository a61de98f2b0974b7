"""Whether Redis decides for a lane, as far as its batches have shown."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from redis.exceptions import InvalidResponse, ResponseError


class LaneState:
    """`ready`: Redis answers (assumed at the start). `late`: it takes longer than the budget.
    `silent`: it did not answer, and `error` is why; `answered`: it ever has. `queued`: how many wait in the whole
    pool; `others`: how many of them not for jobs, as Redis had it at `told` or later, in seconds of the loop's
    clock. `number`: the last place that was given there before the last batch's asks."""

    def __init__(self) -> None:
        self.ready = True
        self.late = False
        self.silent = False
        self.error = "not connected yet"
        self.answered = asyncio.Event()
        self.queued = self.others = 0
        self.told = -math.inf
        self.number = 0
        self._failure: Exception | None = None

    @property
    def is_shared(self) -> bool:
        """Whether Redis decides, and soon enough for asks that are not patient."""
        return self.ready and not self.late

    @property
    def has_refused(self) -> bool:
        """Whether Redis has refused a call since its last success: that counts as silence."""
        return isinstance(self._failure, ResponseError | InvalidResponse)

    def fall_behind(self) -> bool:
        """Redis has not answered for the budget. Whether that is new."""
        is_new = self.is_shared
        self.late = self.late or is_new
        return is_new

    def follow(self, reply: Mapping[str, Any], sent: float) -> None:
        """The reply to a batch that was `sent` then."""
        self.ready, self.late, self.silent, self.error, self._failure = True, False, False, "", None
        self.answered.set()
        self.queued = reply["queued"]
        if reply["jobs"] is not False:
            self.others, self.told = reply["queued"] - reply["jobs"], sent
        if reply["number"] is not False:
            self.number = reply["number"]

    def fail(self, error: Exception) -> None:
        self._failure = error

    def give_up(self, error: Exception) -> bool:
        """Nothing is decided by Redis until it answers again. `error`: why; where time was up, the last failure.
        Whether that is new."""
        why = self._failure or error if isinstance(error, TimeoutError) else error
        was_ready = self.ready
        self.ready = self.late = False
        self.silent = not isinstance(why, ResponseError)
        self.error = str(why) or "no answer in time"
        return was_ready
