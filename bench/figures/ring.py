"""The ring in process: what a pick costs, beside uhashring's, and what it costs to make a ring."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import TypeVar

from bench.errors import BenchError
from bench.figures.figure import Figure, Outcome, Section
from bench.figures.ring_full import BusyRing
from bench.figures.ring_other import OTHERS, SAME_RING, made_other
from bench.progress import Steps
from slb.balance.ring import Ring, endpoint
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

GOAL_PICK_US = 1.5
GOAL_FULL_PICK_US = 8.0
GOAL_TIMES_AS_FAST = 3.0
GOAL_COLD_MS = 25.0
GOAL_ONE_MORE_MS = 3.0
GOAL_HELD_MS = 5.0
BATCH = 50
BATCHES_A_ROUND = 100
KEYS = [f"/products/{number}" for number in range(BATCH * BATCHES_A_ROUND)]
SLB, FULL = "slb", "slb: fading in, zones, bounded load"
STEPS = 2

T = TypeVar("T")
Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Plan:
    """`rounds`: turns of everybody who picks; `tries`: rings made of each kind."""

    endpoints: int
    rounds: int
    tries: int


def fleet(count: int, net: int = 0) -> list[LiveUpstream]:
    """`count` upstreams, in three zones; no two of different nets are the same."""
    return [
        LiveUpstream(Upstream.of(f"10.{net}.{number // 250}.{number % 250}:8080", {"zone": f"z{number % 3}"}))
        for number in range(count)
    ]


def measure(steps: Steps, plan: Plan) -> Outcome:
    """Everything in this process. It is CPU time that is told, so that others on the machine count for less."""
    steps.to("picks")
    picks = _picks(plan)
    steps.done()
    steps.to("rings")
    made = _made(plan)
    steps.done()
    sections = [pick_section(plan, picks), made_section(plan, made)]
    return Outcome(sections, {"picks_us": picks, "made_ms": made})


# -- picks


def _picks(plan: Plan) -> Samples:
    """Microseconds a pick, one entry a batch; each round gives everybody one turn, on the same keys."""
    ring, busy = Ring.of(fleet(plan.endpoints)), BusyRing(fleet(plan.endpoints))
    names = [endpoint(upstream) for upstream in ring.upstreams]
    others = {name: made_other(name, names) for name in OTHERS}
    keys = [key.encode() for key in KEYS]
    same_owners(ring, others[SAME_RING])
    samples: Samples = {name: [] for name in (SLB, *OTHERS, FULL)}
    for _ in range(plan.rounds):
        samples[SLB] += _timed(ring.pick, keys)
        for name, pick in others.items():
            samples[name] += _timed(pick, KEYS)
        samples[FULL] += _timed(busy.pick, keys, busy.turn_over)
        busy.rest()
    return samples


def same_owners(ring: Ring, other: Callable[[str], str]) -> None:
    """Every key has the same owner in both; raises BenchError."""
    for key in KEYS:
        if endpoint(ring.pick(key.encode())) != other(key):
            raise BenchError(f"uhashring with the same hash has another owner for {key}: they cannot be compared")


def _nothing() -> None:
    pass


def _timed(pick: Callable[[T], object], keys: Sequence[T], between: Callable[[], None] = _nothing) -> list[float]:
    """Microseconds a pick, of each batch; `between` batches comes what is not counted."""
    found: list[float] = []
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        began = time.thread_time_ns()
        for key in batch:
            pick(key)
        found.append((time.thread_time_ns() - began) / len(batch) / 1000)
        between()
    return found


def pick_section(plan: Plan, samples: Samples) -> Section:
    """Medians, and who is how much faster."""
    us = {name: median(found) for name, found in samples.items()}
    goals = {name: None if name == SAME_RING else GOAL_TIMES_AS_FAST for name in OTHERS}
    return Section(
        f"one pick of {plan.endpoints} endpoints, CPU; median of {len(samples[SLB])} batches of {BATCH}",
        [
            Figure(SLB, us[SLB], "µs", below=GOAL_PICK_US),
            *(Figure(name, us[name], "µs") for name in OTHERS),
            *(
                Figure(f"slb is faster than {name}", us[name] / us[SLB], "times", at_least=goals[name])
                for name in OTHERS
            ),
            Figure(FULL, us[FULL], "µs", below=GOAL_FULL_PICK_US),
            Figure(f"{FULL}, mean", mean(samples[FULL]), "µs"),
        ],
        [
            "uhashring as it comes hashes with MD5 and has 160 positions an endpoint, its ketama 4 times 40. With",
            "xxHash64 and 100 positions given to it, it has the very ring that slb has, and this was checked.",
            "The mean has in it what is done every few milliseconds: shares of rings and zone, load of the pool.",
        ],
    )


# -- rings


def _made(plan: Plan) -> Samples:
    """Milliseconds, one entry a try."""
    upstreams = fleet(plan.endpoints)
    ring, (one, *_) = Ring.of(upstreams), fleet(1, net=1)
    more = fleet(max(1, plan.endpoints // 4), net=2)
    made: Samples = {"cold": [], "cold_slice": [], "one_more": [], "more": [], "more_slice": [], "one_less": []}
    for _ in range(plan.tries):
        cold, grown = slices(Ring.build(upstreams)), slices(ring.growing(more))
        made["cold"].append(sum(cold))
        made["cold_slice"].append(max(cold))
        made["one_more"].append(sum(slices(ring.growing([one]))))
        made["more"].append(sum(grown))
        made["more_slice"].append(max(grown))
        began = time.thread_time_ns()
        ring.without(upstreams[:1])
        made["one_less"].append((time.thread_time_ns() - began) / 1e6)
    return made


def slices(building: Generator[None, None, Ring]) -> list[float]:
    """Milliseconds of each."""
    found: list[float] = []
    ended = False
    while not ended:
        began = time.thread_time_ns()
        ended = next(building, building) is building
        found.append((time.thread_time_ns() - began) / 1e6)
    return found


def made_section(plan: Plan, made: Samples) -> Section:
    """Medians over the tries."""
    ms = {name: median(found) for name, found in made.items()}
    more = max(1, plan.endpoints // 4)
    return Section(
        f"a ring of {plan.endpoints} endpoints, CPU; medians of {plan.tries} tries",
        [
            Figure("made cold", ms["cold"], "ms", at_most=GOAL_COLD_MS),
            Figure("made cold: its longest slice", ms["cold_slice"], "ms", at_most=GOAL_HELD_MS),
            Figure("one endpoint more", ms["one_more"], "ms", at_most=GOAL_ONE_MORE_MS),
            Figure(f"{more} endpoints more", ms["more"], "ms"),
            Figure(f"{more} endpoints more: their longest slice", ms["more_slice"], "ms", at_most=GOAL_HELD_MS),
            Figure("one endpoint less", ms["one_less"], "ms"),
        ],
        ["Between two slices the event loop may serve requests."],
    )
