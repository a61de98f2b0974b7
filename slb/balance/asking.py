"""What a request that needs a slot asks for, and how it is answered; the same whether Redis decides or, in its
absence, this instance."""

from typing import NamedTuple, Protocol


class Candidate(NamedTuple):
    """An upstream that may take the request. `capacity`: the most requests it may have in flight, 0 for any number.
    `slots` divides its score."""

    member: str
    capacity: int
    slots: int


class Turn(NamedTuple):
    """How a request waits where all is full: in which class, its weight, and how many may wait in the pool."""

    priority: str
    weight: int
    limit: int


class Ask(Protocol):
    """One request in want of a slot. Exactly one of `granted` and `refused` is called, at most once, unless the
    asker leaves before; `queued` any number of times before.

    `view`: the route's path; all asks of one route have the same candidates at one time. `avoid`: members this one
    cannot use, having failed there; `reluctant`: those it takes only where no other has room. `ordered`: the first
    candidate with room is taken, as a policy has put them; else the one with the least score per slot. `turn`: None
    where it does not wait but is refused. `arrival` orders the asks that wait at one instance, no two alike;
    `number` orders them in Redis, 0 while it is not known. A second attempt has both of the first: it goes before
    all that came after that, and no queue is full for it.
    """

    candidates: tuple[Candidate, ...]
    avoid: tuple[str, ...]
    reluctant: tuple[str, ...]
    ordered: bool
    turn: Turn | None
    arrival: int
    number: int
    patient: bool

    @property
    def view(self) -> str: ...

    def granted(self, member: str) -> None:
        """A slot of `member` is this request's, until it is released."""

    def refused(self, reason: str) -> None:
        """`pool_saturated`, `queue_full`; or `no_upstream`, where there is nothing it can use."""

    def queued(self, position: int, number: int = 0) -> None:
        """It waits; `position` asks of its class are before it. `number`: its place in Redis, 0 for not known."""
