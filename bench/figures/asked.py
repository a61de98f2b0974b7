"""What the benches of the ledger ask its lanes for."""

from dataclasses import dataclass

from slb.balance.asking import Candidate, Turn


@dataclass(eq=False)
class Asked:
    """An ask without its answers: those who inherit have `granted`, `refused`, `queued`."""

    view: str
    candidates: tuple[Candidate, ...] = ()
    avoid: tuple[str, ...] = ()
    reluctant: tuple[str, ...] = ()
    ordered: bool = False
    turn: Turn | None = None
    arrival: int = 0
    number: int = 0
    patient: bool = False
