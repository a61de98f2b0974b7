"""How the backlog shrinks, and how each model's limit is held, as one picture."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.quota.models import MINUTE
from bench.quota.standing import Standing

INCHES, DPI = (12.8, 5.0), 110
COLOURS = ("#3a6ea5", "#b5179e", "#e4572e")
STEPS = 400


def draw(standings: Sequence[Standing], bound: float, tasks: int, path: Path) -> None:
    """Left: tasks left over time, for each way. Right: tokens of the last minute at each model, in units of its
    limit, for the first and the last way."""
    from matplotlib.figure import Figure  # it takes most of a second to import, and only pictures need it

    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    for standing, colour in zip(standings, COLOURS, strict=False):
        left.plot(*_left(standing, tasks), label=standing.label, color=colour)
    left.axvline(bound / MINUTE, color="#222222", linestyle="--", linewidth=1.2, label="the quotas' own bound")
    _named(left, "minutes", "prompts without an answer")
    for standing, colour in ((standings[0], COLOURS[0]), (standings[-1], COLOURS[len(standings) - 1])):
        _rates(right, standing, colour)
    right.axhline(1.0, color="#222222", linestyle="--", linewidth=1.2, label="the limit")
    _named(right, "minutes", "tokens of the last minute, in units of the limit; a line a model")
    figure.savefig(path, format="png")


def _left(standing: Standing, tasks: int) -> tuple[list[float], list[int]]:
    grid = [standing.drained * step / STEPS for step in range(STEPS + 1)]
    return [at / MINUTE for at in grid], [
        tasks - bisect_right(standing.book.answered, at / standing.hurry) for at in grid
    ]


def _rates(axes: Any, standing: Standing, colour: str) -> None:
    grid = [standing.drained * step / STEPS for step in range(1, STEPS + 1)]
    for number, model in enumerate(standing.models):
        entries = sorted((each.admitted, each.estimate) for each in standing.book.entries.get(model.name, []))
        times = [at for at, _ in entries]
        rates = [
            sum(tokens for _, tokens in entries[bisect_right(times, at - MINUTE) : bisect_right(times, at)])
            / model.limit
            for at in grid
        ]
        label = standing.label if number == 0 else None
        axes.plot([at / MINUTE for at in grid], rates, color=colour, linewidth=0.6, alpha=0.6, label=label)


def _named(axes: Any, across: str, up: str) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xlim(left=0)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8)
