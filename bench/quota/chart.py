"""How the backlog shrinks, and how each model's limit is held, as one picture."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.chart import BLACK, COLOURS, OURS, panels, save
from bench.quota.models import MINUTE
from bench.quota.standing import Standing

INCHES = (6.4, 5.0)
WAYS = (COLOURS[0], COLOURS[3], OURS)
STEPS = 400


def draw(standings: Sequence[Standing], bound: float, tasks: int, path: Path) -> None:
    """Left: tasks left over time, for each way. Right: tokens of the last minute at each model, in units of its
    limit, for the first and the last way."""
    titles = ("prompts without an answer", "tokens of the last minute, in units of the limit; a line a model")
    figure, (left, right) = panels(titles, 2, inches=INCHES)
    for standing, colour in zip(standings, WAYS, strict=False):
        left.plot(*_left(standing, tasks), label=standing.label, color=colour)
    left.axvline(bound / MINUTE, color=BLACK, linestyle="--", linewidth=1.2, label="the quotas' own bound")
    for standing, colour in ((standings[0], WAYS[0]), (standings[-1], WAYS[len(standings) - 1])):
        _rates(right, standing, colour)
    right.axhline(1.0, color=BLACK, linestyle="--", linewidth=1.2, label="the limit")
    for axes in (left, right):
        axes.set_xlabel("minutes")
        axes.set_xlim(left=0)
        axes.legend(fontsize=8)
    save(figure, path)


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
