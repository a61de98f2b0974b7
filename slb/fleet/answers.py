"""What single processes are asked, and answer to who asked: the last hour, of all or of one route or upstream, what
became of a request, what is in flight at an upstream."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import orjson

from slb.answers import dumped
from slb.fleet.asks import Ask
from slb.fleet.frame import VERSION
from slb.fleet.frame_values import Shape, listed, name_of, shaped
from slb.fleet.history import History, read_history
from slb.fleet.hours import Failures, Hour, Hours, read_failures, read_hour, written_hour
from slb.fleet.load import Load, read_load
from slb.lifecycle import set_within
from slb.observe.decisions import Decisions

_MOST_ANSWERS = 5.0
"""A second that this process gives: each takes it a millisecond at most, and any program may ask."""
_LOAD_COSTS, _HOUR_COSTS, _FAILURES_COST = 0.1, 0.3, 0.04
"""Of such an answer: what is in flight at one upstream is a few look-ups, its last hour is some 600 figures, and
its failures are 240."""
_MOST_FOUND = 10

_CANDIDATE: Shape = {
    "member": "",
    "verdict": "",
    "why": "",
    "score": None,
    "inflight": 0,
    "fleet": None,
    "capacity": 0,
    "slots": 1,
    "weight": 1,
    "zone": "",
    "node": "",
    "share": 1.0,
}
FOUND: Shape = {
    "time": 0.0,
    "route": "",
    "upstream": "",
    "status": 0,
    "reason": "",
    "detail": "",
    "decided_by": "",
    "failed": [],
    "position": None,
    "queued": 0.0,
    "sent_after": None,
    "first_byte_after": None,
    "duration": 0.0,
    "found_after": None,
    "scores_after": None,
    "policy": "",
    "by": "",
    "panic": False,
    "members": [_CANDIDATE],
    "left_off": 0,
    "instance": "",
    "instance_name": "",
}


class Answers:
    """Of this process. `name`: of this instance; `history`, `hours`, `load_at`: None where it has no traffic of its
    own."""

    def __init__(
        self,
        me: str,
        name: Callable[[], str],
        decisions: Decisions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._me = me
        self._name = name
        self.history: History | None = None
        self.hours: Hours | None = None
        self.load_at: Callable[[str], Load] | None = None
        self._decisions = decisions
        self._clock = clock
        self._room, self._at = _MOST_ANSWERS, clock()

    def to(self, ask: Ask) -> bytes:
        """The answer to be sent; empty where there is none, or too many were asked for."""
        if not ask.is_question or not self._has_room(_costs(ask)):
            return b""
        load = self.load(ask.upstream) if ask.upstream else None
        hour = self.hour(ask.hour_of) if ask.hour_of else None
        return dumped(
            {
                "v": VERSION,
                "id": self._me,
                "history": self.last_hour() if ask.wants_history else None,
                "explain": ask.explain,
                "found": self.explain(ask.explain) if ask.explain else [],
                "upstream": ask.upstream,
                "load": None if load is None else load._asdict(),
                "hour_of": ask.hour_of,
                "hour": None if hour is None else written_hour(hour),
                "failures_of": ask.failures_of,
                "failures": {name: each._asdict() for name, each in self.failures(ask.failures_of).items()},
            }
        )

    def last_hour(self) -> dict[str, Any] | None:
        """None where this process has no traffic of its own."""
        return self.history.shown(self._name()) if self.history is not None else None

    def hour(self, name: str) -> Hour | None:
        """The last hour of a route or an upstream; None where it has had no requests here."""
        return self.hours.of(name) if self.hours is not None else None

    def failures(self, names: Sequence[str]) -> dict[str, Failures]:
        """Of the last hour, of those of these routes and upstreams that have had requests here."""
        hours = self.hours
        return {} if hours is None else {name: each for name in names if (each := hours.failures(name)) is not None}

    def explain(self, request_id: str) -> list[dict[str, Any]]:
        found = self._decisions.find(request_id)
        return [{**each, "instance": self._me, "instance_name": self._name()} for each in found]

    def load(self, member: str) -> Load | None:
        """What this process has in flight at an upstream; None where it has no traffic of its own."""
        return self.load_at(member) if self.load_at is not None else None

    def _has_room(self, cost: float) -> bool:
        now = self._clock()
        self._room = min(_MOST_ANSWERS, self._room + (now - self._at) * _MOST_ANSWERS)
        self._at = now
        if self._room < cost:
            return False
        self._room -= cost
        return True


def _costs(ask: Ask) -> float:
    if ask.failures_of:
        return _FAILURES_COST * len(ask.failures_of)
    return _LOAD_COSTS if ask.upstream else _HOUR_COSTS if ask.hour_of else 1.0


class Gathering:
    """The answers to one question of this process, by who gave them. Those of `expected` are waited for: `missing`
    are those that have not answered."""

    def __init__(self, ask: Ask, expected: Collection[str]) -> None:
        self._ask = ask
        self.missing = set(expected)
        self._whole = asyncio.Event()
        self.history: dict[str, Mapping[str, Any]] = {}
        self.found: dict[str, list[dict[str, Any]]] = {}
        self.loads: dict[str, Load] = {}
        self.hours: dict[str, Hour] = {}
        self.failures: dict[str, dict[str, Failures]] = {}
        if not self.missing:
            self._whole.set()

    def take(self, text: str) -> None:
        """Any program may publish anything: what is no answer to this question is passed over."""
        try:
            answer = orjson.loads(text)
            id_ = name_of(answer["id"], 64)
            if id_ not in self.missing or answer["v"] != VERSION:
                return
            if self._ask.wants_history and answer["history"] is not None:
                self.history[id_] = read_history(answer["history"])
            if self._ask.explain and answer["explain"] == self._ask.explain:
                self.found[id_] = [shaped(each, FOUND) for each in listed(answer["found"], _MOST_FOUND)]
            if self._ask.upstream and answer["upstream"] == self._ask.upstream:
                self.loads[id_] = read_load(answer["load"])
            if self._ask.hour_of and answer["hour_of"] == self._ask.hour_of and answer["hour"] is not None:
                self.hours[id_] = read_hour(answer["hour"], self._ask.hour_of)
            if self._ask.failures_of and self._is_answered_by(answer):
                told = answer["failures"]
                self.failures[id_] = {
                    name: read_failures(told[name]) for name in self._ask.failures_of if name in told
                }
        except (ValueError, TypeError, KeyError):
            return
        if self._is_answered_by(answer):
            self.missing.discard(id_)
        if not self.missing:
            self._whole.set()

    def _is_answered_by(self, answer: Mapping[str, Any]) -> bool:
        ask = self._ask
        if ask.upstream:
            return bool(answer["upstream"] == ask.upstream)
        if ask.hour_of:
            return bool(answer["hour_of"] == ask.hour_of)
        if ask.failures_of:
            return tuple(answer.get("failures_of", ())) == tuple(ask.failures_of)
        return ask.wants_history or bool(answer["explain"] == ask.explain)

    async def wait(self, seconds: float) -> None:
        """Until all have answered, or so long."""
        await set_within(self._whole, seconds)
