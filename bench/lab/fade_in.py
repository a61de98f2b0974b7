"""A scale-up under traffic: what the new upstreams' cold caches cost, by how the traffic comes to them. The ring
alone decides here, without any load signal, so that every difference is the fade-in's."""

from dataclasses import replace
from typing import NamedTuple

from bench.lab.model import Fleet, Shape, view
from bench.table import Figure, Section
from slb.balance.ring import Ring
from slb.balance.ring_set import RingSet
from slb.balance.split import Split
from slb.balance.upstream import LiveUpstream

SHAPE = Shape(upstreams=100, clients=4, rate=10_000.0, fan_out=50, keys=10_000, cache=250)
ADDED = 50
WARMING = 50  # requests for each key before the clock starts, on average
RARER = 5  # times the keys, for the run that shows how much depends on how often a key is asked for
BEFORE, WINDOW, AFTER = 10, 30, 10  # seconds
GOAL = 0.98  # of the hit rate before: the least during the scale-up with N-ring fade-in
N_RING, AT_ONCE, OUTSIDE = "N-ring fade-in", "no fade-in", f"N-ring fade-in, {RARER} times the keys"
NOTE = (
    "Hit rates before it, in the window and in the worst second. Cold reads: reads of the database since the "
    "scale-up, less what was read before it; peak: reads in one second."
)


class ScaleUp(NamedTuple):
    """Hit rates before, in the window and in the worst second since the scale-up; reads of the database since then
    beyond those before it, and the most in one second."""

    before: float
    during: float
    worst: float
    cold_reads: float
    peak: int

    @property
    def kept(self) -> float:
        """Hit rate of the worst second since the scale-up, as part of the one before."""
        return self.worst / self.before

    def cells(self) -> list[str]:
        rates = [f"{rate:.2%}" for rate in (self.before, self.during, self.worst)]
        return [*rates, f"{self.kept:.4f}", f"{self.cold_reads:.0f}", str(self.peak)]


def fade_in(seed: int, scale: float) -> list[Section]:
    """A scale-up by half, with a fade-in and without. `scale` is the part of the fleet."""
    shape, added = SHAPE.scaled(scale), max(round(ADDED * scale), 1)
    rarer = replace(shape, keys=shape.keys * RARER, cache=shape.cache * RARER)
    ours, outside = (scaled_up(each, added, seed, fades=True) for each in (shape, rarer))
    none = scaled_up(shape, added, seed, fades=False)
    title = (
        f"{shape.upstreams} upstreams become {shape.upstreams + added} in the {BEFORE}th second, window {WINDOW} s"
    )
    columns = ("", "before", "window", "worst", "of before", "cold reads", "peak")
    rows = [[name, *each.cells()] for name, each in ((N_RING, ours), (AT_ONCE, none), (OUTSIDE, outside))]
    figures = [
        Figure(f"{N_RING}: worst second, of the hit rate before", 100 * ours.kept, "%", at_least=100 * GOAL),
        Figure(f"{AT_ONCE}: the same", 100 * none.kept, "%"),
        Figure(f"{OUTSIDE}: the same", 100 * outside.kept, "%"),
        Figure(f"{N_RING}: over the window, of the hit rate before", 100 * ours.during / ours.before, "%"),
        Figure(f"{AT_ONCE}: the same", 100 * none.during / none.before, "%"),
    ]
    return [Section(title, (), [NOTE], columns, rows), Section("a scale-up", figures)]


def scaled_up(shape: Shape, added: int, seed: int, fades: bool) -> ScaleUp:
    """One run."""
    fleet = Fleet(shape, seed, [shape.cache] * (shape.upstreams + added))
    fleet.warm(Ring.of(view(range(shape.upstreams))), WARMING * shape.keys)
    for _ in range(shape.clients):
        _add_client(fleet, added, fades)
    end = BEFORE + WINDOW + AFTER
    fleet.begin(end)
    fleet.schedule.run(end)
    before, during = fleet.between(0, BEFORE), fleet.between(BEFORE, BEFORE + WINDOW)
    after = [fleet.between(number, number + 1) for number in range(BEFORE, end)]
    reads = [second.reads for second in after]
    cold = sum(reads) - before.reads / BEFORE * len(after)
    return ScaleUp(before.hit_rate, during.hit_rate, min(second.hit_rate for second in after), cold, max(reads))


def _add_client(fleet: Fleet, added: int, fades: bool) -> None:
    """One with the rings of the proxy and of the library."""
    count = fleet.shape.upstreams
    old = Ring.of(view(range(count)))
    whole = old.adding(view(range(count, count + added)))
    rings = RingSet(old).joined(whole, BEFORE, WINDOW)

    def choose(key: bytes) -> LiveUpstream:
        now = fleet.schedule.now
        if now < BEFORE:
            return old.pick(key)
        ring = Split(rings.shares(now), whole.members).draw(fleet.rng.random) if fades else whole
        return ring.pick(key)

    fleet.add_client(choose)
