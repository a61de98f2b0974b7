"""A pool of one instance, and requests that record their answers."""

from collections import Counter
from collections.abc import Callable

from slb.admission.local_pool import LocalPool
from slb.balance.asking import Candidate, Scores, Turn

NORMAL = Turn("normal", 3, 1000)


def some(*members: str, capacity: int = 1, slots: int = 1) -> tuple[Candidate, ...]:
    return tuple(Candidate(member, capacity, slots) for member in members)


class Request:
    """An ask that records its answers. `like`: the one whose second attempt it is."""

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        turn: Turn | None = NORMAL,
        avoid: tuple[str, ...] = (),
        ordered: bool = False,
        view: str = "/p",
        when_granted: Callable[[], object] = lambda: None,
        reluctant: tuple[str, ...] = (),
        like: "Request | None" = None,
    ) -> None:
        self.arrival: int = 0 if like is None else like.arrival
        self.number = 0 if like is None else 1
        self.reluctant, self.patient = reluctant, False
        self.scores: Scores | None = None
        self.view, self.candidates, self.avoid, self.ordered, self.turn = view, candidates, avoid, ordered, turn
        self.answers: list[str | int] = []
        self._when_granted = when_granted

    def granted(self, member: str) -> None:
        self.answers.append(member)
        self._when_granted()

    def refused(self, reason: str) -> None:
        self.answers.append(reason)

    def queued(self, position: int, number: int = 0) -> None:
        self.answers.append(position)


class Setup:
    """A pool shared by `instances`, and what this one holds of it."""

    def __init__(self, instances: int = 1, start: int = 0) -> None:
        self.held: Counter[str] = Counter()
        self.instances = instances
        self.pool = LocalPool(self.held, lambda: self.instances, start)
        self._arrivals = 0

    def ask(
        self, candidates: tuple[Candidate, ...], turn: Turn | None = NORMAL, avoid: tuple[str, ...] = ()
    ) -> Request:
        return self.bring(Request(candidates, turn, avoid))

    def bring(self, request: Request) -> Request:
        self._arrivals += 1
        request.arrival = request.arrival or self._arrivals
        self.pool.ask(request)
        return request

    def release(self, member: str) -> None:
        self.held[member] -= 1
        self.pool.freed()

    def granted(self, candidates: tuple[Candidate, ...], count: int) -> list[str | int]:
        """The answers to so many that do not wait."""
        return [self.ask(candidates, turn=None).answers[0] for _ in range(count)]
