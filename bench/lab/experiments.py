"""`python -m bench simulate`: what the hash ring and its policies do for upstreams with caches, in simulated time.

Bounded load: how evenly upstreams are occupied, by different signals, where every fourth has room for only a part
of the keys it owns. Zones: zone affinity comes in under traffic. The scale-up is in `fade_in.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from bench.command import ALL, Bench, chosen
from bench.lab.fade_in import WARMING, fade_in
from bench.lab.model import Fleet, Shape, distances, view, walked
from bench.table import Figure, Outcome, Section
from slb.balance.ring import Ring
from slb.model import RouteSettings

UNEVEN = Shape(upstreams=16, clients=8, rate=4800.0, fan_out=50, keys=16_000, cache=4000)
SMALL = 700  # keys that every fourth upstream has room for; it owns a thousand
UNEVEN_WARMING = 30
SETTLING, MEASURED, EVERY = 20, 20, 5  # seconds; so many between two samples of the occupancies
WALKED_GOAL = 0.1  # percent: where hardly any request walks without zones, that is no more than chance
SPREAD_GOAL = 0.5  # of the spread under in-flight: the spread under effective load
MIXED, EVEN, SINGLE = "some caches small", "all caches large", "some small, no batches"
SCENES = {MIXED: (SMALL, UNEVEN.fan_out), EVEN: (UNEVEN.cache, UNEVEN.fan_out), SINGLE: (SMALL, 1)}
"""Fleets: keys that every fourth upstream has room for, and keys in a batch."""

ALONE, TIGHT, LOOSE, EFFECTIVE = "ring alone", "in flight, 1.10", "in flight, 1.25", "effective load, 1.25"
SIGNALS = {ALONE: ("off", 1.0), TIGHT: ("inflight", 1.1), LOOSE: ("inflight", 1.25), EFFECTIVE: ("effective", 1.25)}
"""What decides, and the limit it is used with: what in-flight cannot see has to be made up for by a short leash."""

RUNS = (
    *((MIXED, signal) for signal in SIGNALS),
    *((scene, signal) for scene in (EVEN, SINGLE) for signal in (TIGHT, EFFECTIVE)),
)

ZONED = Shape(upstreams=12, clients=6, rate=1800.0, fan_out=50, keys=1350, cache=600)
ZONES = "abc"
TIMES = (
    20,
    300,
    40,
)  # seconds: all-zone routing with warm caches, the ramp, as long as by default, what is measured
NO_BRAKE = 100.0  # a margin that no latency exceeds
PLAIN, BRAKED, UNBRAKED = "all zones", "zone, expected load", "zone, expected load, no brake"
AFFINITIES: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"zone_affinity": False},
    BRAKED: {"zone_affinity": True},
    UNBRAKED: {"zone_affinity": True, "zone_margin": NO_BRAKE},
}


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
    note = (
        "Least, mean, most, spread: of occupancy, the seconds of requests present a second at each upstream. "
        "Walked: requests that passed over their key's owner."
    )
    columns = ("fleet", "signal, limit", "least", "mean", "most", "spread", "hits", "reads/s", "walked")
    rows = [[scene, signal, *each.cells()] for (scene, signal), each in found.items()]

    def spread_of(scene: str, signal: str) -> float:
        return found[scene, EFFECTIVE].spread / found[scene, signal].spread

    reads = found[MIXED, EFFECTIVE].reads / max(found[MIXED, ALONE].reads, 1)
    goals = [
        Figure("spread, of that under in-flight at 1.10", spread_of(MIXED, TIGHT), at_most=SPREAD_GOAL),
        Figure("spread, of that under in-flight at 1.25", spread_of(MIXED, LOOSE), at_most=SPREAD_GOAL),
        Figure("where all caches are large, of that at 1.10", spread_of(EVEN, TIGHT), at_most=SPREAD_GOAL),
        Figure("without batches, of that at 1.10", spread_of(SINGLE, TIGHT), at_most=SPREAD_GOAL),
        Figure("reads of the database, of the ring's alone", reads),
    ]
    return [Section(title, (), [note], columns, rows, words=2), Section("effective load at 1.25", goals)]


def occupied(scene: str, signal: str, shape: Shape, scale: float, seed: int) -> Occupied:
    """One run."""
    (small, fan_out), (load_signal, factor) = SCENES[scene], SIGNALS[signal]
    settling, measured = (max(round(time * scale / EVERY), 1) * EVERY for time in (SETTLING, MEASURED))
    numbers, end = range(shape.upstreams), settling + measured
    rooms = [small if number % 4 == 0 else shape.cache for number in numbers]
    fleet = Fleet(replace(shape, fan_out=fan_out), seed, rooms)
    fleet.warm(Ring.of(view(numbers)), UNEVEN_WARMING * shape.keys)
    settings = _hashed({"load_signal": load_signal, "balance_factor": factor})
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


class Zoned(NamedTuple):
    """Once the ramp has ended, on average: the zone's share; hits, reads of the database a second;
    the part of the requests that walked. `most`: reads in any second since the ramp began."""

    share: float
    hit_rate: float
    reads: float
    most: int
    walked: float

    def cells(self) -> list[str]:
        figures = [f"{self.share:.0%}", f"{self.hit_rate:.2%}", f"{self.reads:.0f}"]
        return [*figures, str(self.most), f"{self.walked:.1%}"]


def zones(seed: int, scale: float) -> list[Section]:
    """With affinity and without. `scale` is the part of the time: a zone needs all its upstreams."""
    settling, ramp, after = (max(round(each * scale), 2) for each in TIMES)
    found = {name: zoned(each, settling, ramp, after, seed) for name, each in AFFINITIES.items()}
    title = (
        f"{ZONED.upstreams} upstreams in {len(ZONES)} zones; affinity from {settling} s on, whole {ramp} s later"
    )
    note = f"All in the {after} s after the ramp; most reads: of any second since it began."
    columns = ("", "own zone", "hits", "reads/s", "most", "walked")
    plain, walks = 100 * found[PLAIN].walked, 100 * found[UNBRAKED].walked
    figures = [
        Figure("requests that walk, at most as without zones", walks, "%", at_most=max(plain, WALKED_GOAL)),
        Figure("own zone with the brake on latency", 100 * found[BRAKED].share, "%"),
    ]
    rows = [[name, *each.cells()] for name, each in found.items()]
    return [Section(title, (), [note], columns, rows), Section("expected load, no brake, after the ramp", figures)]


def zoned(affinity: Mapping[str, Any], settling: int, ramp: int, after: int, seed: int) -> Zoned:
    """One run. Bounded load goes by effective load in all of them."""
    fleet, numbers, whole = Fleet(ZONED, seed), range(ZONED.upstreams), settling + ramp
    fleet.warm(Ring.of(view(numbers)), WARMING * ZONED.keys)
    times = {"zone_min_upstreams": 2, "zone_delay": f"{settling}s", "zone_fade_in": f"{ramp}s"}
    settings = _hashed({**affinity, **times})
    policies = [
        fleet.add_policy(view(numbers, _zone), settings, number, _zone(number)) for number in range(ZONED.clients)
    ]
    fleet.begin(whole + after)
    fleet.schedule.run(whole)
    before, shares = distances(policies), list[float]()
    for second in range(whole, whole + after):
        fleet.schedule.run(second + 1)
        shares.append(fmean(each.zone_share.share for each in policies))
    steady = fleet.between(whole, whole + after)
    most = max(fleet.between(second, second + 1).reads for second in range(settling, whole + after))
    of_requests = walked(distances(policies) - before)
    return Zoned(fmean(shares), steady.hit_rate, steady.reads / after, most, of_requests)


def _zone(number: int) -> str:
    return ZONES[number % len(ZONES)]


def _hashed(settings: Mapping[str, Any]) -> RouteSettings:
    return RouteSettings.model_validate({"policy": "consistent_hash", **settings})


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
