"""Zone affinity coming in under traffic: what it does to the caches, by what bounded load holds upstreams against.

Three zones with as many upstreams and clients each. Bounded load goes by effective load in all runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.model import RouteSettings
from slb.simulate.fleet import Fleet, Shape, Tick, view
from slb.simulate.measures import mean
from slb.simulate.pictures import COLOURS, OURS, panels, save
from slb.simulate.policies import MakePolicy, NaiveThreshold, add_policy, distances, walked
from slb.simulate.report import Claim, Report, percent

SHAPE = Shape(upstreams=12, clients=6, rate=4800.0, fan_out=50, keys=3600, exponent=1.0, cache=1200)
ZONES = ("a", "b", "c")
WARMING = 30
"""Requests for each key before the clock starts, on average."""
SETTLING = 20
DELAY = 5
FADE_IN = 30
"""A tenth of the default, as is the delay: requests are as many as in reality, and simulated one by one."""
AFTER = 15
SPILL = 2.0
"""Times the walks of all-zone routing: the goal of the right threshold is to stay below."""
END = SETTLING + DELAY + FADE_IN + AFTER
NEVER = 100.0
"""A margin that no latency exceeds: without the brake on latency."""


class Arm(NamedTuple):
    name: str
    make: MakePolicy
    affinity: bool = True
    margin: float = 0.35

    def settings(self) -> RouteSettings:
        written = {"zone_delay": f"{SETTLING + DELAY}s", "zone_fade_in": f"{FADE_IN}s"}
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
NAIVE = Arm("zone, naive mean", NaiveThreshold)
NAIVE_UNBRAKED = Arm("zone, naive mean, no brake", NaiveThreshold, margin=NEVER)
ARMS = (PLAIN, RIGHT, UNBRAKED, NAIVE, NAIVE_UNBRAKED)


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

    def last(self) -> Sequence[Moment]:
        """When the ramp has ended."""
        return self.moments[-AFTER:]


Outcomes = dict[Arm, Outcome]


class ZonesExperiment:
    def __init__(self, seed: int, scale: float) -> None:
        self._seed = seed
        self._shape = SHAPE.scaled(max(scale, 0.5))  # a zone needs its upstreams

    def seconds(self) -> float:
        return float(len(ARMS) * END)

    def run(self, tick: Tick) -> Report:
        return _report({arm: self._outcome(arm, tick) for arm in ARMS}, self._shape)

    def _outcome(self, arm: Arm, tick: Tick) -> Outcome:
        fleet = Fleet(self._shape, self._seed)
        numbers = range(self._shape.upstreams)
        fleet.add_servers(numbers)
        fleet.warm(Ring.of(view(numbers)), WARMING * self._shape.keys)
        policies = [
            add_policy(fleet, arm.make, view(numbers, _zone), arm.settings(), f"client {number}", _zone(number))
            for number in range(self._shape.clients)
        ]
        fleet.begin(END)
        moments = [_moment(fleet, policies, second, tick) for second in range(END)]
        return Outcome(tuple(moments), mean([len(server.cache) for server in fleet.servers.values()]))


def _zone(number: int) -> str:
    return ZONES[number % len(ZONES)]


def _moment(fleet: Fleet, policies: Sequence[ConsistentHash], second: int, tick: Tick) -> Moment:
    before = distances(policies)
    fleet.run(second + 1, tick)
    measured = fleet.measures.second(second)
    return Moment(
        mean([policy.zone_share for policy in policies]),
        mean([policy.ramp.health for policy in policies]),
        walked(distances(policies) - before),
        measured.reads,
        measured.hit_rate,
    )


def _report(outcomes: Outcomes, shape: Shape) -> Report:
    return Report(
        f"{shape.upstreams} upstreams in {len(ZONES)} zones; affinity from {SETTLING + DELAY} s on, in {FADE_IN} s",
        ("", "own zone at the end", "health: least", "hit rate", "reads/s", "most", "walked", "keys in a cache"),
        [_cells(arm, outcome) for arm, outcome in outcomes.items()],
        _claims(outcomes),
        lambda path: _draw(outcomes, path),
        (f"All in the {AFTER} s after the ramp; least health and most reads: of any second since it began.",),
    )


def _cells(arm: Arm, outcome: Outcome) -> Sequence[str]:
    last, ramp = outcome.last(), outcome.moments[SETTLING + DELAY :]
    return (
        arm.name,
        percent(mean([each.share for each in last]), 0),
        f"{min(each.health for each in outcome.moments):.2f}",
        percent(mean([each.hit_rate for each in last])),
        f"{mean([each.reads for each in last]):.0f}",
        str(max(each.reads for each in ramp)),
        percent(mean([each.walked for each in last]), 1),
        f"{outcome.kept:.0f}",
    )


def _claims(outcomes: Outcomes) -> list[Claim]:
    plain, right, naive = (
        mean([each.walked for each in outcomes[arm].last()]) for arm in (PLAIN, UNBRAKED, NAIVE_UNBRAKED)
    )
    reads = [mean([each.reads for each in outcomes[arm].last()]) for arm in (UNBRAKED, NAIVE_UNBRAKED)]
    return [
        Claim(
            f"With the ramp at its end {percent(right, 1)} of the requests walk under the load expected of each "
            f"upstream, {percent(plain, 1)} do without zones (goal: less than {SPILL:.0f} times that)",
            right < SPILL * plain,
        ),
        Claim(
            f"Under the naive mean {percent(naive, 1)} walk, and the database is read {reads[1] / reads[0]:.1f} "
            "times as often, where no brake on latency hides it"
        ),
    ]


def _draw(outcomes: Outcomes, path: Path) -> None:
    titles = ["requests for their own zone", "requests that walked", "reads of the database, a second"]
    figure, axes = panels(titles, share_x=True)
    for (arm, outcome), colour in zip(
        outcomes.items(), (COLOURS[4], OURS, COLOURS[1], COLOURS[0], COLOURS[2]), strict=True
    ):
        style: dict[str, Any] = {"color": colour, "label": arm.name, "linewidth": 2.2 if arm is RIGHT else 1.3}
        times = range(1, END + 1)
        axes[0].plot(times, [each.share for each in outcome.moments], **style)
        axes[1].plot(times, [each.walked for each in outcome.moments], **style)
        axes[2].plot(times, [each.reads for each in outcome.moments], **style)
    for axis in axes:
        axis.axvspan(SETTLING + DELAY, SETTLING + DELAY + FADE_IN, color="#222222", alpha=0.05)
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    axes[2].set_xlabel("seconds; the ramp is shaded")
    save(figure, path)
