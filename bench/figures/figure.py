"""A figure, its goal, and how both are shown and kept."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table

NO_GOAL = ""


@dataclass(frozen=True)
class Figure:
    """One thing that was measured. `at_most`, `below` and `at_least` are goals; without any it is only told."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    below: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """None where there is no goal. A figure that could not be had is NaN, and misses."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.below is None else self.value < self.below

    def shown(self) -> str:
        return f"{short(self.value)} {self.unit}".rstrip()

    def goal(self) -> str:
        if self.at_most is not None:
            return f"at most {short(self.at_most)} {self.unit}".rstrip()
        if self.at_least is not None:
            return f"at least {short(self.at_least)} {self.unit}".rstrip()
        return NO_GOAL if self.below is None else f"below {short(self.below)} {self.unit}".rstrip()

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
        table = empty_table()
        table.add_column("figure")
        table.add_column("measured", justify="right", no_wrap=True)
        table.add_column("goal", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
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
        table = empty_table()
        add_columns(table, self.columns, self.words)
        for number, row in enumerate(self.rows):
            table.add_row(*row, style="dim" if number < self.dim else None)
        return table

    def as_json(self) -> dict[str, object]:
        rows = {"columns": self.columns, "rows": self.rows}
        return {**super().as_json(), **(self.more or rows)}


@dataclass(frozen=True)
class Outcome:
    """All that one command measured; `raw` is for those who want to look closer. `interrupted`: it is not all that
    was asked for."""

    sections: Sequence[Section]
    raw: dict[str, object] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def met(self) -> bool:
        return all(figure.met is not False for section in self.sections for figure in section.figures)


def empty_table(title: str | None = None) -> Table:
    """In the form of all tables of the bench."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.pad_edge, table.show_edge = False, False
    return table


def add_columns(table: Table, columns: Sequence[str], words: int = 1) -> None:
    """The first `words` are flush left, figures flush right; none is broken."""
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at >= words else "left", no_wrap=True)


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
