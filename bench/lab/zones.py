"""Zone affinity coming in under traffic: what it does to the caches, by what bounded load holds upstreams against.

Three zones with as many upstreams and clients each. Bounded load goes by effective load in all runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from bench.chart import BLACK, COLOURS, OURS, line_of, panels, save
from bench.lab.fleet import Fleet, Report, Shape, Tick, view
from bench.lab.policies import MakePolicy, NaiveThreshold, add_policy, distances, walked
from bench.table import Figure, RowsSection, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.model import RouteSettings

SHAPE = Shape(upstreams=12, clients=6, rate=1800.0, fan_out=50, keys=1350, exponent=1.0, cache=600)
ZONES = ("a", "b", "c")
WARMING = 50
"""Requests for each key before the clock starts, on average."""
NEVER = 100.0
"""A margin that no latency exceeds: without the brake on latency."""


class Times(NamedTuple):
    """Whole seconds: all-zone routing with caches that are warm to begin with, then the ramp, as long as it is by
    default, then what is measured."""

    settling: int = 20
    fade_in: int = 300
    after: int = 40

    @property
    def end(self) -> int:
        return sum(self)

    def scaled(self, scale: float) -> "Times":
        return Times(*(max(round(each * scale), 2) for each in self))


class Arm(NamedTuple):
    name: str
    make: MakePolicy
    affinity: bool = True
    margin: float = 0.35

    def settings(self, times: Times) -> RouteSettings:
        written = {"zone_delay": f"{times.settling}s", "zone_fade_in": f"{times.fade_in}s"}
        return RouteSettings.model_validate(
            {
                "policy": "consistent_hash",
                "zone_affinity": self.affinity,
                "zone_margin": self.margin,
                "zone_min_upstreams": 2,
                **written,
            }
        )


PLAIN = Arm("all zones", ConsistentHash, affinity=False)
RIGHT = Arm("zone, expected load", ConsistentHash)
UNBRAKED = Arm("zone, expected load, no brake", ConsistentHash, margin=NEVER)
NAIVE = Arm("zone, naive mean, no brake", NaiveThreshold, margin=NEVER)
ARMS = (PLAIN, RIGHT, UNBRAKED, NAIVE)


class Moment(NamedTuple):
    """One second: averages over the clients of the zone's share and health, and what all did in it."""

    share: float
    health: float
    walked: float
    reads: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Second by second; `kept` is how many keys an upstream has in its cache at the end."""

    moments: tuple[Moment, ...]
    kept: float
    times: Times

    def last(self) -> Sequence[Moment]:
        """When the ramp has ended."""
        return self.moments[-self.times.after :]

    def mean(self, of: Callable[[Moment], float]) -> float:
        """In that time."""
        return fmean([of(moment) for moment in self.last()])


Outcomes = dict[Arm, Outcome]
_share, _walked, _reads = (attrgetter(name) for name in ("share", "walked", "reads"))


class ZonesExperiment:
    """`scale` is the part of the time: a zone needs all its upstreams."""

    def __init__(self, seed: int, scale: float) -> None:
        self._seed = seed
        self._times = Times().scaled(scale)

    def seconds(self) -> int:
        return len(ARMS) * self._times.end

    def run(self, tick: Tick) -> Report:
        return _report({arm: self._outcome(arm, tick) for arm in ARMS}, self._times)

    def _outcome(self, arm: Arm, tick: Tick) -> Outcome:
        fleet = Fleet(SHAPE, self._seed)
        numbers = range(SHAPE.upstreams)
        fleet.add_servers(numbers)
        fleet.warm(Ring.of(view(numbers)), WARMING * SHAPE.keys)
        settings = arm.settings(self._times)
        policies = [
            add_policy(fleet, arm.make, view(numbers, _zone), settings, f"client {number}", _zone(number))
            for number in range(SHAPE.clients)
        ]
        fleet.begin(self._times.end)
        moments = [_moment(fleet, policies, second, tick) for second in range(self._times.end)]
        kept = fmean([len(server.cache) for server in fleet.servers.values()])
        return Outcome(tuple(moments), kept, self._times)


def _zone(number: int) -> str:
    return ZONES[number % len(ZONES)]


def _moment(fleet: Fleet, policies: Sequence[ConsistentHash], second: int, tick: Tick) -> Moment:
    before = distances(policies)
    fleet.run(second + 1, tick)
    measured = fleet.measures.second(second)
    return Moment(
        fmean([policy.zone_share.share for policy in policies]),
        fmean([policy.zone_share.ramp.health for policy in policies]),
        walked(distances(policies) - before),
        measured.reads,
        measured.hit_rate,
    )


def _report(outcomes: Outcomes, times: Times) -> Report:
    title = (
        f"{SHAPE.upstreams} upstreams in {len(ZONES)} zones; affinity from {times.settling} s on, "
        f"whole {times.fade_in} s later"
    )
    notes = [
        f"All in the {times.after} s after the ramp; least health and most reads: of any second since it began.",
        "kept: keys in a cache at the end.",
    ]
    columns = ("", "own zone", "least health", "hits", "reads/s", "most", "walked", "kept")
    table = RowsSection(title, (), notes, columns, [_cells(arm, outcome) for arm, outcome in outcomes.items()])
    return Report([table, _goals(outcomes)], lambda path: _draw(outcomes, times, path))


def _cells(arm: Arm, outcome: Outcome) -> Sequence[str]:
    since = outcome.moments[outcome.times.settling :]
    return (
        arm.name,
        f"{outcome.mean(_share):.0%}",
        f"{min(each.health for each in since):.2f}",
        f"{outcome.mean(lambda each: each.hit_rate):.2%}",
        f"{outcome.mean(_reads):.0f}",
        str(max(map(_reads, since))),
        f"{outcome.mean(_walked):.1%}",
        f"{outcome.kept:.0f}",
    )


def _goals(outcomes: Outcomes) -> Section:
    plain, right, naive = (100 * outcomes[arm].mean(_walked) for arm in (PLAIN, UNBRAKED, NAIVE))
    times = outcomes[NAIVE].mean(_reads) / max(outcomes[UNBRAKED].mean(_reads), 1)
    figures = [
        Figure("requests that walk, at most as without zones", right, "%", at_most=plain),
        Figure("the same under the naive mean", naive, "%"),
        Figure("reads of the database under the naive mean, of these", times),
        Figure("own zone with the brake on latency", 100 * outcomes[RIGHT].mean(_share), "%"),
    ]
    return Section("expected load, no brake, after the ramp", figures)


def _draw(outcomes: Outcomes, times: Times, path: Path) -> None:
    titles = ["requests for their own zone", "requests that walked", "reads of the database, a second"]
    figure, axes = panels(titles, share_x=True)
    for (arm, outcome), colour in zip(outcomes.items(), (COLOURS[4], COLOURS[1], OURS, COLOURS[0]), strict=True):
        style = line_of(colour, arm.name)
        for axis, of in zip(axes, (_share, _walked, _reads), strict=True):
            axis.plot(range(1, times.end + 1), list(map(of, outcome.moments)), **style)
    for axis in axes:
        axis.axvspan(times.settling, times.settling + times.fade_in, color=BLACK, alpha=0.05)
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    axes[2].set_xlabel("seconds; the ramp is shaded")
    save(figure, path)
