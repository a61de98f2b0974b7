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
from bench.processes import BenchError
from bench.table import Figure, Outcome, Section
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring, endpoint
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings, Upstream

GOAL_PICK_US, GOAL_FULL_PICK_US, GOAL_TIMES_AS_FAST = 1.5, 8.0, 3.0
GOAL_COLD_MS, GOAL_ONE_MORE_MS, GOAL_HELD_MS = 25.0, 3.0, 5.0
BATCH, BATCHES_A_ROUND = 50, 100
KEYS = [f"/products/{number}" for number in range(BATCH * BATCHES_A_ROUND)]
SLB, FULL = "slb", "slb: fading in, zones, bounded load"
SAME_RING = "uhashring, the same ring"
OTHERS: dict[str, dict[str, object]] = {
    "uhashring": {},
    "uhashring, ketama": {"hash_fn": "ketama"},
    SAME_RING: {"hash_fn": lambda key: xxh64_intdigest(key.encode()), "vnodes": 100},
}
"""uhashring, the ring that Python programs commonly use, and its settings."""

INFLIGHT_EACH = 2  # requests in flight for each upstream, all the while
HALFWAY_SECONDS = 1800.0  # of what takes an hour: so the measurement is an instant
ZONES = {"zone_affinity": True, "zone_delay": "0s", "zone_fade_in": "60m"}
SETTINGS = RouteSettings.model_validate({"policy": "consistent_hash", "fade_in": "60m", **ZONES})

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
        self.release(INFLIGHT_EACH * len(self._view.upstreams))

    def release(self, left: int = 0) -> None:
        """So many requests go on. None may between two turns: it would look stuck, and only waits for the next."""
        while len(self._handles) > left:
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
    picks = pick_section(endpoints, _picks(endpoints, rounds))
    bench.to("rings")
    return Outcome([picks, _made_section(endpoints, tries)])


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
        busy.release()
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
    figures = [Figure(SLB, us[SLB], "µs", below=GOAL_PICK_US), *(Figure(name, us[name], "µs") for name in OTHERS)]
    for name in OTHERS:
        goal = None if name == SAME_RING else GOAL_TIMES_AS_FAST
        figures.append(Figure(f"slb is faster than {name}", us[name] / us[SLB], "times", at_least=goal))
    figures.append(Figure(FULL, us[FULL], "µs", below=GOAL_FULL_PICK_US))
    figures.append(Figure(f"{FULL}, mean", mean(samples[FULL]), "µs"))
    notes = [
        "uhashring as it comes hashes with MD5 and has 160 positions an endpoint, its ketama 4 times 40. With",
        "xxHash64 and 100 positions given to it, it has the very ring that slb has, and this was checked.",
        "The mean has in it what is done every few milliseconds: shares of rings and zone, load of the pool.",
    ]
    title = f"one pick of {endpoints} endpoints, CPU; median of {len(samples[SLB])} batches of {BATCH}"
    return Section(title, figures, notes)


def _made_section(endpoints: int, tries: int) -> Section:
    """Medians over the tries."""
    upstreams, one, more = fleet(endpoints), fleet(1, net=1), fleet(max(1, endpoints // 4), net=2)
    whole = Ring.of(upstreams)
    cold = [slices(Ring.build(upstreams)) for _ in range(tries)]
    grown = [slices(whole.growing(more)) for _ in range(tries)]
    one_more = [sum(slices(whole.growing(one))) for _ in range(tries)]
    one_less = [_milliseconds(lambda: whole.without(upstreams[:1])) for _ in range(tries)]
    several = f"{len(more)} endpoints more"
    figures = [
        Figure("made cold", median(map(sum, cold)), "ms", at_most=GOAL_COLD_MS),
        Figure("made cold: its longest slice", median(map(max, cold)), "ms", at_most=GOAL_HELD_MS),
        Figure("one endpoint more", median(one_more), "ms", at_most=GOAL_ONE_MORE_MS),
        Figure(several, median(map(sum, grown)), "ms"),
        Figure(f"{several}: their longest slice", median(map(max, grown)), "ms", at_most=GOAL_HELD_MS),
        Figure("one endpoint less", median(one_less), "ms"),
    ]
    title = f"a ring of {endpoints} endpoints, CPU; medians of {tries} tries"
    return Section(title, figures, ["Between two slices the event loop may serve requests."])


def slices(building: Generator[None, None, Ring]) -> list[float]:
    """Milliseconds of each."""
    found: list[float] = []
    ended = False

    def step() -> None:
        nonlocal ended
        ended = next(building, building) is building

    while not ended:
        found.append(_milliseconds(step))
    return found


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began) / 1e6
