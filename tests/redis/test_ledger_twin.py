"""The queue in Redis and the one in Python answer alike, whatever is done to them."""

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.admission.fair_queue import FairQueue
from slb.control import keys
from slb.control.scripts import ledger_source
from tests.redis.ledger_rig import POOL
from tests.support.fuzzing import examples
from tests.support.valkey import Valkey

WEIGHTS = {"critical": 8, "normal": 3, "batch": 1, "jobs": 1 / 8}
MEMBERS = ("u0", "u1", "u2")
VIEW = [[member, 1, 1] for member in MEMBERS]
NAME = "3-0"
LONG = 1 << 40
"""Milliseconds: nothing ends by itself."""

AVOID = st.sets(st.sampled_from(MEMBERS), max_size=3).map(lambda avoid: tuple(sorted(avoid)))
PUSH = st.tuples(st.just("push"), st.sampled_from(sorted(WEIGHTS)), AVOID, st.booleans())
FREE = st.tuples(st.just("free"), st.sampled_from(MEMBERS))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 30))
AGAIN = st.tuples(st.just("again"), st.sampled_from(MEMBERS))
PUT_BACK = st.tuples(st.just("put_back"), st.sampled_from(MEMBERS))
BACKLOG = st.lists(PUSH, min_size=8, max_size=20)
_STEP = st.one_of(PUSH, FREE, FREE, FREE, LEAVE, PUT_BACK, AGAIN)
STEPS = st.builds(list.__add__, BACKLOG, st.lists(_STEP, max_size=40))


class Twins:
    """`w` asks, and waits where it has to; `r` holds all there is at first, so that what frees there is granted to
    a `w` that does not ask."""

    def __init__(self, redis: Any) -> None:
        redis.flushall()
        self._script = redis.register_script(ledger_source())
        self._seq = 0
        self._queue: FairQueue[str] = FairQueue()
        self._tickets: dict[str, tuple[int, str, tuple[str, ...]]] = {}
        self._user: dict[str, str] = {}
        self._had: dict[str, tuple[int, str]] = {}
        self._arrivals = 0
        for holder in "rw":
            self.send(
                holder, join=True, full=True, beat=True, held=dict.fromkeys(MEMBERS, 1) if holder == "r" else {}
            )
        self._user.update(dict.fromkeys(MEMBERS, "r"))

    def send(self, holder: str, **fields: Any) -> dict[str, Any]:
        """The reply to a batch of `holder` with these fields."""
        self._seq += 1
        nothing = {"join": False, "full": False, "beat": False, "held": {}, "waiting": []}
        more = {
            "settling": False,
            "release": {},
            "leave": [],
            "took": [],
            "changed": [],
            "asks": [],
            "views": {POOL: NAME},
            "contents": {NAME: VIEW},
            "uses": [NAME],
            "holds": 0,
            "waits": 0,
            "start": 0,
            "fresh": False,
        }
        times = {"lease": LONG, "life": LONG, "patience": LONG}
        batch = {"id": holder, "seq": self._seq, **nothing, **more, **times, **fields}
        reply = self._script(keys=keys.pool_keys(POOL), args=[orjson.dumps(batch), "channel:", POOL])
        found: dict[str, Any] = orjson.loads(reply)
        return found

    def push(self, priority: str, avoid: tuple[str, ...], ordered: bool) -> None:
        self._arrivals += 1
        ticket = f"w/{self._arrivals}"
        order = MEMBERS if ordered else False
        row: list[Any] = [ticket, POOL, order, avoid, priority, WEIGHTS[priority], 1000, 0, []]
        (answer,) = self.send("w", asks=[row])["answers"]
        usable = {member for member in MEMBERS if member not in self._user} - set(avoid)
        if usable:
            assert answer in usable
            self._user[answer] = "w"
            return
        number, position = answer
        self._queue.push(ticket, priority, WEIGHTS[priority], number)
        self._tickets[ticket] = number, priority, avoid
        assert position == self._queue.position(ticket)

    def free(self, member: str) -> None:
        user = self._user.pop(member, None)
        self._had.pop(member, None)
        if user is not None:
            reply = self.send(user, release={member: 1})
            self._is_next(member, reply if user == "w" else self.send("w"))

    def again(self, member: str) -> None:
        """An attempt that has failed at the upstream it waited for is made again elsewhere: with its old number."""
        if member not in self._had:
            return
        number, priority = self._had[member]
        self.free(member)
        self._arrivals += 1
        ticket = f"w/{self._arrivals}"
        row = [ticket, POOL, False, [member], priority, WEIGHTS[priority], 1, number, []]
        (answer,) = self.send("w", asks=[row])["answers"]
        if isinstance(answer, str):
            assert answer in {each for each in MEMBERS if each not in self._user and each != member}
            self._user[answer] = "w"
            return
        self._queue.push(ticket, priority, WEIGHTS[priority], number)
        self._tickets[ticket] = number, priority, (member,)
        assert answer == [number, self._queue.position(ticket)]

    def put_back(self, member: str) -> None:
        """A grant that is not taken up: its ticket is back in its place, for its holder's next batch."""
        if self._user.get(member) != "r":
            return
        del self._user[member]
        self.send("r", release={member: 1})
        self.send("r", patience=-1)
        found = self._pop(member)
        if found is not None:
            number, priority, _ = self._tickets[found]
            self._queue.push(found, priority, WEIGHTS[priority], number)
        self._is_next(member, self.send("w"))

    def leave(self, which: int) -> None:
        if self._tickets:
            ticket = sorted(self._tickets)[which % len(self._tickets)]
            del self._tickets[ticket]
            assert self._queue.remove(ticket)
            assert not self.send("w", leave=[ticket])["granted"]

    def _is_next(self, member: str, reply: dict[str, Any]) -> None:
        expected = self._pop(member)
        assert list(reply["granted"]) == ([[expected, member]] if expected else [])
        assert reply["queued"] == len(self._queue)
        if expected is not None:
            number, priority, _ = self._tickets.pop(expected)
            self._user[member], self._had[member] = "w", (number, priority)

    def _pop(self, member: str) -> str | None:
        found = self._queue.pop(lambda ticket: None if member in self._tickets[ticket][2] else member)
        return found and found[0]


@settings(max_examples=examples(150))
@given(STEPS)
def test_the_two_queues_answer_alike(valkey: Valkey, steps: list[tuple[Any, ...]]) -> None:
    twins = Twins(_client(valkey))
    for name, *arguments in steps:
        getattr(twins, name)(*arguments)


def _client(valkey: Valkey) -> Any:
    """The same one for all examples."""
    known = getattr(valkey, "_clients", None)
    return known[0] if known else valkey.admin
