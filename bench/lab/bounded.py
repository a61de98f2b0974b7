"""Bounded load by different signals: how evenly upstreams are occupied, and what that costs in cache hits.

Several client processes send batches. In the fleet that matters every fourth upstream has room for only a part of
the keys it owns, so that it misses often while the others hardly do; as many requests are more work there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from bench.chart import BLACK, COLOURS, OURS, panels, save
from bench.lab.fleet import Fleet, Report, Shape, Tick, view
from bench.lab.model import Occupancies
from bench.lab.policies import ByThroughput, MakePolicy, add_policy, distances, furthest, walked
from bench.table import Figure, RowsSection, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.model import RouteSettings

SHAPE = Shape(upstreams=16, clients=8, rate=4800.0, fan_out=50, keys=16_000, exponent=1.0, cache=4000)
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
    """Of one arm in one scene: figures of the steady state, which begins at `begin`. `lows` and `highs` are the
    least and the most occupancy of every sample.
    """

    low: float
    average: float
    high: float
    spread: float
    hit_rate: float
    reads: float
    distances: Counter[int]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    begin: int


Outcomes = dict[tuple[Scene, Arm], Outcome]


class BoundedExperiment:
    """`scale` is the part of the fleet, and of the time."""

    def __init__(self, seed: int, scale: float) -> None:
        self._seed = seed
        self._shape = SHAPE.scaled(scale)
        self._settling, self._measured = (
            max(round(time * scale / EVERY), 1) * EVERY for time in (SETTLING, MEASURED)
        )

    def seconds(self) -> int:
        return len(RUNS) * (self._settling + self._measured)

    def run(self, tick: Tick) -> Report:
        return _report({(scene, arm): self._outcome(scene, arm, tick) for scene, arm in RUNS}, self._shape)

    def _outcome(self, scene: Scene, arm: Arm, tick: Tick) -> Outcome:
        fleet = Fleet(replace(self._shape, fan_out=scene.fan_out), self._seed)
        numbers = range(self._shape.upstreams)
        fleet.add_servers(numbers, lambda number: scene.small if number % 4 == 0 else self._shape.cache)
        fleet.warm(Ring.of(view(numbers)), WARMING * self._shape.keys)
        settings = RouteSettings(policy="consistent_hash", load_signal=arm.signal, balance_factor=arm.factor)
        policies = [
            add_policy(fleet, arm.make, view(numbers), settings, f"client {number}")
            for number in range(self._shape.clients)
        ]
        end = self._settling + self._measured
        fleet.begin(end)
        occupancies = Occupancies(fleet.servers)
        _sampled(fleet, occupancies, self._settling, tick)
        before = distances(policies)
        settled = len(occupancies.samples)
        _sampled(fleet, occupancies, end, tick)
        return _measured(fleet, occupancies, settled, distances(policies) - before)


def _sampled(fleet: Fleet, occupancies: Occupancies, until: float, tick: Tick) -> None:
    while fleet.schedule.now < until:
        fleet.run(fleet.schedule.now + EVERY, tick)
        occupancies.sample(fleet.schedule.now)


def _measured(fleet: Fleet, occupancies: Occupancies, settled: int, since: Counter[int]) -> Outcome:
    lows, highs = ([pick(sample.values()) for sample in occupancies.samples] for pick in (min, max))
    begin, end = settled * EVERY, len(lows) * EVERY
    steady = fleet.measures.between(begin, end)
    return Outcome(
        fmean(lows[settled:]),
        fmean([fmean(sample.values()) for sample in occupancies.samples[settled:]]),
        fmean(highs[settled:]),
        fmean([high - low for low, high in zip(lows[settled:], highs[settled:], strict=True)]),
        steady.hit_rate,
        steady.reads / (end - begin),
        since,
        tuple(lows),
        tuple(highs),
        begin,
    )


def _report(outcomes: Outcomes, shape: Shape) -> Report:
    title = f"{shape.upstreams} upstreams, {shape.clients} client processes, {shape.rate:.0f} requests a second"
    notes = [
        "Least, mean, most, spread: of occupancy, the seconds of requests present a second at each upstream. "
        "Walked: requests that passed over their key's owner; p99: how many upstreams one in a hundred passed "
        "over at least.",
    ]
    columns = ("fleet", "signal, limit", "least", "mean", "most", "spread", "hits", "reads/s", "walked", "p99")
    rows = [_cells(scene, arm, outcome) for (scene, arm), outcome in outcomes.items()]
    table = RowsSection(title, (), notes, columns, rows, words=2)
    return Report([table, _goals(outcomes)], lambda path: _draw(outcomes, path))


def _cells(scene: Scene, arm: Arm, outcome: Outcome) -> Sequence[str]:
    figures = (outcome.low, outcome.average, outcome.high, outcome.spread)
    return (
        scene.name,
        arm.name,
        *(f"{figure:.2f}" for figure in figures),
        f"{outcome.hit_rate:.2%}",
        f"{outcome.reads:.0f}",
        f"{walked(outcome.distances):.1%}",
        str(furthest(outcome.distances, 0.99)),
    )


def _goals(outcomes: Outcomes) -> Section:
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
    return Section("effective load at 1.25", figures)


def _draw(outcomes: Outcomes, path: Path) -> None:
    figure, axes = panels([*(arm.name for arm in ARMS), "hit rate, measured"], 3)
    top = max(max(outcomes[MIXED, arm].highs) for arm in ARMS) * 1.05
    for axis, arm, colour in zip(axes, ARMS, (*COLOURS[:4], OURS), strict=False):
        outcome = outcomes[MIXED, arm]
        times = [EVERY * (number + 1) for number in range(len(outcome.lows))]
        style: dict[str, Any] = {"color": colour}
        axis.fill_between(times, outcome.lows, outcome.highs, alpha=0.25, **style)
        axis.plot(times, outcome.highs, label=f"spread {outcome.spread:.2f}", **style)
        axis.plot(times, outcome.lows, **style)
        axis.axvline(outcome.begin, color=BLACK, linestyle=":", linewidth=1)
        axis.set_ylim(0, top)
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylabel("occupancy, least and most")
    axes[3].set(ylabel="occupancy, least and most", xlabel="seconds; measured right of the dots")
    _draw_rates(axes[5], outcomes)
    save(figure, path)


def _draw_rates(axis: Any, outcomes: Outcomes) -> None:
    rates = [outcomes[MIXED, arm].hit_rate for arm in ARMS]
    bars = axis.barh([arm.name for arm in ARMS], rates, color=(*COLOURS[:4], OURS))
    axis.bar_label(bars, fmt="{:.3f}", fontsize=8, label_type="center")
    axis.set_xlim(min(rates) - 0.02, 1)
    axis.invert_yaxis()
