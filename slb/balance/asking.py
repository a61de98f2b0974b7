"""What a request asks for that needs a slot, and how it is answered; the same for Redis and for this instance."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from weakref import ref


class Candidate(NamedTuple):
    """An upstream that may take the request. `capacity`: the most requests it may have in flight, 0 for any number.
    `slots` divides its score."""

    member: str
    capacity: int
    slots: int


class Turn(NamedTuple):
    """How a request waits where all is full: its class, the weight of that (a job's may be below 1), and how many
    may wait in the pool."""

    priority: str
    weight: float
    limit: int


class Scores:
    """The slots of a pool that were `held` in the fleet (those above 0), as Redis found them `at`, by the event
    loop's clock. `ref`: what is remembered of them with a request."""

    __slots__ = ("__weakref__", "at", "held", "is_noted", "ref")

    def __init__(self, held: Mapping[str, int], at: float) -> None:
        self.held = held
        self.at = at
        self.is_noted = False
        self.ref = ref(self)

    @property
    def size(self) -> int:
        """About how much it keeps, in upstreams."""
        return len(self.held) + 1


class Ask(Protocol):
    """One request that needs a slot. Either `granted` or `refused` is called, at most once, unless the request
    leaves before; `queued` any number of times before.

    `view`: the route's path; all asks of one route have the same candidates at one time. `avoid`: members where
    this one has failed; `reluctant`: those it takes only where no other has room. `ordered`: the first candidate
    with room is taken; else the one with the least score per slot. `turn`: None where it does not queue. `arrival`
    orders the asks that wait at one instance; `number` orders them in Redis, 0 while it is not known. A second
    attempt has both of the first: it goes before all that came after that, and no queue is full for it. `scores`:
    what Redis found when it decided, where it has said so.
    """

    candidates: tuple[Candidate, ...]
    avoid: tuple[str, ...]
    reluctant: tuple[str, ...]
    ordered: bool
    turn: Turn | None
    arrival: int
    number: int
    patient: bool
    scores: Scores | None

    @property
    def view(self) -> str: ...

    def granted(self, member: str) -> None: ...

    def refused(self, reason: str) -> None:
        """`reason`: `pool_saturated`, `queue_full`, `no_upstream`."""

    def queued(self, position: int, number: int = 0) -> None:
        """`position`: how many asks of its class are before it. `number`: its place in Redis, 0 for not known."""
