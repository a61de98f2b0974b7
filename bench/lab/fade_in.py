"""A scale-up under traffic: what the new upstreams' cold caches cost, by how the traffic comes to them.

The ring alone decides here, without any load signal, so that every difference is the fade-in's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.lab.fleet import Fleet, Shape, view
from bench.table import Figure, Section
from slb.balance.fade_in import deprioritized
from slb.balance.ring import Ring
from slb.balance.ring_set import RingSet, curve
from slb.balance.split import Split
from slb.balance.upstream import LiveUpstream

SHAPE = Shape(upstreams=100, clients=4, rate=10_000.0, fan_out=50, keys=10_000, cache=250)
ADDED = 50
WARMING = 50
"""Requests for each key before the clock starts, on average."""
RARER = 5
"""Times the keys, for the arm that shows how much depends on how often a key is asked for."""
BEFORE = 10
WINDOW = 30
AFTER = 10
GOAL = 0.98
"""Of the hit rate before: the least during the scale-up with N-ring fade-in."""

Pick = Callable[[float, bytes], LiveUpstream]
"""From the time and a key to its upstream."""


class Scene:
    """One client's upstreams and rings: those before, those after, those added `began` seconds into the run."""

    def __init__(self, fleet: Fleet, added: int, began: float) -> None:
        before = view(range(fleet.shape.upstreams))
        new = view(range(fleet.shape.upstreams, fleet.shape.upstreams + added))
        for upstream in new:
            upstream.seen = began
        self.rng = fleet.rng
        self.began = began
        self.all = before + new
        self.old = Ring.of(before)
        self.whole = self.old.adding(new)


def at_once(scene: Scene) -> Pick:
    """No fade-in: the whole ring from the first moment on."""
    return lambda now, key: scene.whole.pick(key)


def n_ring(scene: Scene) -> Pick:
    """The ring set of the proxy and the library."""
    rings = RingSet(scene.old).joined(scene.whole, scene.began, WINDOW)
    return lambda now, key: Split(rings.shares(now), scene.whole.members).draw(scene.rng.random).pick(key)


def straight_filter(scene: Scene) -> Pick:
    """Before the ring each new upstream is left out by chance, in a straight line as slb's other policies and
    Skipper have it; its keys go to the next clockwise that was not."""
    return lambda now, key: _filtered(scene, now, key)


def curved_filter(scene: Scene) -> Pick:
    """The same filter on the curve of N-ring fade-in, so that the two differ in nothing else."""
    return lambda now, key: _filtered(scene, scene.began + WINDOW * curve(scene.began, WINDOW, now), key)


def _filtered(scene: Scene, now: float, key: bytes) -> LiveUpstream:
    if now >= scene.began + WINDOW:
        return scene.whole.pick(key)
    out = set(deprioritized(scene.all, now, WINDOW, scene.rng))
    return next(upstream for upstream in scene.whole.walk(key) if upstream not in out)


OURS_NAME, AT_ONCE, FILTERED = "N-ring fade-in", "no fade-in", "pre-filter, same curve"
OUTSIDE = f"N-ring fade-in, {RARER} times the keys"

ARMS: dict[str, Callable[[Scene], Pick]] = {
    OURS_NAME: n_ring,
    FILTERED: curved_filter,
    "pre-filter, straight line": straight_filter,
    AT_ONCE: at_once,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one arm: hit rates before, in the window and in the worst second since the scale-up; reads of the database
    since then beyond those before it, and the most in one second; and the part of what the new upstreams have in
    their caches at the end of the window that they do not own."""

    before: float
    during: float
    worst: float
    cold_reads: float
    peak: int
    strays: float

    @property
    def kept(self) -> float:
        """Hit rate of the worst second since the scale-up, as part of the one before."""
        return self.worst / self.before

    def cells(self) -> list[str]:
        rates = [f"{rate:.2%}" for rate in (self.before, self.during, self.worst)]
        return [*rates, f"{self.kept:.4f}", f"{self.cold_reads:.0f}", str(self.peak), f"{self.strays:.1%}"]


def fade_in(seed: int, scale: float) -> list[Section]:
    """A scale-up by half, with each arm. `scale` is the part of the fleet."""
    shape, added = SHAPE.scaled(scale), max(round(ADDED * scale), 1)
    rarer = replace(shape, keys=shape.keys * RARER, cache=shape.cache * RARER)
    outcomes = {name: _outcome(arm, shape, added, seed) for name, arm in ARMS.items()}
    outcomes[OUTSIDE] = _outcome(n_ring, rarer, added, seed)
    title = (
        f"{shape.upstreams} upstreams become {shape.upstreams + added} in the {BEFORE}th second, window {WINDOW} s"
    )
    notes = [
        "Hit rates before it, in the window and in the worst second. Cold reads: reads of the database since the "
        "scale-up, less what was read before it; peak: reads in one second. Strays: part of what the new upstreams "
        "have in their caches at the end of the window, and do not own.",
    ]
    columns = ("", "before", "window", "worst", "of before", "cold reads", "peak", "strays")
    rows = [[name, *outcome.cells()] for name, outcome in outcomes.items()]
    return [Section(title, (), notes, columns, rows), _goals(outcomes)]


def _outcome(arm: Callable[[Scene], Pick], shape: Shape, added: int, seed: int) -> Outcome:
    fleet = Fleet(shape, seed)
    fleet.add_servers(range(shape.upstreams + added))
    scenes = [Scene(fleet, added, BEFORE) for _ in range(shape.clients)]
    fleet.warm(scenes[0].old, WARMING * shape.keys)
    for scene in scenes:
        _add_client(fleet, scene, arm(scene))
    fleet.begin(BEFORE + WINDOW + AFTER)
    fleet.schedule.run(BEFORE + WINDOW)
    strays = _strays(fleet, scenes[0])
    fleet.schedule.run(BEFORE + WINDOW + AFTER)
    before, during = fleet.measures.between(0, BEFORE), fleet.measures.between(BEFORE, BEFORE + WINDOW)
    after = [fleet.measures.between(number, number + 1) for number in range(BEFORE, BEFORE + WINDOW + AFTER)]
    worst = min(second.hit_rate for second in after)
    reads = [second.reads for second in after]
    cold = sum(reads) - before.reads / BEFORE * len(after)
    return Outcome(before.hit_rate, during.hit_rate, worst, cold, max(reads), strays)


def _add_client(fleet: Fleet, scene: Scene, pick: Pick) -> None:
    schedule, began, old = fleet.schedule, scene.began, scene.old

    def choose(key: bytes) -> LiveUpstream:
        return pick(schedule.now, key) if schedule.now >= began else old.pick(key)

    fleet.add_client(choose)


def _strays(fleet: Fleet, scene: Scene) -> float:
    owned = strays = 0
    for member in {each.member for each in scene.whole.members - scene.old.members}:
        for key in fleet.servers[member].cache:
            owned += 1
            strays += scene.whole.pick(key).member != member
    return strays / owned if owned else 0.0


def _goals(by_name: dict[str, Outcome]) -> Section:
    ours, none, filtered, rarer = (by_name[name] for name in (OURS_NAME, AT_ONCE, FILTERED, OUTSIDE))
    figures = [
        Figure(f"{OURS_NAME}: worst second, of the hit rate before", 100 * ours.kept, "%", at_least=100 * GOAL),
        Figure(f"{AT_ONCE}: the same", 100 * none.kept, "%"),
        Figure(f"{OUTSIDE}: the same", 100 * rarer.kept, "%"),
        Figure(f"{OURS_NAME}: over the window, of the hit rate before", 100 * ours.during / ours.before, "%"),
        Figure(f"{AT_ONCE}: the same", 100 * none.during / none.before, "%"),
        Figure(f"{FILTERED}: cold reads, of those with N-ring fade-in", filtered.cold_reads / ours.cold_reads),
        Figure(f"{FILTERED}: what it warmed and is another upstream's", 100 * filtered.strays, "%"),
    ]
    return Section("a scale-up", figures)
