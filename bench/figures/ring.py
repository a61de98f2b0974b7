"""The ring in process: what a pick costs, beside uhashring's, and what it costs to make a ring."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from random import Random
from statistics import mean, median
from typing import Annotated, TypeVar

from typer import Option
from xxhash import xxh64_intdigest

from bench.command import Bench
from bench.errors import BenchError
from bench.table import Figure, Outcome, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring, endpoint
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings, Upstream

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
AS_IT_COMES, KETAMA, SAME_RING = "uhashring", "uhashring, ketama", "uhashring, the same ring"
OTHERS: dict[str, dict[str, object]] = {
    AS_IT_COMES: {},
    KETAMA: {"hash_fn": "ketama"},
    SAME_RING: {"hash_fn": lambda key: xxh64_intdigest(key.encode()), "vnodes": 100},
}
"""uhashring, the ring that Python programs commonly use, and its settings."""

INFLIGHT_EACH = 2
"""Requests in flight for each upstream, all the while."""
SETTINGS = RouteSettings.model_validate(
    {
        "policy": "consistent_hash",
        "fade_in": "60m",
        "zone_affinity": True,
        "zone_delay": "0s",
        "zone_fade_in": "60m",
    }
)
HALFWAY_SECONDS = 1800.0
"""Of what takes an hour: so the measurement is an instant."""

T = TypeVar("T")
Samples = Mapping[str, list[float]]


def fleet(count: int, net: int = 0) -> list[LiveUpstream]:
    """`count` upstreams, in three zones; no two of different nets are the same."""
    return [
        LiveUpstream(Upstream.of(f"10.{net}.{number // 250}.{number % 250}:8080", {"zone": f"z{number % 3}"}))
        for number in range(count)
    ]


class BusyRing:
    """The whole policy in a fleet that grows by a third under load: a quarter of `upstreams` are halfway through
    their fade-in, and the zone through its ramp."""

    def __init__(self, upstreams: Sequence[LiveUpstream]) -> None:
        self._passed = 0.0
        self._view = RouteView(tuple(upstreams))
        self.policy = ConsistentHash(Random(1), lambda: time.monotonic() + self._passed, zone="z0")
        self._handles: deque[Handle] = deque()
        self._picked: list[LiveUpstream] = []
        self._follow(self._view.upstreams[: len(upstreams) * 3 // 4])
        self.pick(b"the ramp begins with the first pick")
        self._follow(self._view.upstreams)
        self._passed += HALFWAY_SECONDS

    def pick(self, key: bytes) -> None:
        """What is measured."""
        self._picked.append(self.policy.pick(self._view, key))

    def turn_over(self) -> None:
        """The upstreams picked last have their requests, and as many others have ended."""
        self._handles.extend(map(Handle, self._picked))
        self._picked.clear()
        while len(self._handles) > INFLIGHT_EACH * len(self._view.upstreams):
            self._handles.popleft().release()

    def rest(self) -> None:
        """All requests have ended: none is to look stuck that only waits for the next turn."""
        while self._handles:
            self._handles.popleft().release()

    def _follow(self, upstreams: tuple[LiveUpstream, ...]) -> None:
        self.policy.follow(upstreams, SETTINGS)
        self._passed += SETTINGS.ring_debounce
        for _ in self.policy.steps():
            pass


def made_other(name: str, endpoints: Sequence[str]) -> Callable[[str], str]:
    """What gives the owner of a key, of one of OTHERS."""
    try:
        from uhashring import HashRing  # only the bench extra has it
    except ImportError as error:
        raise BenchError("uhashring is not installed: make bench-ring does that") from error
    pick: Callable[[str], str] = HashRing(nodes=list(endpoints), **OTHERS[name]).get_node
    return pick


def same_owners(ring: Ring, other: Callable[[str], str]) -> None:
    """Every key has the same owner in both; raises BenchError."""
    for key in KEYS:
        if endpoint(ring.pick(key.encode())) != other(key):
            raise BenchError(f"uhashring with the same hash has another owner for {key}: they cannot be compared")


def ring(
    bench: Bench,
    endpoints: Annotated[int, Option(min=4, help="In the ring.")] = 200,
    rounds: Annotated[int, Option(min=1, help="Turns that each has at picking 5,000 keys.")] = 20,
    tries: Annotated[int, Option(min=1, help="Rings made of each kind.")] = 20,
) -> Outcome:
    """The ring in process: a pick beside uhashring's, a pick with all that can come to it, and making rings.

    It is CPU time that is measured, so that other work on the machine counts for less.
    """
    bench.to("picks")
    picks = _picks(endpoints, rounds)
    bench.to("rings")
    made = _made(endpoints, tries)
    return Outcome([pick_section(endpoints, picks), made_section(endpoints, made)])


def _picks(endpoints: int, rounds: int) -> Samples:
    """Microseconds a pick, one entry a batch; each round gives each ring one turn, on the same keys."""
    plain, busy = Ring.of(fleet(endpoints)), BusyRing(fleet(endpoints))
    names = [endpoint(upstream) for upstream in plain.upstreams]
    others = {name: made_other(name, names) for name in OTHERS}
    keys = [key.encode() for key in KEYS]
    same_owners(plain, others[SAME_RING])
    samples: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        samples[SLB] += _timed(plain.pick, keys)
        for name, pick in others.items():
            samples[name] += _timed(pick, KEYS)
        samples[FULL] += _timed(busy.pick, keys, busy.turn_over)
        busy.rest()
    return samples


def _timed(
    pick: Callable[[T], object], keys: Sequence[T], between: Callable[[], None] = lambda: None
) -> list[float]:
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


def pick_section(endpoints: int, samples: Samples) -> Section:
    """Medians, and how many times as fast slb is."""
    us = {name: median(found) for name, found in samples.items()}
    goals = {name: None if name == SAME_RING else GOAL_TIMES_AS_FAST for name in OTHERS}
    return Section(
        f"one pick of {endpoints} endpoints, CPU; median of {len(samples[SLB])} batches of {BATCH}",
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


def _made(endpoints: int, tries: int) -> Samples:
    """Milliseconds, one entry a try."""
    upstreams = fleet(endpoints)
    whole, (one, *_) = Ring.of(upstreams), fleet(1, net=1)
    more = fleet(max(1, endpoints // 4), net=2)
    made: dict[str, list[float]] = defaultdict(list)
    for _ in range(tries):
        cold, grown = slices(Ring.build(upstreams)), slices(whole.growing(more))
        made["cold"].append(sum(cold))
        made["cold_slice"].append(max(cold))
        made["one_more"].append(sum(slices(whole.growing([one]))))
        made["more"].append(sum(grown))
        made["more_slice"].append(max(grown))
        began = time.thread_time_ns()
        whole.without(upstreams[:1])
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


def made_section(endpoints: int, made: Samples) -> Section:
    """Medians over the tries."""
    ms = {name: median(found) for name, found in made.items()}
    more = max(1, endpoints // 4)
    return Section(
        f"a ring of {endpoints} endpoints, CPU; medians of {len(made['cold'])} tries",
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
