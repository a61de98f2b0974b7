"""A scale-up under traffic: what the new upstreams' cold caches cost, by how the traffic comes to them. The ring
alone decides here, without any load signal, so that every difference is the fade-in's."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from bench.lab.model import Fleet, Shape, view
from bench.table import Figure, Section
from slb.balance.fade_in import deprioritized
from slb.balance.ring import Ring
from slb.balance.ring_set import RingSet, curve
from slb.balance.upstream import LiveUpstream

GROWING = Shape(upstreams=100, clients=4, rate=10_000.0, fan_out=50, keys=10_000, cache=250)
ADDED = 50
WARMING = 50  # requests for each key before the clock starts, on average
RARER = 5  # times the keys, for the arm that shows how much depends on how often a key is asked for
BEFORE, WINDOW, AFTER = 10, 30, 10
FADE_GOAL = 0.98  # of the hit rate before: the least during the scale-up with N-ring fade-in

Pick = Callable[[float, bytes], LiveUpstream]  # from the time and a key to its upstream


class Client:
    """One client's upstreams and rings: those before, and those after."""

    def __init__(self, fleet: Fleet, added: int) -> None:
        before = view(range(fleet.shape.upstreams))
        new = view(range(fleet.shape.upstreams, fleet.shape.upstreams + added))
        for upstream in new:
            upstream.seen = BEFORE
        self.rng, self.all = fleet.rng, before + new
        self.old = Ring.of(before)
        self.whole = self.old.adding(new)


def _n_ring(client: Client) -> Pick:
    """The ring set of the proxy and the library."""
    rings = RingSet(client.old).joined(client.whole, BEFORE, WINDOW)
    return lambda now, key: rings.draw(now, client.rng.random()).pick(key)


def _filtered(client: Client) -> Pick:
    """Before the ring each new upstream is left out by chance, as slb's other policies have it, on the curve of
    N-ring fade-in; its keys go to the next clockwise that was not."""

    def pick(now: float, key: bytes) -> LiveUpstream:
        if now >= BEFORE + WINDOW:
            return client.whole.pick(key)
        on_curve = BEFORE + WINDOW * curve(BEFORE, WINDOW, now)
        out = set(deprioritized(client.all, on_curve, WINDOW, client.rng))
        return next(upstream for upstream in client.whole.walk(key) if upstream not in out)

    return pick


def _at_once(client: Client) -> Pick:
    return lambda now, key: client.whole.pick(key)


N_RING, FILTERED, AT_ONCE = "N-ring fade-in", "pre-filter, same curve", "no fade-in"
OUTSIDE = f"{N_RING}, {RARER} times the keys"


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """Hit rates before, in the window and in the worst second since the scale-up; reads of the database since then
    beyond those before it, and the most in one second; and the part of what the new upstreams have in their caches
    at the end of the window that they do not own."""

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
    shape, added = GROWING.scaled(scale), max(round(ADDED * scale), 1)
    rarer = replace(shape, keys=shape.keys * RARER, cache=shape.cache * RARER)
    arms = {N_RING: _n_ring, FILTERED: _filtered, AT_ONCE: _at_once, OUTSIDE: _n_ring}
    found = {name: _scaled_up(arm, rarer if name == OUTSIDE else shape, added, seed) for name, arm in arms.items()}
    ours, filtered, none, outside = found.values()
    title = (
        f"{shape.upstreams} upstreams become {shape.upstreams + added} in the {BEFORE}th second, window {WINDOW} s"
    )
    notes = [
        "Hit rates before it, in the window and in the worst second. Cold reads: reads of the database since the "
        "scale-up, less what was read before it; peak: reads in one second. Strays: part of what the new upstreams "
        "have in their caches at the end of the window, and do not own.",
    ]
    columns = ("", "before", "window", "worst", "of before", "cold reads", "peak", "strays")
    figures = [
        Figure(f"{N_RING}: worst second, of the hit rate before", 100 * ours.kept, "%", at_least=100 * FADE_GOAL),
        Figure(f"{AT_ONCE}: the same", 100 * none.kept, "%"),
        Figure(f"{OUTSIDE}: the same", 100 * outside.kept, "%"),
        Figure(f"{N_RING}: over the window, of the hit rate before", 100 * ours.during / ours.before, "%"),
        Figure(f"{AT_ONCE}: the same", 100 * none.during / none.before, "%"),
        Figure(f"{FILTERED}: cold reads, of those with N-ring fade-in", filtered.cold_reads / ours.cold_reads),
        Figure(f"{FILTERED}: what it warmed and is another upstream's", 100 * filtered.strays, "%"),
    ]
    rows = [[name, *each.cells()] for name, each in found.items()]
    return [Section(title, (), notes, columns, rows), Section("a scale-up", figures)]


def _scaled_up(arm: Callable[[Client], Pick], shape: Shape, added: int, seed: int) -> ScaleUp:
    fleet = Fleet(shape, seed, [shape.cache] * (shape.upstreams + added))
    clients = [Client(fleet, added) for _ in range(shape.clients)]
    fleet.warm(clients[0].old, WARMING * shape.keys)
    for client in clients:
        _add(fleet, client, arm(client))
    fleet.begin(BEFORE + WINDOW + AFTER)
    fleet.schedule.run(BEFORE + WINDOW)
    whole, new = clients[0].whole, {each.member for each in clients[0].whole.members - clients[0].old.members}
    strays = [whole.pick(key).member != member for member in new for key in fleet.servers[member].cache]
    fleet.schedule.run(BEFORE + WINDOW + AFTER)
    before, during = fleet.between(0, BEFORE), fleet.between(BEFORE, BEFORE + WINDOW)
    after = [fleet.between(number, number + 1) for number in range(BEFORE, BEFORE + WINDOW + AFTER)]
    reads = [second.reads for second in after]
    cold = sum(reads) - before.reads / BEFORE * len(after)
    worst = min(second.hit_rate for second in after)
    return ScaleUp(before.hit_rate, during.hit_rate, worst, cold, max(reads), fmean(strays) if strays else 0.0)


def _add(fleet: Fleet, client: Client, pick: Pick) -> None:
    def choose(key: bytes) -> LiveUpstream:
        return pick(fleet.schedule.now, key) if fleet.schedule.now >= BEFORE else client.old.pick(key)

    fleet.add_client(choose)
