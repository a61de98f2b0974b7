"""What an experiment hands back: figures in rows, what was to be shown, and what a picture is drawn from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from slb.simulate.fleet import Tick


class Claim(NamedTuple):
    """A sentence with its figures in it, and whether its goal was met; None where it has none."""

    text: str
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """`columns` and `rows` are words for people, of which all but the first `words` are figures; `draw` writes the
    picture to a file."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    claims: Sequence[Claim]
    draw: Callable[[Path], None]
    notes: Sequence[str] = ()
    words: int = 1


class Experiment(Protocol):
    """One of the lab's."""

    def __init__(self, seed: int, scale: float) -> None:
        """The same seed and scale give the same figures; `scale` is the part of the fleet that is simulated."""

    def seconds(self) -> float:
        """How much simulated time it takes, for a progress bar."""

    def run(self, tick: Tick) -> Report:
        """All of it; `tick` is told how much of that time has passed."""


def percent(share: float, digits: int = 2) -> str:
    """`98.76 %`"""
    return f"{100 * share:.{digits}f} %"
