"""A figure, its goal, and how both are shown and kept."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One thing that was measured. `at_most`, `below` and `at_least` are goals; without any it is only shown."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    below: float | None = None
    at_least: float | None = None

    def _goal(self) -> tuple[str, float, bool] | None:
        """The goal's kind and bound, and whether it is met. A figure that could not be had is NaN, and misses."""
        if self.at_most is not None:
            return "at most", self.at_most, self.value <= self.at_most
        if self.at_least is not None:
            return "at least", self.at_least, self.value >= self.at_least
        return None if self.below is None else ("below", self.below, self.value < self.below)

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        goal = self._goal()
        return goal[2] if goal else None

    def shown(self) -> str:
        return f"{short(self.value)} {self.unit}".rstrip()

    def goal(self) -> str:
        """In words; empty where there is none."""
        goal = self._goal()
        return f"{goal[0]} {short(goal[1])} {self.unit}".rstrip() if goal else ""

    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.met]

    def as_json(self) -> dict[str, object]:
        return {
            "what": self.what,
            "value": self.value if math.isfinite(self.value) else None,
            "unit": self.unit,
            "goal": self.goal(),
            "met": self.met,
        }


@dataclass(frozen=True)
class Section:
    """Figures that belong together. `notes` are sentences for the reader."""

    title: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()

    def table(self) -> Table:
        table = table_of(("figure", "measured", "goal", ""), words=1)
        table.columns[0].no_wrap, table.columns[-1].justify = False, "left"
        for figure in self.figures:
            style = None if figure.met is None else "green" if figure.met else "red"
            table.add_row(figure.what, figure.shown(), figure.goal(), figure.verdict(), style=style)
        return table

    def as_json(self) -> dict[str, object]:
        return {
            "title": self.title,
            "figures": [figure.as_json() for figure in self.figures],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class RowsSection(Section):
    """A section whose table has `rows` under `columns`, of which the first `words` are no figures. The first `dim`
    rows were not measured; `more` stands in the JSON file only."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words: int = 1
    dim: int = 0
    more: Mapping[str, object] = field(default_factory=dict)

    def table(self) -> Table:
        table = table_of(self.columns, self.words)
        table.collapse_padding = True
        for number, row in enumerate(self.rows):
            table.add_row(*row, style="dim" if number < self.dim else None)
        return table

    def as_json(self) -> dict[str, object]:
        rows = {"columns": self.columns, "rows": self.rows}
        return {**super().as_json(), **(self.more or rows)}


@dataclass(frozen=True)
class Outcome:
    """All that one command measured; `raw` goes to the JSON file only. `interrupted`: it is not all that was asked
    for. `failed`: something could not be measured."""

    sections: Sequence[Section]
    raw: dict[str, object] = field(default_factory=dict)
    interrupted: bool = False
    failed: bool = False

    @property
    def met(self) -> bool:
        return all(figure.met is not False for section in self.sections for figure in section.figures)


def table_of(columns: Sequence[str], words: int) -> Table:
    """In the form of all tables of the bench: the first `words` columns are flush left, figures flush right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at >= words else "left", no_wrap=True)
    return table


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` of all are not above (nearest rank); NaN of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def short(value: float) -> str:
    """Three digits that matter; whole numbers as they are."""
    if not math.isfinite(value):
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
