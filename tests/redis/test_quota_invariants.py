"""What holds after whatever is asked of the quota router; and asks that come together in one call of the script are
answered as if each had come in a call of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis import Redis

from bench.quota.script import EPOCH
from slb.control.keys import quota_keys
from slb.control.scripts import quota_source
from slb.quota.script import state_of, written_rules
from slb.quotas import Limits, Rules
from tests.redis.quota_scheduler import FIELDS, complete_ask, put_ask, schedule_ask
from tests.support.fuzzing import examples

NAMES = ("a", "b/b", "c")
RULES = Rules(lease=20_000, longest_wait=40_000)
MINUTE, HALF = 60_000, 500
LEEWAY = 20
"""Milliseconds that tokens may be late for a caller that comes when its wait is over."""

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
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
)
LATER = st.sampled_from((1, 5, 30, 400, 3_000, 15_000, 70_000))
STEP = st.tuples(
    st.one_of(LATER, st.just("when the next wait is over"), st.just("when the last wait is over")),
    st.lists(ASK, min_size=1, max_size=12),
)
Step = tuple[int | str, Sequence[tuple[Any, ...]]]

ONE_SLOT = ("put", "a", Limits(600, 1))
DELETED_MODEL_IS_SET_AGAIN: list[Step] = [
    (1, [("ask", 40, ("a",), "", 0)]),
    (3_000, [("delete", "a"), ("complete", 0, 0), ONE_SLOT]),
]
"""In one call: its last task ends, so nothing of it counts any more, and what was learned of it is forgotten."""
REST_OF_A_WAIT: list[Step] = [
    (1, [ONE_SLOT, ("ask", 1, ("a",), "", 0)]),
    (70_000, [("ask", 1, ("a",), "", 0)]),
    ("when the next wait is over", [("come back", 0)]),
]
"""A caller comes back before its place is due, and nothing but that changes."""
PLACE_AFTER_A_PUT: list[Step] = [
    (1, [ONE_SLOT, ("ask", 1, ("a",), "", 0)]),
    (1, [("ask", 1, ("a",), "", 0), ("put", "a", Limits(6_000, 1)), ("ask", 1, ("a",), "", 0)]),
]
"""In one call a place is given, goes with the limits, and another is given."""

EXPIRING = ("promises:", "far:", "minute:", "window:", "abandoned")
"""Keys that Redis removes where no instance asks any more."""
DUMP = """
local found = {}
for index, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'string' then
    value = redis.call('GET', key)
  elseif kind == 'hash' then
    value = redis.call('HGETALL', key)
  else
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  end
  found[index] = {key, kind, value, redis.call('PTTL', key) >= 0 and 1 or 0}
end
return found
"""


class Stored(NamedTuple):
    """What one key holds: a text, or the fields or members of a collection with their values or scores."""

    value: Any
    expires: bool


class Database:
    """One that the script runs in."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._script = redis.script_load(quota_source())

    def empty(self) -> None:
        """As it was at first."""
        self._redis.flushdb()

    def call(self, now: int, calls: Sequence[Sequence[Any]]) -> tuple[list[Any], dict[str, Stored]]:
        """The replies to the asks of all these calls of the script, and what is stored after them, by key without
        what all keys begin with. In one exchange: on a busy machine each takes longer than the script."""
        names = quota_keys()
        with self._redis.pipeline(transaction=False) as exchange:
            for asks in calls:
                argument = orjson.dumps({**written_rules(RULES), "at": EPOCH + now, "asks": asks})
                exchange.evalsha(self._script, len(names), *names, argument)
            exchange.eval(DUMP, 0)
            *called, dumped = exchange.execute()
        stored = {}
        for key, kind, value, expires in dumped:
            content = value if kind == "string" else dict(zip(value[::2], value[1::2], strict=True))
            stored[key.removeprefix("slb:{quota}:")] = Stored(content, bool(expires))
        return [reply for _, _, _, replies in called for reply in replies], stored


@pytest.fixture(scope="module")
def databases(simulation: Redis) -> Iterator[tuple[Database, Database]]:
    """Two without a connection to each other."""
    path = simulation.connection_pool.connection_kwargs["path"]
    with Redis(unix_socket_path=path, db=1, decode_responses=True, protocol=2) as other:
        yield Database(simulation), Database(other)


class Both:
    """`together`: each step is one call; `apart`: each ask of it."""

    def __init__(self, databases: tuple[Database, Database]) -> None:
        self.now = 0
        self._together, self._apart = databases
        for database in databases:
            database.empty()
            database.call(0, [[put_ask("a", Limits(6_000, 2, 2)), put_ask("b/b", Limits(6_000, 2))]])
        self._tasks: list[str] = []
        self._waits: list[tuple[int, tuple[Any, ...]]] = []
        self._numbers = 0

    def step(self, later: int | str, steps: Sequence[tuple[Any, ...]]) -> None:
        dues = sorted(due for due, _ in self._waits) or [self.now]
        due = dues[0 if later == "when the next wait is over" else -1]
        self.now = max(self.now, due) if isinstance(later, str) else self.now + later
        asked = [self._written(*each) for each in steps]
        asks, last = [ask for _, ask in asked], [["models"]]
        replies, stored = self._together.call(self.now, [asks, last])
        replies_apart, stored_apart = self._apart.call(self.now, [*([ask] for ask in asks), last])
        assert replies == replies_apart
        assert stored == stored_apart
        for (named, ask), reply in zip(asked, replies[:-1], strict=True):
            if ask[0] == "schedule":
                self._decided(named, ask, reply)
        self._check(replies[-1], stored)

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
            assert 10 <= reply[1] <= RULES.longest_wait or reply[2] == "paused"
            self._waits.append((self.now + reply[1], given))

    def _check(self, rows: list[Any], stored: Mapping[str, Stored]) -> None:
        """Figures are the sums of what they are of, and within their bounds."""

        def members(key: str) -> Mapping[str, Any]:
            return stored[key].value if key in stored else {}

        assert all(each.expires for key, each in stored.items() if key.startswith(EXPIRING))
        running: set[str] = set()
        for model in map(state_of, rows):
            name, limits = model.model, model.limits
            promises, far = members(f"promises:{name}"), members(f"far:{name}")
            assert model.waiting == len(promises)
            assert model.promised == sum(int(member.split()[1]) for member in promises)
            assert far.keys() <= promises.keys()
            assert all(int(back) < int(promises[member]) for member, back in far.items())
            assert dict(zip(FIELDS, members("state")[name].split(), strict=True))["far"] == str(len(far))
            tasks = members(f"running:{name}")
            assert model.in_flight == len(tasks)
            running |= tasks.keys()
            first = (EPOCH + self.now) // HALF - MINUTE // HALF
            halves = members(f"minute:{name}")
            assert model.minute == sum(int(taken) for half, taken in halves.items() if int(half) >= first)
            debt = 60 * limits.max_tokens_per_minute + LEEWAY * limits.max_tokens_per_minute / MINUTE
            assert -debt <= model.tokens <= limits.bucket
            assert abs(model.deficit) <= limits.bucket
        assert running <= members("leases").keys()


@settings(max_examples=examples(240))
@given(st.lists(STEP, max_size=12))
@example(DELETED_MODEL_IS_SET_AGAIN)
@example(REST_OF_A_WAIT)
@example(PLACE_AFTER_A_PUT)
def test_together_is_as_apart_and_every_figure_is_the_sum_of_what_it_is_of(
    databases: tuple[Database, Database], steps: list[Step]
) -> None:
    both = Both(databases)
    for later, asks in steps:
        both.step(later, asks)
