"""What all pictures of the lab have in common. matplotlib is an extra, and takes a while to import."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from slb.errors import SlbError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = (6.4, 3.6)
DPI = 110
OURS = "#c1121f"
COLOURS = ("#3a6ea5", "#e9a03b", "#2a9d3f", "#b5179e", "#6c757d")


class NoPictures(SlbError):
    """matplotlib is not installed."""


def check_pictures() -> None:
    """Raises NoPictures where none can be drawn, so that it is known before a minute's work."""
    if find_spec("matplotlib") is None:
        raise NoPictures(
            "pictures need the extra 'simulate': pip install -e '.[simulate]' in the checkout, or add --no-plot"
        )


def panels(titles: list[str], columns: int = 1, share_x: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title, row by row."""
    from matplotlib.figure import Figure

    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share_x)
    axes = [axis for row in grid for axis in row]
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize=10)
        axis.grid(visible=True, alpha=0.25)
        axis.tick_params(labelsize=8)
    return figure, axes


def save(figure: Figure, path: Path) -> None:
    """As a PNG that is the same to the byte for the same figures: without a date or a version in it."""
    figure.savefig(path, format="png", metadata={"Software": None})
