"""`python -m bench simulate`: the policies of the hash ring in front of a fleet with caches, in simulated time."""

from collections.abc import Callable
from typing import Annotated

from typer import Argument, Option

from bench.command import ALL, Bench, chosen
from bench.lab.bounded import bounded
from bench.lab.fade_in import fade_in
from bench.lab.zones import zones
from bench.table import Outcome, Section

EXPERIMENTS: dict[str, Callable[[int, float], list[Section]]] = {
    "fade-in": fade_in,
    "bounded": bounded,
    "zones": zones,
}
"""From a seed and the part of the fleet; the same ones give the same figures."""


def simulate(
    bench: Bench,
    names: Annotated[str, Argument(metavar="EXPERIMENTS", help=f"Some of: {', '.join(EXPERIMENTS)}.")] = ALL,
    seed: Annotated[int, Option(help="The same seed gives the same figures.")] = 1,
    scale: Annotated[float, Option(min=0.01, max=1, help="Part of the fleet and its traffic.")] = 1.0,
) -> Outcome:
    """What the hash ring and its policies do for upstreams with caches, in simulated time."""
    sections: list[Section] = []
    for name in chosen("EXPERIMENTS", names, EXPERIMENTS):
        bench.to(name)
        sections += EXPERIMENTS[name](seed, scale)
    return Outcome(sections)
