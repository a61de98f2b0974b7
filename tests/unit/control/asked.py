"""Asks that are not answered."""

from slb.balance.asking import Candidate, Scores, Turn


class Asked:
    """By the route `/NAME`."""

    ordered = False
    arrival = number = 0
    scores: Scores | None = None

    def __init__(self, name: str, capacity: int = 0, patient: bool = False) -> None:
        self.view = f"/{name}"
        self.candidates: tuple[Candidate, ...] = (Candidate("u0", capacity, 1),)
        self.patient = patient
        self.avoid: tuple[str, ...] = ()
        self.reluctant: tuple[str, ...] = ()
        self.turn: Turn | None = None

    def granted(self, member: str) -> None: ...

    def refused(self, reason: str) -> None: ...

    def queued(self, position: int, number: int = 0) -> None: ...
