"""The quota router in Redis and the one in Python decide alike, whatever is asked of them."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.control import keys
from slb.control.scripts import quota_source
from slb.quota.scheduler import Scheduler
from slb.quota.waiting import MOST_NAMELESS
from slb.quotas import MOST_LISTED, Admitted, Decision, Limits, Rules, Wait
from tests.support.fuzzing import examples
from tests.support.valkey import Valkey

STATE = keys.quota_keys()[2]
NAMES = ("a", "b/b", "c")
RULES = Rules(lease=20_000, longest_wait=40_000)
LIMITS = st.builds(
    Limits,
    max_tokens_per_minute=st.sampled_from((600, 6_000, 60_001)),
    max_concurrent_requests=st.integers(1, 4),
    weight=st.integers(1, 3),
    burst=st.sampled_from((None, None, 150, 5_000)),
    paused=st.sampled_from((False, False, False, True)),
)
ESTIMATE = st.sampled_from((1, 40, 100, 100, 1_000, 1_000, 9_000))
SUBSET = st.sampled_from((None, None, None, ("a",), ("c", "a"), ("nobody",)))
KEY = st.sampled_from(("", "", "", "k1", "k2 \u20ac", "k3"))
ASK = st.tuples(st.just("ask"), ESTIMATE, SUBSET, KEY, st.integers(0, 1000))
COME_BACK = st.tuples(st.just("come_back"), st.integers(0, 9), st.sampled_from((0, 0, 3, 30, -60)))
HURRY = st.tuples(st.just("hurry"), st.integers(0, 9), st.sampled_from((200, 900, 5_000)))
CROWD = st.tuples(st.just("crowd"), st.sampled_from((40, 400, 1_000)), st.booleans(), st.integers(1, 12))
OBEY = st.tuples(st.just("obey"), st.integers(2, 12), st.booleans())
RUSH = st.tuples(st.just("rush"), st.integers(2, 8))
PRACTISE = st.tuples(st.just("practise"), st.sampled_from((200, 5_000, 20_000)))
ACTUAL = st.sampled_from((None, 0, 40, 50, 100, 1_000, 2_000, 10**9))
COMPLETE = st.tuples(st.just("complete"), st.integers(0, 9), ACTUAL)
BEAT = st.tuples(st.just("beat"), st.integers(0, 9))
PUT = st.tuples(st.just("put"), st.sampled_from(NAMES), LIMITS)
DELETE = st.tuples(st.just("delete"), st.sampled_from(NAMES))
LATER = st.tuples(st.just("later"), st.sampled_from((1, 30, 400, 3_000, 3_000, 15_000, 70_000)))
STEPS = st.lists(
    st.one_of(
        *(ASK, ASK, ASK, ASK, COME_BACK, COME_BACK, HURRY, CROWD, CROWD, OBEY, OBEY, RUSH, PRACTISE),
        *(COMPLETE, COMPLETE, BEAT, PUT, DELETE, LATER, LATER),
    ),
    max_size=60,
)

LOWER = st.tuples(
    st.just("lower"), st.sampled_from((400, 1_000)), st.sampled_from((1, 700, 57_000, 58_900, 70_000))
)
PAUSE = st.tuples(st.just("pause"), st.integers(0, 1000))
SWAP = st.tuples(st.just("swap"), st.sampled_from((1, 1_000, 5_000)), st.sampled_from((1, 15_000, 70_000)))
OTHERWISE = st.tuples(
    st.just("otherwise"),
    st.sampled_from(("k1", "k3")),
    st.sampled_from((None, ("b/b",))),
    st.sampled_from((100, 40)),
)
ODDITIES = st.lists(st.one_of(ASK, COMPLETE, BEAT, DELETE, LATER, LOWER, PAUSE, SWAP, OTHERWISE), max_size=25)


class Twins:
    """Whatever is asked is asked of both, at the same time by Redis's clock and what it is put ahead."""

    def __init__(self, redis: Any) -> None:
        redis.flushall()
        self._redis = redis
        self._script = redis.register_script(quota_source())
        self._ahead = 0
        self._tasks: list[str] = []
        self._numbers = count()
        self._waits: list[tuple[int, int, tuple[str, ...] | None, str]] = []
        self.now, _ = self._say()
        self._pure = Scheduler({}, RULES, self.now)
        for name in NAMES[:2]:
            self.put(name, Limits(6_000, 2, 2 if name == "a" else 1))

    def _say(self, *asks: Any) -> tuple[int, list[Any]]:
        said = {"lease": RULES.lease, "longest": RULES.longest_wait, "kept": RULES.kept, "ahead": self._ahead}
        now, _, _, replies = self._script(keys=keys.quota_keys(), args=[orjson.dumps({**said, "asks": asks})])
        return int(now), replies

    def _one(self, *ask: Any) -> Any:
        self.now, (reply,) = self._say(ask)
        return reply

    def ask(self, estimate: int, subset: tuple[str, ...] | None, key: str, jitter: int) -> None:
        self.ask_together([(estimate, subset, key, jitter)])

    def ask_together(self, asks: Sequence[tuple[int, tuple[str, ...] | None, str, int]]) -> None:
        """In one call of the script."""
        tasks = [f"t{next(self._numbers)}" for _ in asks]
        self.now, replies = self._say(
            *(
                ["schedule", task, estimate, jitter, key, sorted(subset) if subset else False]
                for task, (estimate, subset, key, jitter) in zip(tasks, asks, strict=True)
            )
        )
        for task, reply, (estimate, subset, key, jitter) in zip(tasks, replies, asks, strict=True):
            decision = self._pure.schedule(self.now, task, estimate, subset, key, jitter)
            assert reply == _written(decision)
            if isinstance(decision, Admitted) and decision.task == task:
                self._tasks.append(task)
            elif isinstance(decision, Wait):
                self._waits.append((self.now + decision.ms, estimate, subset, key))

    def come_back(self, which: int, late: int) -> None:
        """Somebody who was told to wait; or a little early."""
        if self._waits:
            due, estimate, subset, key = self._waits.pop(which % len(self._waits))
            self.later(due + late - self.now)
            self.ask(estimate, subset, key, 500)

    def hurry(self, which: int, held: int) -> None:
        """All slots are taken, one frees, and somebody is told to wait for the next."""
        for _ in range(4):
            self.ask(1, ("a",), "", 0)
        self.later(held)
        self.complete(which, None)
        self.ask(1, ("a",), "", 0)
        self.ask(1, ("a",), "", 0)
        self.come_back(-1, 0)

    def crowd(self, estimate: int, is_keyed: bool, size: int) -> None:
        """Many at once; then one slot frees, and somebody comes along who needs little."""
        self.ask_together(
            [(estimate, ("a",), f"c{number}" if is_keyed else "", 50 * number) for number in range(size)]
        )
        self.complete(-1, None)
        self.ask(1, ("a",), "", 0)

    def obey(self, callers: int, slots_free: bool) -> None:
        """Those whose turn is next come back one after another, just in time."""
        for _ in range(callers):
            self._waits.sort(key=lambda wait: wait[0], reverse=True)
            self.come_back(-1, 0)
            if slots_free:
                self.complete(-1, None)

    def rush(self, callers: int) -> None:
        """Those whose turn is next all come back at the same time."""
        self._waits.sort(key=lambda wait: wait[0])
        coming, self._waits = self._waits[:callers], self._waits[callers:]
        if coming:
            self.later(coming[-1][0] - self.now)
            self.ask_together([(estimate, subset, key, 300) for _, estimate, subset, key in coming])

    def practise(self, held: int) -> None:
        """Enough tasks for it to be known how long slots are held."""
        for _ in range(32):
            self.ask(1, ("a",), "", 0)
            self.later(held)
            self.complete(-1, None)
        self.crowd(40, True, 6)
        self.obey(3, False)

    def complete(self, which: int, actual: int | None) -> None:
        task = self._tasks[which % len(self._tasks)] if self._tasks else "nobody"
        (state,) = self._one("complete", task, -1 if actual is None else actual)
        assert state == (self._pure.complete(self.now, task, actual) or "")

    def beat(self, which: int) -> None:
        task = self._tasks[which % len(self._tasks)] if self._tasks else "nobody"
        (state,) = self._one("heartbeat", task)
        assert state == (self._pure.heartbeat(self.now, task) or "")

    def put(self, name: str, limits: Limits) -> None:
        row = [limits.max_tokens_per_minute, limits.max_concurrent_requests, limits.weight, limits.burst or 0]
        verb, written = self._one("put", name, *row, int(limits.paused))
        self._pure.put(self.now, name, limits)
        assert (verb, written) == ("put", _row(limits))

    def delete(self, name: str) -> None:
        (deleted,) = self._one("delete", name)
        assert bool(deleted) is self._pure.delete(self.now, name)

    def lower(self, estimate: int, later: int) -> None:
        """A limit falls below what was admitted in the last minute."""
        self.put("a", Limits(60_001, 4, burst=5_000))
        for part in (1, 300, 1_500):
            self.ask(estimate, ("a",), "", 0)
            self.later(part)
        self.put("a", Limits(600, 4))
        self.ask(40, ("a",), "", later % 1001)
        self.later(later)
        self.ask(40, ("a",), "", 0)

    def pause(self, jitter: int) -> None:
        self.put("a", Limits(600, 4, paused=True))
        self.ask(40, ("a",), "", jitter)

    def swap(self, estimate: int, later: int) -> None:
        """A model goes, and one of its name comes back."""
        self.put("c", Limits(600, 4, burst=5_000))
        self.ask(estimate, ("c",), "", 0)
        self.complete(-1, None)
        self.later(later)
        self.delete("c")
        self.later(1)
        self.put("c", Limits(6_000, 4, burst=5_000))
        self.look()

    def otherwise(self, key: str, subset: tuple[str, ...] | None, estimate: int) -> None:
        """The same key, and not the same request."""
        self.ask(100, None, key, 0)
        self.ask(estimate, subset, key, 0)

    def later(self, milliseconds: int) -> None:
        self._ahead += max(0, milliseconds)

    def look(self) -> None:
        """All there is to be seen is alike."""
        self.now, (models, abandoned, advice) = self._say(["models"], ["abandoned", "", MOST_LISTED], ["advice"])
        assert models == [
            [
                each.model,
                _row(each.limits),
                each.in_flight,
                str(round(each.tokens * 60_000)),
                str(each.deficit),
                str(each.promised),
                each.waiting,
                str(each.minute),
            ]
            for each in self._pure.models(self.now)
        ]
        expected = sorted(
            [task, model, str(size), str(at), key] for task, model, size, at, key in self._pure.abandoned(self.now)
        )
        left_off, listed = abandoned
        assert (left_off, sorted(listed)) == (0, expected)
        calls, admits, running, slots, *waits = advice
        decided = self._pure.decided(self.now)
        assert (calls, admits) == (decided.calls, decided.admits)
        assert dict(zip(waits[::2], waits[1::2], strict=True)) == decided.waits
        assert (running, slots) == self._pure.occupied(self.now)
        for name, state in self._redis.hgetall(STATE).items():
            fields = [int(value) for value in state.split()]
            learned = fields[5], fields[6], fields[10], fields[11], *fields[15:18]
            assert learned == self._pure.learned(name)


def _written(decision: Decision) -> list[Any]:
    kind = {"Admitted": "admitted", "Wait": "wait", "Denied": "denied"}[type(decision).__name__]
    return [kind, *decision]


def _row(limits: Limits) -> str:
    numbers = (limits.max_tokens_per_minute, limits.max_concurrent_requests, limits.weight, limits.burst or 0)
    return " ".join(map(str, (*numbers, int(limits.paused))))


@settings(max_examples=examples(300))
@given(STEPS)
def test_the_two_routers_decide_alike(valkey: Valkey, steps: list[tuple[Any, ...]]) -> None:
    twins = Twins(_client(valkey))
    for name, *arguments in steps:
        getattr(twins, name)(*arguments)
        twins.look()


@settings(max_examples=examples(100))
@given(ODDITIES)
def test_they_do_where_limits_fall_and_models_and_keys_come_again(
    valkey: Valkey, steps: list[tuple[Any, ...]]
) -> None:
    twins = Twins(_client(valkey))
    for name, *arguments in steps:
        getattr(twins, name)(*arguments)
        twins.look()


def _client(valkey: Valkey) -> Any:
    """The same one for all examples."""
    known = getattr(valkey, "_clients", None)
    return known[0] if known else valkey.admin


def test_they_agree_on_how_many_places_there_are(valkey: Valkey) -> None:
    twins = Twins(_client(valkey))
    twins.ask_together([(1, ("a",), "", 0)] * (MOST_NAMELESS + 5))
    twins.ask_together([(1, ("a",), f"c{number}", 0) for number in range(3)])
    twins.look()
