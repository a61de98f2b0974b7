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
_LEAST, _START, _MOST = _ONE // 4, 2 * _ONE, 4 * _ONE
_KEPT = 4
"""One in so many parts of the time between two who wait: how long a slot is kept for the second."""


class Holding:
    """`long` in milliseconds, 0 before the first task has ended; `stretch`: how far those who wait are apart, in
    thousandths of the time within which one of the slots frees."""

    def __init__(self) -> None:
        self.long = 0
        self.stretch = _START

    def saw(self, held: int) -> None:
        """A task has ended after so many milliseconds."""
        held = max(1, held)
        small = max(1, self.long // 64)
        self.long = max(1, self.long + (9 * small if held > self.long else -small)) if self.long else held

    def came_back(self, found_one: bool, slots: int) -> None:
        """Somebody who was told when one of so many slots would be free. It rests where one in 14 finds none."""
        if self.long:
            step = -(self.stretch // 32) if found_one else self.stretch // 2
            self.stretch = min(_MOST * slots, max(_LEAST, self.stretch + step))

    def kept(self, slots: int) -> int:
        """For how many milliseconds before somebody is due a slot is kept for them."""
        return self.long * self.stretch // (_KEPT * _ONE * slots)

    def wait(self, slots: int, behind: int, oldest: int) -> int:
        """Milliseconds to tell somebody who comes after one who will be there in `behind`. `oldest`: for how long
        the task has been running that began first."""
        if self.long == 0:  # whoever still runs has run for so long, and may for as long again
            return behind + max(_SHORT_BACKOFF, oldest) // slots
        return behind + max(1, self.long * self.stretch // (_ONE * slots))
