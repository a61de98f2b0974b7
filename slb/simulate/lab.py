"""The lab's experiments by name."""

from slb.simulate.bounded import BoundedExperiment
from slb.simulate.fade_in import FadeInExperiment
from slb.simulate.names import Name
from slb.simulate.report import Experiment
from slb.simulate.ring import RingExperiment
from slb.simulate.zones import ZonesExperiment

_EXPERIMENTS: dict[Name, type[Experiment]] = {
    Name.RING: RingExperiment,
    Name.FADE_IN: FadeInExperiment,
    Name.BOUNDED: BoundedExperiment,
    Name.ZONES: ZonesExperiment,
}


def make_experiment(name: Name, seed: int, scale: float) -> Experiment:
    """Not run yet. The same seed and scale give the same figures."""
    return _EXPERIMENTS[name](seed, scale)
