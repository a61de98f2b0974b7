"""A token bucket, and beside it what was admitted in the last minute.

The bucket alone would hold any minute to its limit and one bucket, were nothing ever given back. A task that ends
with fewer tokens than it had estimated, or is abandoned, gives back what may long have been refilled; so what was
admitted is also counted by when it was, less what came back of it, and that count is held to the same bound.

Tokens are counted in 1/60000, so that a limit of one token a minute is one unit a millisecond and nothing is ever
rounded; `control/lua/quota.lua` does the same sums.
"""

from collections import deque

UNIT = 60_000
SLOT = 500
"""Milliseconds the minute is counted in: a minute and one of these is what is held to the bound."""

MINUTE = 60_000 // SLOT

_ONE = 1_000
_LEAST, _MOST = _ONE // 4, 4 * _ONE
_MEMORY = 32
"""Tasks that what is promised is judged by."""


class Bucket:
    """Full at first; times are milliseconds. `minute`: tokens admitted in the last minute, less what came back.
    `margin`: what promises leave in it, since tasks that take more than they had estimated make those late that
    come after them. It follows by how much they were. `estimated` and `spent`: what the last tasks had estimated,
    and what they came to: so will what is promised."""

    def __init__(self, limit: int, size: int, now: int) -> None:
        self.limit = limit
        self.cap = size * UNIT
        self.level = self.cap
        self.at = now
        self.minute = 0
        self.margin = 0
        self.estimated = self.spent = size
        self._slots: deque[list[int]] = deque()  # [number of the half second, tokens]

    def refill(self, now: int) -> None:
        """Up to `now`."""
        self.level = min(self.cap, self.level + (now - self.at) * self.limit)
        self.at = now
        while self._slots and self._slots[0][0] < now // SLOT - MINUTE:
            self.minute -= self._slots.popleft()[1]

    @property
    def is_unused(self) -> bool:
        """Whether it is as a new one would be."""
        return self.level == self.cap and self.minute == 0

    def resize(self, limit: int, size: int) -> None:
        """Another limit from now on. What was admitted in the last minute counts against it; of a debt no more is
        left than a bucket of now."""
        self.limit, self.cap = limit, size * UNIT
        self.level = max(-self.cap, min(self.level, self.cap))
        self.margin = min(self.margin, self.cap // 4)

    @property
    def fills_in(self) -> int:
        """Milliseconds, from empty."""
        return -(-self.cap // self.limit)

    def take(self, tokens: int) -> None:
        """Take out what has to be there."""
        self.level -= tokens * UNIT
        self._count(self.at // SLOT, tokens)

    def give_back(self, tokens: int, taken_at: int) -> None:
        """Some of what was taken then: at most until the bucket is full."""
        self.level = min(self.cap, self.level + tokens * UNIT)
        self._count(taken_at // SLOT, -tokens)

    def charge(self, tokens: int, taken_at: int) -> int:
        """What a task took over its estimate, as a debt of at most one bucket; how much of it was charged. The debt
        may be deeper already, by as much as was admitted too soon (`leeway`)."""
        debt = max(0, min(tokens * UNIT, self.level + self.cap))
        self.level -= debt
        self._count(taken_at // SLOT, debt // UNIT)
        return debt // UNIT

    def settled(self, estimate: int, spent: int) -> None:
        """A task has ended that came to so many."""
        self.estimated += estimate - self.estimated // _MEMORY
        self.spent += spent - self.spent // _MEMORY

    def come_to(self, promised: int) -> int:
        """What so many promised tokens will be, by what tasks came to of late."""
        share = self.spent * _ONE // self.estimated
        if share < _ONE:  # a tenth is left for those that are not as most are
            share = max(_LEAST, min(_ONE, share * 11 // 10))
        return promised * min(_MOST, share) // _ONE

    def wait(self, tokens: int, promised: int, leeway: int = 0) -> int:
        """Milliseconds until so many may go beyond what is promised. `leeway`: by so many milliseconds it may be
        too soon; the minute's count is held to its bound all the same."""
        short = (tokens + self.come_to(promised)) * UNIT - self.level - leeway * self.limit
        if short > 0 or promised:
            short += max(0, min(self.margin, (self.cap - tokens * UNIT) // 4))
        return max(0 if short <= 0 else -(-short // self.limit), self._wait_for_minute(tokens))

    def came_back(self, tokens: int, found_them: bool) -> None:
        """Somebody who was told when so many would be there."""
        if found_them:
            self.margin -= self.margin // 32
        else:
            self.margin = min(self.cap // 4, self.margin + max(0, tokens * UNIT - self.level))

    def _wait_for_minute(self, tokens: int) -> int:
        """Milliseconds until enough of what counts in the last minute has gone out of it."""
        over = (self.minute + tokens - self.limit) * UNIT - self.cap
        wait = 0
        for slot, taken in self._slots:
            if over <= 0:
                break
            over -= taken * UNIT
            wait = (slot + MINUTE + 1) * SLOT - self.at
        return wait

    def _count(self, slot: int, tokens: int) -> None:
        """A slot that has gone is not counted any more."""
        if slot == self.at // SLOT and tokens > 0 and (not self._slots or self._slots[-1][0] != slot):
            self._slots.append([slot, 0])
        for each in reversed(self._slots):
            if each[0] == slot:
                each[1] += tokens
                self.minute += tokens
            if each[0] <= slot:
                return
