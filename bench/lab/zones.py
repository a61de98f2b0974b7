"""Zone affinity coming in under traffic: what it does to the caches, by what bounded load holds upstreams against.

Three zones with as many upstreams and clients each. Bounded load goes by effective load in all runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from bench.lab.fleet import Fleet, MakePolicy, NaiveThreshold, Shape, distances, view, walked
from bench.table import Figure, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.model import RouteSettings

SHAPE = Shape(upstreams=12, clients=6, rate=1800.0, fan_out=50, keys=1350, cache=600)
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
        return RouteSettings.model_validate(
            {
                "policy": "consistent_hash",
                "zone_affinity": self.affinity,
                "zone_margin": self.margin,
                "zone_min_upstreams": 2,
                "zone_delay": f"{times.settling}s",
                "zone_fade_in": f"{times.fade_in}s",
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
    """Second by second since the ramp began; `kept` is how many keys an upstream has in its cache at the end."""

    moments: Sequence[Moment]
    kept: float
    after: int

    def mean(self, of: Callable[[Moment], float]) -> float:
        """Once the ramp has ended."""
        return fmean(map(of, self.moments[-self.after :]))

    def cells(self) -> list[str]:
        return [
            f"{self.mean(lambda each: each.share):.0%}",
            f"{min(each.health for each in self.moments):.2f}",
            f"{self.mean(lambda each: each.hit_rate):.2%}",
            f"{self.mean(lambda each: each.reads):.0f}",
            str(max(each.reads for each in self.moments)),
            f"{self.mean(lambda each: each.walked):.1%}",
            f"{self.kept:.0f}",
        ]


def zones(seed: int, scale: float) -> list[Section]:
    """All arms. `scale` is the part of the time: a zone needs all its upstreams."""
    times = Times().scaled(scale)
    return report({arm: outcome_of(arm, times, seed) for arm in ARMS}, times)


def outcome_of(arm: Arm, times: Times, seed: int) -> Outcome:
    """One run."""
    fleet, numbers = Fleet(SHAPE, seed), range(SHAPE.upstreams)
    fleet.add_servers(numbers)
    fleet.warm(Ring.of(view(numbers)), WARMING * SHAPE.keys)
    settings = arm.settings(times)
    policies = [
        fleet.add_policy(arm.make, view(numbers, _zone), settings, f"client {number}", _zone(number))
        for number in range(SHAPE.clients)
    ]
    fleet.begin(times.end)
    fleet.schedule.run(times.settling)
    moments = [_moment(fleet, policies, second) for second in range(times.settling, times.end)]
    return Outcome(moments, fmean(len(server.cache) for server in fleet.servers.values()), times.after)


def _zone(number: int) -> str:
    return ZONES[number % len(ZONES)]


def _moment(fleet: Fleet, policies: Sequence[ConsistentHash], second: int) -> Moment:
    before = distances(policies)
    fleet.schedule.run(second + 1)
    measured = fleet.measures.between(second, second + 1)
    return Moment(
        fmean(policy.zone_share.share for policy in policies),
        fmean(policy.zone_share.ramp.health for policy in policies),
        walked(distances(policies) - before),
        measured.reads,
        measured.hit_rate,
    )


def report(outcomes: dict[Arm, Outcome], times: Times) -> list[Section]:
    """The table and the goals."""
    title = (
        f"{SHAPE.upstreams} upstreams in {len(ZONES)} zones; affinity from {times.settling} s on, "
        f"whole {times.fade_in} s later"
    )
    notes = [
        f"All in the {times.after} s after the ramp; least health and most reads: of any second since it began.",
        "kept: keys in a cache at the end.",
    ]
    columns = ("", "own zone", "least health", "hits", "reads/s", "most", "walked", "kept")
    rows = [[arm.name, *outcome.cells()] for arm, outcome in outcomes.items()]
    plain, right, naive = (100 * outcomes[arm].mean(lambda each: each.walked) for arm in (PLAIN, UNBRAKED, NAIVE))
    ours, theirs = (outcomes[arm].mean(lambda each: each.reads) for arm in (UNBRAKED, NAIVE))
    figures = [
        Figure("requests that walk, at most as without zones", right, "%", at_most=plain),
        Figure("the same under the naive mean", naive, "%"),
        Figure("reads of the database under the naive mean, of these", theirs / max(ours, 1)),
        Figure("own zone with the brake on latency", 100 * outcomes[RIGHT].mean(lambda each: each.share), "%"),
    ]
    return [Section(title, (), notes, columns, rows), Section("expected load, no brake, after the ramp", figures)]
