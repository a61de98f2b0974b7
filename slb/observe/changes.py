"""What has changed in the fleet by this process, or as it has seen: noted here by whoever does it, and written to
Redis by `control/change_log.py` for all to read.

To note is an append; it never waits. Each event is noted once: what is common to all (a registration, the result of
a check) by the instance that did it, what each finds for itself (an ejection, panic, the loss of Redis) by each.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

MOST_WAITING = 500
"""Changes that wait while Redis is away, the last ones."""
LONGEST = 300
"""Characters of a subject or a detail, as they are kept."""

What = Literal[
    "registered",
    "deregistered",
    "lease_ended",
    "drained",
    "undrained",
    "attributes_changed",
    "settings_changed",
    "route_removed",
    "ejected",
    "recovered",
    "stuck",
    "stuck_ended",
    "check_failed",
    "check_passed",
    "check_disputed",
    "flapping",
    "panic_began",
    "panic_ended",
    "isolated",
    "isolation_ended",
    "let_back",
    "started",
    "stopping",
    "stopped",
    "died",
    "reloaded",
    "reload_refused",
    "redis_lost",
    "redis_back",
    "redis_replaced",
    "job_retried",
    "job_removed",
    "model_paused",
    "model_resumed",
    "discovery_taken_over",
]


class Change(NamedTuple):
    """`time`: seconds since 1970, by this machine's clock. `subject`: an upstream, a route, a model, an instance;
    `detail`: the rest, in words; `by`: the name of the token that a caller had."""

    time: float
    what: What
    subject: str
    detail: str
    by: str


Note = Callable[[What, str, str], None]
"""Called with what, the subject, and the detail."""


def unnoted(what: What, subject: str, detail: str) -> None:
    """A `Note` for parts whose changes nobody reads."""


class Changes:
    """`on_note` is called with each."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._waiting: deque[Change] = deque(maxlen=MOST_WAITING)
        self.on_note: Callable[[], None] = lambda: None

    def note(self, what: What, subject: str, detail: str = "", by: str = "") -> None:
        self._waiting.append(Change(self._clock(), what, subject[:LONGEST], detail[:LONGEST], by))
        self.on_note()

    def take(self, most: int) -> list[Change]:
        """The oldest that wait, which are to be written now."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def put_back(self, changes: Sequence[Change]) -> None:
        """They were not written. Where more wait by now than may, the oldest are lost."""
        room = MOST_WAITING - len(self._waiting)
        for each in reversed(changes[-room:] if room else ()):
            self._waiting.appendleft(each)

    def __len__(self) -> int:
        return len(self._waiting)
