"""What was decided of the last requests of this process, to be found by their ids.

On the way of a request it is one append of a tuple, 0.3 us; all else is done when somebody asks. Requests have a
ring for each kind, so that a flood of one displaces nothing of the others: those that went straight to an upstream
and ended well; those that got a slot at once and did; those with something to tell; those that had no route or were
no requests. 26,624 of them in all are kept, some 12 MB at most. What they found of their routes is kept of those
with something to tell, and besides the newest of all: each some 10 MB at most.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol
from weakref import ref

from slb.balance.asking import Scores

_PLAIN, _NOTED, _REFUSED = 8192, 8192, 2048
_MOST_FOUND = 10
"""Requests of one id that are shown, the last ones: clients choose ids."""
_MOST_SIZE = 50_000
"""Of all snapshots that are kept for one kind of requests, in upstreams of 100 to 240 bytes each."""
_FAILED = 500
"""Statuses from here on are told of."""


class Snapshot:
    """What requests found of their route at `at`, by the clock of their times. `state`: see
    slb/admission/snapshots.py, None of `NOTHING_FOUND`; `size`: about how much it keeps, in upstreams. `slow`:
    seconds beyond which a request that found it has something to tell. `ref`: what is remembered of it with a
    request; once it is kept by none of `Decisions` and no request under way, nothing is left of it."""

    __slots__ = ("__weakref__", "at", "is_noted", "ref", "size", "slow", "state")

    def __init__(self, state: "State | None", at: float, size: int, slow: float) -> None:
        self.state = state
        self.at = at
        self.size = size
        self.slow = slow
        self.is_noted = state is None
        self.ref = ref(self)


NOTHING_FOUND = Snapshot(None, 0.0, 0, inf)
"""Where no snapshot was made."""


class State(Protocol):
    def told(self, chosen: str, tried: Sequence[str], held: Mapping[str, int] | None) -> Mapping[str, Any]:
        """What it says to a request that went to `chosen` after it had failed at the upstreams `tried`. `held`: the
        slots that Redis found held for it, those above 0; None where that is not kept."""


Plain = tuple[bytes, str, str, int, float, float, float, float, ref[Snapshot]]
"""Id, route, upstream, status; by a clock: when it came, was sent, was answered, ended (0.0: it was not); and the
snapshot that it found."""


class Queueing(NamedTuple):
    """`by`: `redis`, or `here`, where this process decided without it. `position`: how many of its class were
    before it, None where it did not queue; `waited`: seconds; `scores`: what Redis found."""

    by: str
    position: int | None
    waited: float
    scores: ref[Scores] | None = None


_NO_QUEUEING = Queueing("", None, 0.0)

Noted = tuple[Plain, str, str, tuple[str, ...], tuple[str, ...], Queueing | None]
"""Then the reason, its detail, what failed before, at which upstreams, and how it came to its slot."""

Refused = tuple[bytes, str, int, str, str, float]
"""Of what never came to a route's upstreams: id, route, status, reason, detail, and when."""


class _Kept:
    """Snapshots that one kind of requests found, and scores that Redis did. The oldest leave where they are too
    large together, so that a request may be known longer than what it found."""

    def __init__(self) -> None:
        self._found: deque[Snapshot | Scores] = deque()
        self._size = 0

    def add(self, found: Snapshot | Scores) -> None:
        self._found.append(found)
        self._size += found.size
        while self._size > _MOST_SIZE:
            self._size -= self._found.popleft().size


class Decisions:
    """Append to `plain` and `refused`, and call `keep` and `note`. `clock` is that of the times in them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.plain: deque[Plain] = deque(maxlen=_PLAIN)
        self.refused: deque[Refused] = deque(maxlen=_REFUSED)
        self._granted: deque[Noted] = deque(maxlen=_PLAIN)
        self._noted: deque[Noted] = deque(maxlen=_NOTED)
        self._of_all, self._of_noted = _Kept(), _Kept()
        self._clock = clock

    def keep(self, snapshot: Snapshot) -> None:
        """It is new, and requests will find it."""
        self._of_all.add(snapshot)

    def note(
        self,
        plain: Plain,
        snapshot: Snapshot,
        reason: str = "",
        detail: str = "",
        failed: tuple[str, ...] = (),
        tried: tuple[str, ...] = (),
        queueing: Queueing | None = None,
    ) -> None:
        """Remember a request that needed a slot, or has something to tell. `failed`: sentences; `tried`: the
        upstreams they are about."""
        noted = plain, reason, detail, failed, tried, queueing
        is_slow = plain[7] - plain[4] > snapshot.slow
        _, position, _, kept = queueing or _NO_QUEUEING
        scores = kept() if kept is not None else None
        if not (reason or failed or position is not None or is_slow or plain[3] >= _FAILED):
            self._granted.append(noted)
            if scores is not None:
                self._of_all.add(scores)
            return
        self._noted.append(noted)
        if scores is not None and not scores.is_noted:
            scores.is_noted = True
            self._of_noted.add(scores)
        if not snapshot.is_noted:
            snapshot.is_noted = True
            self._of_noted.add(snapshot)

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
                yield {**_shown(plain, shift), **_found(plain, (), None)}
        for noted in (*self._granted, *self._noted):
            if noted[0][0] == wanted:
                yield {**_shown_noted(noted, shift), **_found(noted[0], noted[4], noted[5])}
        for id_, route, status, reason, detail, at in self.refused:
            if id_ == wanted:
                plain = (id_, route, "", status, at, 0.0, 0.0, at, NOTHING_FOUND.ref)
                said = {"reason": reason, "detail": detail, "decided_by": "refused"}
                yield {**_shown(plain, shift), **_found(plain, (), None), **said}


def _shown(plain: Plain, shift: float) -> dict[str, Any]:
    _, route, upstream, status, came, sent, answered, ended, _ = plain
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
    plain, reason, detail, failed, _, queueing = noted
    how = {} if queueing is None else {"decided_by": queueing.by, "position": queueing.position}
    waited = {} if queueing is None else {"queued": round(queueing.waited, 6)}
    return {**_shown(plain, shift), "reason": reason, "detail": detail, "failed": list(failed), **how, **waited}


def _found(plain: Plain, tried: Sequence[str], queueing: Queueing | None) -> dict[str, Any]:
    """What it found of its route."""
    snapshot = plain[8]()
    if snapshot is None or snapshot.state is None:
        after = {"found_after": None, "scores_after": None}
        return {**after, "policy": "", "by": "", "panic": False, "members": [], "left_off": 0}
    scores = queueing.scores() if queueing is not None and queueing.scores is not None else None
    return {
        "found_after": round(snapshot.at - plain[4], 6),
        "scores_after": round(scores.at - plain[4], 6) if scores is not None else None,
        **snapshot.state.told(plain[2], tried, scores.held if scores is not None else None),
    }
