"""`python -m bench simulate`: the policies of the hash ring in front of a fleet with caches, in simulated time."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from bench.chart import check_pictures
from bench.command import Bench
from bench.lab.bounded import BoundedExperiment
from bench.lab.fade_in import FadeInExperiment
from bench.lab.fleet import Experiment
from bench.lab.ring import RingExperiment
from bench.lab.zones import ZonesExperiment
from bench.outcome import ALL, chosen
from bench.table import Outcome, Section

EXPERIMENTS: dict[str, type[Experiment]] = {
    "ring": RingExperiment,
    "fade-in": FadeInExperiment,
    "bounded": BoundedExperiment,
    "zones": ZonesExperiment,
}


def simulate(
    bench: Bench,
    names: Annotated[str, Argument(metavar="EXPERIMENTS", help=f"Some of: {', '.join(EXPERIMENTS)}.")] = ALL,
    seed: Annotated[int, Option(help="The same seed gives the same figures.")] = 1,
    scale: Annotated[float, Option(min=0.01, max=1, help="Part of the fleet and its traffic.")] = 1.0,
    out: Annotated[Path | None, Option(help="Draw a picture of each into this folder.")] = None,
) -> Outcome:
    """What the hash ring and its policies do for upstreams with caches, in simulated time."""
    check_pictures("--out", out)
    experiments = {name: EXPERIMENTS[name](seed, scale) for name in chosen("EXPERIMENTS", names, EXPERIMENTS)}
    bench.steps.expect(sum(each.seconds() for each in experiments.values()))
    sections: list[Section] = []
    for name, experiment in experiments.items():
        bench.steps.to(name)
        report = experiment.run(bench.steps.done)
        sections += report.sections
        if out is not None:
            report.draw(out / f"simulate-{name}.png")
    return Outcome(sections)
