"""Bounded load by different signals: how evenly upstreams are occupied, and what that costs in cache hits.

Several client processes send batches. In the fleet that matters every fourth upstream has room for only a part of
the keys it owns, so that it misses often while the others hardly do; as many requests are more work there.
"""

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

from bench.lab.fleet import ByThroughput, Fleet, MakePolicy, Shape, distances, furthest, view, walked
from bench.table import Figure, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.model import RouteSettings

SHAPE = Shape(upstreams=16, clients=8, rate=4800.0, fan_out=50, keys=16_000, cache=4000)
SMALL = 700
"""Keys that every fourth upstream has room for; it owns a thousand."""
WARMING = 30
"""Requests for each key before the clock starts, on average."""
SETTLING = 20
MEASURED = 20
EVERY = 5
"""Seconds between two samples of the occupancies."""
GOAL = 0.5
"""Of the spread under in-flight: the spread under effective load."""


class Scene(NamedTuple):
    """One way in which requests come to a fleet."""

    name: str
    small: int
    fan_out: int


class Arm(NamedTuple):
    """What decides. The two limits are those the two signals are used with: what in-flight cannot see has to be
    made up for by a short leash."""

    name: str
    make: MakePolicy
    signal: Literal["effective", "inflight", "off"]
    factor: float


MIXED = Scene("some caches small", SMALL, SHAPE.fan_out)
EVEN = Scene("all caches large", SHAPE.cache, SHAPE.fan_out)
SINGLE = Scene("some small, no batches", SMALL, 1)

ALONE = Arm("ring alone", ConsistentHash, "off", 1.0)
TIGHT = Arm("in flight, 1.10", ConsistentHash, "inflight", 1.10)
LOOSE = Arm("in flight, 1.25", ConsistentHash, "inflight", 1.25)
THROUGHPUT = Arm("throughput, 1.25", ByThroughput, "effective", 1.25)
EFFECTIVE = Arm("effective load, 1.25", ConsistentHash, "effective", 1.25)

ARMS = (ALONE, TIGHT, LOOSE, THROUGHPUT, EFFECTIVE)
RUNS = (
    *((MIXED, arm) for arm in ARMS),
    *((scene, arm) for scene in (EVEN, SINGLE) for arm in (TIGHT, THROUGHPUT, EFFECTIVE)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one arm in one scene, in the steady state: the least, mean and most occupancy, and the most less the
    least, on average over the samples; hits; reads of the database a second; and how far requests walked."""

    low: float
    average: float
    high: float
    spread: float
    hit_rate: float
    reads: float
    distances: Counter[int]

    def cells(self) -> list[str]:
        figures = [f"{each:.2f}" for each in (self.low, self.average, self.high, self.spread)]
        far = [f"{walked(self.distances):.1%}", str(furthest(self.distances, 0.99))]
        return [*figures, f"{self.hit_rate:.2%}", f"{self.reads:.0f}", *far]


Outcomes = dict[tuple[Scene, Arm], Outcome]


def bounded(seed: int, scale: float) -> list[Section]:
    """All arms. `scale` is the part of the fleet, and of the time."""
    shape = SHAPE.scaled(scale)
    return report({(scene, arm): outcome_of(scene, arm, shape, scale, seed) for scene, arm in RUNS}, shape)


def outcome_of(scene: Scene, arm: Arm, shape: Shape, scale: float, seed: int) -> Outcome:
    """One run."""
    settling, measured = (max(round(time * scale / EVERY), 1) * EVERY for time in (SETTLING, MEASURED))
    fleet, numbers = Fleet(replace(shape, fan_out=scene.fan_out), seed), range(shape.upstreams)
    fleet.add_servers(numbers, lambda number: scene.small if number % 4 == 0 else shape.cache)
    fleet.warm(Ring.of(view(numbers)), WARMING * shape.keys)
    settings = RouteSettings(policy="consistent_hash", load_signal=arm.signal, balance_factor=arm.factor)
    policies = [
        fleet.add_policy(arm.make, view(numbers), settings, f"client {number}") for number in range(shape.clients)
    ]
    end = settling + measured
    fleet.begin(end)
    fleet.schedule.run(settling)
    before = distances(policies)
    samples = [_occupancies(fleet, second) for second in range(settling + EVERY, end + 1, EVERY)]
    steady = fleet.measures.between(settling, end)
    return Outcome(
        fmean(map(min, samples)),
        fmean(map(fmean, samples)),
        fmean(map(max, samples)),
        fmean(max(sample) - min(sample) for sample in samples),
        steady.hit_rate,
        steady.reads / measured,
        distances(policies) - before,
    )


def _occupancies(fleet: Fleet, until: float) -> list[float]:
    """Let time pass: seconds of requests present a second at each upstream meanwhile."""
    before, passed = [server.occupied() for server in fleet.servers.values()], until - fleet.schedule.now
    fleet.schedule.run(until)
    servers = zip(fleet.servers.values(), before, strict=True)
    return [(server.occupied() - had) / passed for server, had in servers]


def report(outcomes: Outcomes, shape: Shape) -> list[Section]:
    """The table and the goals."""
    title = f"{shape.upstreams} upstreams, {shape.clients} client processes, {shape.rate:.0f} requests a second"
    notes = [
        "Least, mean, most, spread: of occupancy, the seconds of requests present a second at each upstream. "
        "Walked: requests that passed over their key's owner; p99: how many upstreams one in a hundred passed "
        "over at least.",
    ]
    columns = ("fleet", "signal, limit", "least", "mean", "most", "spread", "hits", "reads/s", "walked", "p99")
    rows = [[scene.name, arm.name, *outcome.cells()] for (scene, arm), outcome in outcomes.items()]
    ours, alone, throughput = (outcomes[MIXED, arm] for arm in (EFFECTIVE, ALONE, THROUGHPUT))
    tight, loose = (ours.spread / outcomes[MIXED, arm].spread for arm in (TIGHT, LOOSE))
    even, single = (outcomes[scene, EFFECTIVE].spread / outcomes[scene, TIGHT].spread for scene in (EVEN, SINGLE))
    figures = [
        Figure("spread, of that under in-flight at 1.10", tight, at_most=GOAL),
        Figure("spread, of that under in-flight at 1.25", loose, at_most=GOAL),
        Figure("where all caches are large, of that at 1.10", even, at_most=GOAL),
        Figure("without batches, of that at 1.10", single, at_most=GOAL),
        Figure("throughput's spread, of this", throughput.spread / ours.spread),
        Figure("throughput's reads of the database, of these", throughput.reads / ours.reads),
        Figure("reads of the database, of the ring's alone", ours.reads / max(alone.reads, 1)),
    ]
    return [Section(title, (), notes, columns, rows, words=2), Section("effective load at 1.25", figures)]
