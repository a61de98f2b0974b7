"""What was decided of the last requests of this process, to be found by their ids.

On the way of a request it is one append of a tuple, 0.2 us; all else is done when somebody asks. Requests that went
straight to an upstream, those with something to tell, and those that had no route or were no requests have a ring
each: a flood of one kind displaces nothing of the others. 18,432 of them in all are kept, some 8 MB at most.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_PLAIN, _NOTED, _REFUSED = 8192, 8192, 2048
_MOST_FOUND = 10
"""Requests of one id that are shown, the last ones: clients choose ids."""

Plain = tuple[bytes, str, str, int, float, float, float, float]
"""Id, route, upstream, status; by a clock: when it came, was sent, was answered, ended (0.0: it was not)."""


class Queueing(NamedTuple):
    """`by`: `redis`, or `here`, where this process decided without it. `position`: how many of its class were
    before it, None where it did not queue; `waited`: seconds."""

    by: str
    position: int | None
    waited: float


Noted = tuple[Plain, str, str, tuple[str, ...], Queueing | None]
"""Then the reason, its detail, what failed before, and how it came to its slot."""

Refused = tuple[bytes, str, int, str, str, float]
"""Of what never came to a route's upstreams: id, route, status, reason, detail, and when."""


class Decisions:
    """Append to `plain`, `noted` and `refused`. `clock` is that of the times in them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.plain: deque[Plain] = deque(maxlen=_PLAIN)
        self.noted: deque[Noted] = deque(maxlen=_NOTED)
        self.refused: deque[Refused] = deque(maxlen=_REFUSED)
        self._clock = clock

    def find(self, request_id: str) -> list[dict[str, Any]]:
        """What is known of the requests of this id, oldest first; times in seconds since 1970. It looks at all that
        is kept, which takes a millisecond."""
        wanted = request_id.encode("utf-8", "surrogateescape")
        shift = time.time() - self._clock()
        found = sorted(self._found(wanted, shift), key=lambda each: each["time"])
        return found[-_MOST_FOUND:]

    def _found(self, wanted: bytes, shift: float) -> Iterator[dict[str, Any]]:
        for plain in self.plain:
            if plain[0] == wanted:
                yield _shown(plain, shift)
        for noted in self.noted:
            if noted[0][0] == wanted:
                yield _shown_noted(noted, shift)
        for id_, route, status, reason, detail, at in self.refused:
            if id_ == wanted:
                yield {
                    **_shown((id_, route, "", status, at, 0.0, 0.0, at), shift),
                    "reason": reason,
                    "detail": detail,
                    "decided_by": "refused",
                }


def _shown(plain: Plain, shift: float) -> dict[str, Any]:
    _, route, upstream, status, came, sent, answered, ended = plain
    return {
        "time": round(came + shift, 3),
        "route": route,
        "upstream": upstream,
        "status": status,
        "reason": "",
        "detail": "",
        "decided_by": "policy",
        "failed": [],
        "position": None,
        "queued": 0.0,
        "sent_after": round(sent - came, 6) if sent else None,
        "first_byte_after": round(answered - came, 6) if answered else None,
        "duration": round(ended - came, 6),
    }


def _shown_noted(noted: Noted, shift: float) -> dict[str, Any]:
    plain, reason, detail, failed, queueing = noted
    how = {} if queueing is None else {"decided_by": queueing.by, "position": queueing.position}
    waited = {} if queueing is None else {"queued": round(queueing.waited, 6)}
    return {**_shown(plain, shift), "reason": reason, "detail": detail, "failed": list(failed), **how, **waited}
