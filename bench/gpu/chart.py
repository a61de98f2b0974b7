"""The latency curves of every balancer as one picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.chart import BLACK, COLOURS, OURS, panels, save
from bench.gpu.report import CaseResult, Standing

PANEL_INCHES = (6.4, 4.4)
COLUMNS = 2
SHARES = {0.5: "p50", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}
THEIRS = dict(zip(("haproxy", "slb-local", "nginx", "envoy"), COLOURS, strict=False))
COMPUTED = {"ideal": "--", "exact": ":"}
OUR_COLOURS = {"slb": "#e4572e", "slb-queue": OURS}


def draw(results: Sequence[CaseResult], path: Path) -> None:
    """Write a PNG with a panel for each case. The horizontal axis gives every nine the same room."""
    titles = [result.work.title for result in results]
    figure, panel = panels(titles, min(COLUMNS, len(results)), inches=PANEL_INCHES)
    for axes, result in zip(panel, results, strict=True):
        for name, standing in {"ideal": result.ideal, "exact": result.exact, **result.standings}.items():
            axes.plot(*points(standing), label=standing.label, **style(name))
        axes.set_xticks([nines(share) for share in SHARES], labels=list(SHARES.values()))
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(which="minor", labelsize=8)
        axes.set_ylabel("latency, ms")
        axes.grid(visible=True, which="minor", alpha=0.25)
        axes.legend(fontsize=7)
    save(figure, path)


def points(standing: Standing) -> tuple[list[float], list[float]]:
    curve = standing.curve()
    return [nines(share) for share, _ in curve], [latency for _, latency in curve]


def nines(share: float) -> float:
    """0.9 is 1, 0.99 is 2."""
    return -math.log10(1 - share)


def style(name: str) -> dict[str, Any]:
    """What was computed is dashed or dotted, slb's global view is drawn bold."""
    if name in COMPUTED:
        return {"color": BLACK, "linestyle": COMPUTED[name], "linewidth": 1.2}
    return {"color": OUR_COLOURS.get(name) or THEIRS.get(name), "linewidth": 2.2 if name in OUR_COLOURS else 1.3}
