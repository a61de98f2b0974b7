"""When a slot of a model frees: nobody knows, so what was seen so far is followed. Whole numbers, as in Lua.

`long` follows how long slots are held, so that nine in ten are free by then: each sample moves it up by nine small
steps, or down by one. Of several slots one frees about that many times sooner.

A slot that frees shortly before somebody is due is kept for them; any other goes to whoever comes along. How long
before is what `stretch` follows: where callers came back and found no slot, longer, and those who wait are spaced
as much more widely. So slots stand empty only for a small part of the time between two who were told to wait.
"""

_SHORT_BACKOFF = 250
"""Milliseconds, where nothing is known yet: durations are not guessed."""

_ONE = 1_000
_LEAST, _START, _MOST = _ONE // 16, _ONE, 16 * _ONE
_FEW = 16
"""With so many slots and more, those who wait are as far apart as slots are kept for them; with fewer up to four
times as far."""

_SURE = 32
"""Samples of how long slots are held after which it is worth learning more from who comes back."""


class Holding:
    """`long` in milliseconds, 0 before the first task has ended; `seen`: how many have, at most twice `_SURE`;
    `stretch`: how long a slot is kept, in thousandths
    of the time within which one of the slots frees."""

    def __init__(self) -> None:
        self.long = 0
        self.seen = 0
        self.stretch = _START

    def saw(self, held: int) -> None:
        """A task has ended after so many milliseconds."""
        held = max(1, held)
        self.seen = min(2 * _SURE, self.seen + 1)
        small = max(1, self.long // max(8, self.seen))
        self.long = max(1, self.long + (9 * small if held > self.long else -small)) if self.long else held

    def came_back(self, found_one: bool, slots: int, kept: int) -> None:
        """Somebody who was told when one of so many slots would be free, by when slots were `kept` for so long. It
        rests where one in 14 finds none; but who was told when much shorter was thought enough teaches nothing."""
        if self.seen < _SURE:
            return
        if found_one:
            self.stretch = max(_LEAST, self.stretch - self.stretch // 32)
        elif 2 * kept > self.kept(slots):
            self.stretch = min(_MOST, 4 * _ONE * slots, self.stretch + self.stretch // 2)

    def kept(self, slots: int) -> int:
        """For how many milliseconds before somebody is due a slot is kept for them."""
        return self.long * self.stretch // (_ONE * slots)

    def apart(self, slots: int, oldest: int) -> int:
        """Milliseconds between two who wait. `oldest`: for how long the task has been running that began first."""
        if self.long == 0:  # whoever still runs has run for so long, and may for as long again
            return max(_SHORT_BACKOFF, oldest) // slots
        return max(1, self.kept(slots) * max(_ONE, min(4 * _ONE, _FEW * _ONE // slots)) // _ONE)
