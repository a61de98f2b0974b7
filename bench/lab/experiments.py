"""`python -m bench simulate`: what the hash ring and its policies do for upstreams with caches, in simulated time.

Bounded load: how evenly upstreams are occupied, by different signals, where every fourth has room for only a part
of the keys it owns. Zones: zone affinity comes in under traffic. The scale-up is in `fade_in.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

from typer import Argument, Option

from bench.command import ALL, Bench, chosen
from bench.lab.fade_in import WARMING, fade_in
from bench.lab.model import Fleet, Shape, distances, view, walked
from bench.table import Figure, Outcome, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.model import RouteSettings

# -- bounded load

UNEVEN = Shape(upstreams=16, clients=8, rate=4800.0, fan_out=50, keys=16_000, cache=4000)
SMALL = 700  # keys that every fourth upstream has room for; it owns a thousand
UNEVEN_WARMING, SETTLING, MEASURED = 30, 20, 20
EVERY = 5  # seconds between two samples of the occupancies
SPREAD_GOAL = 0.5  # of the spread under in-flight: the spread under effective load


class Scene(NamedTuple):
    """One way in which requests come to a fleet: keys that every fourth upstream has room for, keys in a batch."""

    name: str
    small: int
    fan_out: int


class Signal(NamedTuple):
    """What decides. The two limits are those the two signals are used with: what in-flight cannot see has to be
    made up for by a short leash."""

    name: str
    load_signal: Literal["effective", "inflight", "off"]
    factor: float


MIXED = Scene("some caches small", SMALL, UNEVEN.fan_out)
EVEN = Scene("all caches large", UNEVEN.cache, UNEVEN.fan_out)
SINGLE = Scene("some small, no batches", SMALL, 1)
ALONE = Signal("ring alone", "off", 1.0)
TIGHT = Signal("in flight, 1.10", "inflight", 1.10)
LOOSE = Signal("in flight, 1.25", "inflight", 1.25)
EFFECTIVE = Signal("effective load, 1.25", "effective", 1.25)
RUNS = (
    *((MIXED, signal) for signal in (ALONE, TIGHT, LOOSE, EFFECTIVE)),
    *((scene, signal) for scene in (EVEN, SINGLE) for signal in (TIGHT, EFFECTIVE)),
)


class Occupied(NamedTuple):
    """In the steady state: the least, mean and most occupancy, and the most less the least, on average over the
    samples; hits; reads of the database a second; and the part of the requests that walked."""

    low: float
    average: float
    high: float
    spread: float
    hit_rate: float
    reads: float
    walked: float

    def cells(self) -> list[str]:
        figures = [f"{each:.2f}" for each in (self.low, self.average, self.high, self.spread)]
        return [*figures, f"{self.hit_rate:.2%}", f"{self.reads:.0f}", f"{self.walked:.1%}"]


def bounded(seed: int, scale: float) -> list[Section]:
    """All signals. `scale` is the part of the fleet, and of the time."""
    shape = UNEVEN.scaled(scale)
    found = {(scene, signal): occupied(scene, signal, shape, scale, seed) for scene, signal in RUNS}
    title = f"{shape.upstreams} upstreams, {shape.clients} client processes, {shape.rate:.0f} requests a second"
    notes = [
        "Least, mean, most, spread: of occupancy, the seconds of requests present a second at each upstream. "
        "Walked: requests that passed over their key's owner.",
    ]
    columns = ("fleet", "signal, limit", "least", "mean", "most", "spread", "hits", "reads/s", "walked")
    rows = [[scene.name, signal.name, *each.cells()] for (scene, signal), each in found.items()]

    def spread_of(scene: Scene, signal: Signal) -> float:
        return found[scene, EFFECTIVE].spread / found[scene, signal].spread

    reads = found[MIXED, EFFECTIVE].reads / max(found[MIXED, ALONE].reads, 1)
    goals = [
        Figure("spread, of that under in-flight at 1.10", spread_of(MIXED, TIGHT), at_most=SPREAD_GOAL),
        Figure("spread, of that under in-flight at 1.25", spread_of(MIXED, LOOSE), at_most=SPREAD_GOAL),
        Figure("where all caches are large, of that at 1.10", spread_of(EVEN, TIGHT), at_most=SPREAD_GOAL),
        Figure("without batches, of that at 1.10", spread_of(SINGLE, TIGHT), at_most=SPREAD_GOAL),
        Figure("reads of the database, of the ring's alone", reads),
    ]
    return [Section(title, (), notes, columns, rows, words=2), Section("effective load at 1.25", goals)]


def occupied(scene: Scene, signal: Signal, shape: Shape, scale: float, seed: int) -> Occupied:
    """One run."""
    settling, measured = (max(round(time * scale / EVERY), 1) * EVERY for time in (SETTLING, MEASURED))
    numbers, end = range(shape.upstreams), settling + measured
    rooms = [scene.small if number % 4 == 0 else shape.cache for number in numbers]
    fleet = Fleet(replace(shape, fan_out=scene.fan_out), seed, rooms)
    fleet.warm(Ring.of(view(numbers)), UNEVEN_WARMING * shape.keys)
    limits = {"load_signal": signal.load_signal, "balance_factor": signal.factor}
    settings = RouteSettings.model_validate({"policy": "consistent_hash", **limits})
    policies = [fleet.add_policy(view(numbers), settings, number) for number in range(shape.clients)]
    fleet.begin(end)
    fleet.schedule.run(settling)
    before, samples = distances(policies), list[list[float]]()
    for second in range(settling + EVERY, end + 1, EVERY):
        had = [server.occupied() for server in fleet.servers.values()]
        fleet.schedule.run(second)
        has = [server.occupied() for server in fleet.servers.values()]
        samples.append([(now - was) / EVERY for now, was in zip(has, had, strict=True)])
    steady = fleet.between(settling, end)
    low, average, high = (fmean(map(of, samples)) for of in (min, fmean, max))
    of_requests = walked(distances(policies) - before)
    return Occupied(low, average, high, high - low, steady.hit_rate, steady.reads / measured, of_requests)


# -- zones

ZONED = Shape(upstreams=12, clients=6, rate=1800.0, fan_out=50, keys=1350, cache=600)
ZONES = ("a", "b", "c")
NO_BRAKE = 100.0  # a margin that no latency exceeds


class Times(NamedTuple):
    """Whole seconds: all-zone routing with caches that are warm to begin with, then the ramp, as long as it is by
    default, then what is measured."""

    settling: int = 20
    fade_in: int = 300
    after: int = 40

    def scaled(self, scale: float) -> "Times":
        return Times(*(max(round(each * scale), 2) for each in self))


class Affinity(NamedTuple):
    name: str
    is_on: bool = True
    margin: float = 0.35


PLAIN, BRAKED = Affinity("all zones", is_on=False), Affinity("zone, expected load")
UNBRAKED = Affinity("zone, expected load, no brake", margin=NO_BRAKE)


class Moment(NamedTuple):
    """One second: averages over the clients of the zone's share and health, and what all did in it."""

    share: float
    health: float
    walked: float
    reads: int
    hit_rate: float


class Ramp(NamedTuple):
    """Second by second since the ramp began, and on average once it has ended; `kept` is how many keys an upstream
    has in its cache at the end."""

    moments: Sequence[Moment]
    mean: Sequence[float]
    kept: float

    def cells(self) -> list[str]:
        share, _, walked, reads, hit_rate = self.mean
        least, most = min(each.health for each in self.moments), max(each.reads for each in self.moments)
        figures = [f"{share:.0%}", f"{least:.2f}", f"{hit_rate:.2%}", f"{reads:.0f}", str(most)]
        return [*figures, f"{walked:.1%}", f"{self.kept:.0f}"]


def zones(seed: int, scale: float) -> list[Section]:
    """All of them. `scale` is the part of the time: a zone needs all its upstreams."""
    times = Times().scaled(scale)
    found = {each: ramped(each, times, seed) for each in (PLAIN, BRAKED, UNBRAKED)}
    title = (
        f"{ZONED.upstreams} upstreams in {len(ZONES)} zones; affinity from {times.settling} s on, "
        f"whole {times.fade_in} s later"
    )
    notes = [
        f"All in the {times.after} s after the ramp; least health and most reads: of any second since it began.",
        "kept: keys in a cache at the end.",
    ]
    columns = ("", "own zone", "least health", "hits", "reads/s", "most", "walked", "kept")
    plain, braked, unbraked = (Moment(*found[each].mean) for each in found)  # type: ignore[arg-type]
    figures = [
        Figure("requests that walk, at most as without zones", 100 * unbraked.walked, "%", 100 * plain.walked),
        Figure("own zone with the brake on latency", 100 * braked.share, "%"),
    ]
    rows = [[affinity.name, *each.cells()] for affinity, each in found.items()]
    return [Section(title, (), notes, columns, rows), Section("expected load, no brake, after the ramp", figures)]


def ramped(affinity: Affinity, times: Times, seed: int) -> Ramp:
    """One run. Bounded load goes by effective load in all of them."""
    fleet, numbers = Fleet(ZONED, seed), range(ZONED.upstreams)
    fleet.warm(Ring.of(view(numbers)), WARMING * ZONED.keys)
    zone = {"zone_affinity": affinity.is_on, "zone_margin": affinity.margin, "zone_min_upstreams": 2}
    ramp = {"zone_delay": f"{times.settling}s", "zone_fade_in": f"{times.fade_in}s"}
    settings = RouteSettings.model_validate({"policy": "consistent_hash", **zone, **ramp})
    policies = [
        fleet.add_policy(view(numbers, _zone), settings, number, _zone(number)) for number in range(ZONED.clients)
    ]
    fleet.begin(sum(times))
    fleet.schedule.run(times.settling)
    moments = [_moment(fleet, policies, second) for second in range(times.settling, sum(times))]
    mean = [fmean(column) for column in zip(*moments[-times.after :], strict=True)]
    return Ramp(moments, mean, fmean(len(server.cache) for server in fleet.servers.values()))


def _zone(number: int) -> str:
    return ZONES[number % len(ZONES)]


def _moment(fleet: Fleet, policies: Sequence[ConsistentHash], second: int) -> Moment:
    before = distances(policies)
    fleet.schedule.run(second + 1)
    measured = fleet.between(second, second + 1)
    share = fmean(policy.zone_share.share for policy in policies)
    health = fmean(policy.zone_share.ramp.health for policy in policies)
    return Moment(share, health, walked(distances(policies) - before), measured.reads, measured.hit_rate)


EXPERIMENTS = {"fade-in": fade_in, "bounded": bounded, "zones": zones}


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
