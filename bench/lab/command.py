"""`python -m bench simulate`: the policies of the hash ring in front of a fleet with caches, in simulated time."""

from collections.abc import Callable
from typing import Annotated

from typer import Argument, Option

from bench.command import ALL, Bench, chosen
from bench.lab import bounded, fade_in, zones
from bench.lab.fleet import Done
from bench.table import Outcome, Section

Experiment = Callable[[int, float, Done], list[Section]]
"""From a seed and the part of the fleet; the same ones give the same figures."""

EXPERIMENTS: dict[str, tuple[Experiment, int]] = {
    "fade-in": (fade_in.fade_in, fade_in.RUNS),
    "bounded": (bounded.bounded, len(bounded.RUNS)),
    "zones": (zones.zones, len(zones.ARMS)),
}
"""And how many runs each has."""


def simulate(
    bench: Bench,
    names: Annotated[str, Argument(metavar="EXPERIMENTS", help=f"Some of: {', '.join(EXPERIMENTS)}.")] = ALL,
    seed: Annotated[int, Option(help="The same seed gives the same figures.")] = 1,
    scale: Annotated[float, Option(min=0.01, max=1, help="Part of the fleet and its traffic.")] = 1.0,
) -> Outcome:
    """What the hash ring and its policies do for upstreams with caches, in simulated time."""
    found = {name: EXPERIMENTS[name] for name in chosen("EXPERIMENTS", names, EXPERIMENTS)}
    bench.steps.expect(sum(runs for _, runs in found.values()))
    sections: list[Section] = []
    for name, (experiment, _) in found.items():
        bench.steps.to(name)
        sections += experiment(seed, scale, bench.steps.done)
    return Outcome(sections)
