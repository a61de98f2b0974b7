"""What holds after whatever is asked of the quota router; and asks that come together in one call of the script are
answered as if each had come in a call of its own."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from bench.quota.script import EPOCH
from slb.control.keys import quota_keys
from slb.quotas import Limits, Rules
from tests.redis.quota_scheduler import Scheduler, complete_ask, put_ask, schedule_ask
from tests.support.fuzzing import examples

NAMES = ("a", "b/b", "c")
RULES = Rules(lease=20_000, longest_wait=40_000)
MINUTE, HALF = 60_000, 500
LEEWAY = 20
"""Milliseconds that tokens may be late for a caller that comes when told."""

LIMITS = st.builds(
    Limits,
    max_tokens_per_minute=st.sampled_from((600, 6_000, 60_001)),
    max_concurrent_requests=st.integers(1, 4),
    weight=st.integers(1, 3),
    burst=st.sampled_from((None, None, 150, 5_000)),
    paused=st.sampled_from((False, False, False, True)),
)
ESTIMATE = st.sampled_from((1, 40, 100, 100, 1_000, 1_000, 9_000))
SUBSET = st.sampled_from((None, None, None, ("a",), ("c", "a"), ("unknown",)))
KEY = st.sampled_from(("", "", "k1", "k2 \u20ac", "k3"))
ACTUAL = st.sampled_from((None, 0, 40, 50, 100, 1_000, 2_000, 10**9))
WHICH = st.integers(0, 9)
ASK = st.one_of(
    *[st.tuples(st.just("ask"), ESTIMATE, SUBSET, KEY, st.integers(0, 1000))] * 4,
    *[st.tuples(st.just("come back"), WHICH)] * 2,
    *[st.tuples(st.just("complete"), WHICH, ACTUAL)] * 2,
    st.tuples(st.just("beat"), WHICH),
    st.tuples(st.just("put"), st.sampled_from(NAMES), LIMITS),
)
DELETE = st.tuples(st.just("delete"), st.sampled_from(NAMES))
"""In a call of its own: the next one forgets the model where nothing of it counts."""
LATER = st.sampled_from((1, 5, 30, 400, 3_000, 15_000, 70_000))
STEP = st.tuples(
    st.one_of(LATER, st.just("when the next is told to come"), st.just("when the last is told to come")),
    st.one_of(*[st.lists(ASK, min_size=1, max_size=12)] * 9, st.tuples(DELETE)),
)


@pytest.fixture(scope="module")
def databases(simulation: Redis) -> Iterator[tuple[Redis, Redis]]:
    """Two that know nothing of each other."""
    path = simulation.connection_pool.connection_kwargs["path"]
    with Redis(unix_socket_path=path, db=1, decode_responses=True, protocol=2) as other:
        yield simulation, other


class Both:
    """`together`: each step is one call; `apart`: each ask of it."""

    def __init__(self, databases: tuple[Redis, Redis]) -> None:
        self.now = 0
        models = {"a": Limits(6_000, 2, 2), "b/b": Limits(6_000, 2)}
        self._redis: tuple[Any, Any] = databases
        self._together, self._apart = (Scheduler(redis, models, RULES) for redis in databases)
        self._tasks: list[str] = []
        self._waits: list[tuple[int, tuple[Any, ...]]] = []
        self._numbers = 0

    def step(self, later: int | str, steps: Sequence[tuple[Any, ...]]) -> None:
        dues = sorted(due for due, _ in self._waits) or [self.now]
        due = dues[0 if later == "when the next is told to come" else -1]
        self.now = max(self.now, due) if isinstance(later, str) else self.now + later
        asked = [self._written(*each) for each in steps]
        replies = self._together.ask(self.now, *(ask for _, ask in asked))
        assert replies == [self._apart.ask(self.now, ask)[0] for _, ask in asked]
        for (named, ask), reply in zip(asked, replies, strict=True):
            if ask[0] == "schedule":
                self._decided(named, ask, reply)

    def _written(self, kind: str, *given: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """What it is asked again with, where it has to wait; and as the script takes it."""
        self._numbers += 1
        task = f"t{self._numbers}"
        if kind == "come back":
            self._waits.sort(key=lambda wait: wait[0])
            _, given = self._waits.pop(given[0] % len(self._waits)) if self._waits else (0, (40, None, "", 0))
            kind = "ask"
        if kind == "ask":
            return given, schedule_ask(task, *given)
        if kind == "put":
            name, limits = given
            return (), put_ask(name, limits)
        if kind == "delete":
            return (), ["delete", given[0]]
        known = self._tasks[given[0] % len(self._tasks)] if self._tasks else "unknown"
        return (), complete_ask(known, given[1]) if kind == "complete" else ["heartbeat", known]

    def _decided(self, given: tuple[Any, ...], ask: list[Any], reply: list[Any]) -> None:
        if reply[0] == "admitted":
            assert ask[5] is False or reply[1] in ask[5]
            self._tasks.append(reply[2])
        elif reply[0] == "wait":
            assert 50 <= reply[1] <= RULES.longest_wait or reply[2] == "paused"
            self._waits.append((self.now + reply[1], given))

    def check(self) -> None:
        """Figures are the sums of what they are of, and within their bounds."""
        self._together.advance(self.now)
        self._apart.advance(self.now)
        assert self._everything(0) == self._everything(1)
        redis = self._redis[0]
        key = {each.removeprefix("slb:{quota}:"): each for each in quota_keys()}
        running = set()
        for model in self._together.models(self.now):
            name, limits = model.model, model.limits
            promises = redis.zrange(key["promises:"] + name, 0, -1, withscores=True)
            assert model.waiting == len(promises)
            assert model.promised == sum(int(member.split()[1]) for member, _ in promises)
            far = dict(redis.zrange(key["far:"] + name, 0, -1, withscores=True))
            assert all(far[member] < due for member, due in promises if member in far)
            assert far.keys() <= dict(promises).keys()
            tasks = set(redis.zrange(key["running:"] + name, 0, -1))
            assert model.in_flight == len(tasks)
            running |= tasks
            first = (EPOCH + self.now) // HALF - MINUTE // HALF
            halves = redis.hgetall(key["minute:"] + name)
            assert model.minute == sum(int(taken) for half, taken in halves.items() if int(half) >= first)
            debt = limits.bucket + LEEWAY * limits.max_tokens_per_minute / MINUTE
            assert -debt <= model.tokens <= limits.bucket
            assert abs(model.deficit) <= limits.bucket
        assert running <= set(redis.zrange(key["leases"], 0, -1))

    def _everything(self, which: int) -> dict[str, Any]:
        redis = self._redis[which]
        read = {"hash": redis.hgetall, "string": redis.get}
        found = {}
        for key in redis.scan_iter():
            kind = redis.type(key)
            found[key] = read[kind](key) if kind in read else redis.zrange(key, 0, -1, withscores=True)
        return found


@settings(max_examples=examples(120))
@given(st.lists(STEP, max_size=12))
def test_together_is_as_apart_and_every_figure_is_the_sum_of_what_it_is_of(
    databases: tuple[Redis, Redis], steps: list[tuple[int | str, Sequence[tuple[Any, ...]]]]
) -> None:
    both = Both(databases)
    for later, asks in steps:
        both.step(later, asks)
        both.check()
