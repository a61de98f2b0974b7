"""What all pictures of the bench have in common. The extra `bench` brings matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from bench.outcome import check_folder, refuse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = (6.4, 3.6)
DPI = 110
TITLE_LETTERS = 80
OURS = "#c1121f"
COLOURS = ("#3a6ea5", "#e9a03b", "#2a9d3f", "#b5179e", "#6c757d")
BLACK = "#222222"
"""Of goals, bounds and what was computed."""


def check_pictures(option: str, folder: Path | None) -> None:
    """Exits where pictures are wanted and cannot be drawn, so that it is known before a minute's work. `folder` is
    where they will be, None where none is wanted."""
    check_folder(option, folder)
    if folder is not None and find_spec("matplotlib") is None:
        refuse(f"{option}: pictures need matplotlib: pip install -e '.[bench]'")


def panels(
    titles: Sequence[str], columns: int = 1, share_x: bool = False, inches: tuple[float, float] = PANEL_INCHES
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title, row by row; `inches` is the size of one."""
    from matplotlib.figure import Figure

    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(inches[0] * columns, inches[1] * rows), dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share_x)
    axes = [axis for row in grid for axis in row]
    for spare in axes[len(titles) :]:
        spare.remove()
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(fill(title, TITLE_LETTERS), fontsize=10)
        axis.grid(visible=True, alpha=0.25)
        axis.tick_params(labelsize=8)
    return figure, axes[: len(titles)]


def line_of(colour: str, label: str) -> dict[str, Any]:
    """How a line of this colour is drawn: slb's own is bold."""
    return {"color": colour, "label": label, "linewidth": 2.2 if colour == OURS else 1.3}


def save(figure: Figure, path: Path) -> None:
    """As a PNG that is the same to the byte for the same figures: without a date or a version in it."""
    figure.savefig(path, format="png", metadata={"Software": None})
