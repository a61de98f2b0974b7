"""What the commands print for a person: tables for terminals of any width, words for what is not there, times."""

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson
import typer

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

_NO_TERMINAL_WIDTH = 100_000  # columns: in a pipe there is no edge, and a table takes no more than its cells need


def make_console() -> "Console":
    from rich.console import Console

    # [fd00::1]:80 is an address, not a style
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=_NO_TERMINAL_WIDTH)


def show_json(answer: Any) -> None:
    typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))


def show(rows: "Rows") -> None:
    from rich.table import Table

    console = make_console()
    for part in rows.fitted(console.width):
        console.print(part, soft_wrap=not isinstance(part, Table))


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and what they are, one below the other."""
    console, found = make_console(), list(pairs)
    margin = max(len(name) for name, _ in found) + 2
    for name, value in found:
        lines = folded(value, console.width, name.ljust(margin), " " * margin) or [name]
        console.print("\n".join(lines), soft_wrap=True)


def shown(value: Any) -> str:
    """A setting's value, as it is typed after `KEY=`."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == "" or value == [] or value == {} else str(value)


def moment(seconds: Any) -> str:
    """`2026-01-31 12:00:00+00:00` of seconds since 1970; nothing where there are none."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError):
        return ""


_FRAME = 3  # columns of the terminal that a table's frame takes for each cell, and one more at its end


@dataclass(slots=True)
class Rows:
    """A table that never breaks a name or an address. Where the terminal is too narrow, titles are folded, then
    columns in `spare` are left out, unused ones first, and at last the table becomes lines. Cells in columns of
    `right` are flush right. Those of `prose` are sentences: they alone are folded. Cells in columns of `names`
    (default: the first) get a line of their own where the table becomes lines. `notes` are sentences below it."""

    titles: Sequence[str]
    right: Collection[str] = ()
    spare: Sequence[str] = ()
    prose: str = ""
    names: Collection[str] = ()
    notes: list[str] = field(default_factory=list)
    _rows: list[tuple[Sequence[str], str | None, bool]] = field(default_factory=list)

    def add_row(self, *cells: str, style: str | None = None, end_section: bool = False) -> None:
        """`end_section`: a line stands below it."""
        self._rows.append((cells, style, end_section))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Table | Text]":
        yield from self.fitted(options.max_width)

    def fitted(self, width: int) -> "Iterator[Table | Text]":
        """What is drawn on a terminal of `width` columns. A line of a Text is longer where one name is."""
        from rich.text import Text

        spare = sorted((title for title in self.spare if title in self.titles), key=self._is_used)
        for left_out in range(len(spare) + 1):
            spared = spare[:left_out]
            shown = [column for column, title in enumerate(self.titles) if title not in spared]
            if self._width(shown, folds=True) <= width:
                yield self._table(shown, fold_titles=self._width(shown, folds=False) > width)
                if missed := [title for title in spared if self._is_used(title)]:
                    yield Text(f"Not shown at this width: {', '.join(missed)} (--json has all).")
                break
        else:
            yield Text("\n".join(self._lines(width)), overflow="fold")
        if self.notes:
            yield Text("\n".join(line for note in self.notes for line in folded(note, width)))

    def _is_used(self, title: str) -> bool:
        column = self.titles.index(title)
        return any(cells[column] for cells, _, _ in self._rows)

    def _width(self, columns: Sequence[int], folds: bool) -> int:
        """How wide a table of these columns is; with all folded that may be, or nothing."""
        return sum(max(self._cells(each, folds), self._title(each, folds)) + _FRAME for each in columns) + 1

    def _title(self, column: int, folds: bool) -> int:
        return _longest_word(self.titles[column]) if folds else _width_of(self.titles[column])

    def _cells(self, column: int, folds: bool) -> int:
        measure = _longest_word if folds and self.titles[column] == self.prose else _width_of
        return max((measure(cells[column]) for cells, _, _ in self._rows), default=0)

    def _table(self, columns: Sequence[int], fold_titles: bool) -> "Table":
        from rich.table import Table

        table = Table()
        for each in columns:
            title = self.titles[each]
            header = "\n".join(folded(title, self._cells(each, True))) if fold_titles else title
            side: Literal["left", "right"] = "right" if title in self.right else "left"
            table.add_column(header, justify=side, no_wrap=title != self.prose)
        for cells, style, ends in self._rows:
            table.add_row(*(cells[each] for each in columns), style=style, end_section=ends)
        return table

    def _lines(self, width: int) -> Iterator[str]:
        names = self.names or self.titles[:1]
        for row, _, _ in self._rows:
            cells = dict(zip(self.titles, row, strict=True))
            for depth, name in enumerate(names):
                if cells[name]:
                    yield "  " * depth + cells[name]
            others = [f"{title} {cell}" for title, cell in cells.items() if cell and title not in names]
            yield from _packed(others, width, "  " * len(names))


def folded(text: str, width: int, first: str = "", behind: str = "") -> list[str]:
    """Its lines, broken between words. `first` stands before the first of them, `behind` before the others."""
    return textwrap.wrap(
        text,
        max(width, 1),
        initial_indent=first,
        subsequent_indent=behind,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _packed(cells: Iterable[str], width: int, indent: str) -> Iterator[str]:
    line = ""
    for cell in cells:
        longer = f"{line}, {cell}" if line else indent + cell
        if line and _width_of(longer) > width:
            yield from folded(line + ",", width, behind=indent)
            longer = indent + cell
        line = longer
    if line:
        yield from folded(line, width, behind=indent)


def _width_of(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(_width_of, text.split()), default=0)
