"""What every experiment of the lab takes and hands back."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.figures.figure import Section

Tick = Callable[[], None]
"""Called after each second of simulated time."""


class Report(NamedTuple):
    """`draw` writes the picture to a file."""

    sections: Sequence[Section]
    draw: Callable[[Path], None]


class Experiment(Protocol):
    """One of the lab's."""

    def __init__(self, seed: int, scale: float) -> None:
        """The same seed and scale give the same figures; `scale` is the part of the fleet that is simulated."""

    def seconds(self) -> int:
        """How much simulated time it takes, for a progress bar."""

    def run(self, tick: Tick) -> Report:
        """All of it."""
