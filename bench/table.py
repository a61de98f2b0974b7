"""A figure, its goal, and how both are printed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One thing that was measured. `at_most`, `below` and `at_least` are goals; without any it is only shown. A
    figure that could not be had is NaN, and misses its goal."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    below: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.below is None else self.value < self.below

    def cells(self) -> list[str]:
        """What, measured, goal, verdict."""
        goals = {"at most": self.at_most, "at least": self.at_least, "below": self.below}
        goal = next((self._with_unit(bound, f"{word} ") for word, bound in goals.items() if bound is not None), "")
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return [self.what, self._with_unit(self.value), goal, verdict]

    def _with_unit(self, value: float, before: str = "") -> str:
        return f"{before}{short(value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Section:
    """One printed table: `figures` with their goals, or `rows` under `columns`, of which the first `words` are text
    and the first `dim` rows were not measured. `notes` are sentences for the reader."""

    title: str
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words: int = 1
    dim: int = 0

    def table(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=bool(self.columns))
        for at, column in enumerate(self.columns or ("figure", "measured", "goal")):
            table.add_column(column, justify="right" if at >= self.words else "left", no_wrap=True)
        if self.columns:
            for number, row in enumerate(self.rows):
                table.add_row(*row, style="dim" if number < self.dim else None)
            return table
        table.columns[0].no_wrap = False
        table.add_column("")
        for figure in self.figures:
            table.add_row(*figure.cells(), style={None: None, True: "green", False: "red"}[figure.met])
        return table


@dataclass(frozen=True)
class Outcome:
    """All that one command measured. `interrupted`: it is not all that was asked for. `failed`: something could not
    be measured."""

    sections: Sequence[Section]
    interrupted: bool = False
    failed: bool = False

    @property
    def met(self) -> bool:
        return all(figure.met is not False for section in self.sections for figure in section.figures)


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` of all are not above (nearest rank); NaN of nothing."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def short(value: float) -> str:
    """Three digits that matter; whole numbers as they are."""
    if not math.isfinite(value):
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
