"""One call of the ledger's script, in the form that `lua/ledger.lua` reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from slb.balance.asking import Ask
from slb.control.views import View

MOST_ASKS = 256
"""In one batch, and as many that leave, and as many that wait: Redis does nothing else meanwhile."""

MOST_HELD = 128
MOST_WAITING = 32
"""Members, and tickets, that a beat has at most: a lane with more sends another part with each."""

_LONGEST_KEY = 15

_FIRST = 8
"""Candidates of an ask in the order of its policy; where none of them has room, Redis takes the least loaded."""


@dataclass(slots=True)
class Ticket:
    """An ask's place in the queue. `key` is this instance's own number of it, `number` the pool's, 0 while it has
    none yet: a new ask of a request that had one before brings that."""

    key: int
    ask: Ask
    number: int = 0


@dataclass(slots=True)
class Batch:
    """One call: what has changed since the last one, or all there is. `join`: this holder may be new to Redis.
    `fresh`: the first on its connection. `settling`: others have not sent yet what they hold. `full`: it has all
    that is held (`held`) and all that waits (`tickets`, their keys). `waiting`: tickets to be put into the queue
    where they are missing. `release`: member -> how many. `leave`: keys of tickets. `took`: grants from messages
    that are used (key of the ticket -> member), until a batch with them has been run. `asks`: with the key of the
    ticket each becomes where it has to wait. `explain`: report the scores that the last of them found. `changed`:
    views whose waiting tickets have other candidates now. `drops`: views that were replaced. `bye`: this holder
    leaves for good. `lacked`: Redis lacked some of `contents` when it was sent first. `only_took`: it has `took`
    and nothing else."""

    seq: int
    join: bool = False
    fresh: bool = False
    settling: bool = False
    full: bool = False
    beat: bool = False
    bye: bool = False
    held: Mapping[str, int] = field(default_factory=dict)
    waiting: Sequence[Ticket] = ()
    tickets: Sequence[int] = ()
    release: Mapping[str, int] = field(default_factory=dict)
    leave: Sequence[int] = ()
    took: Mapping[int, str] = field(default_factory=dict)
    changed: Sequence[str] = ()
    asks: Sequence[Ticket] = ()
    explain: bool = False
    views: Mapping[str, View] = field(default_factory=dict)
    uses: Sequence[str] = ()
    drops: Sequence[str] = ()
    contents: Mapping[str, orjson.Fragment] = field(default_factory=dict)
    holds: int = 0
    waits: int = 0
    lacked: bool = False
    only_took: bool = False

    def encode(self, holder: str, start: int, lease: int, life: int, patience: int) -> bytes:
        """JSON, without what is empty. `start`: where the search among equals begins. In milliseconds: `lease` of
        this holder, `life` of the keys, `patience` until an unused grant goes to the next ticket."""
        sent = {name: value for name, value in zip(_AS_THEY_ARE, _as_they_are(self), strict=True) if value}
        sent |= {"id": holder, "start": start, "lease": lease, "life": life, "patience": patience}
        if self.views:
            sent["views"] = {name: view.digest for name, view in self.views.items()}
        if self.asks:
            sent["asks"] = [_row(holder, ticket) for ticket in self.asks]
        if self.waiting:
            sent["waiting"] = [_row(holder, ticket) for ticket in self.waiting]
        if self.leave:
            sent["leave"] = [ticket_name(holder, key) for key in self.leave]
        if self.took:
            sent["took"] = [[ticket_name(holder, key), member] for key, member in self.took.items()]
        return orjson.dumps(sent)


_AS_THEY_ARE = (
    *("seq", "join", "fresh", "settling", "full", "beat", "bye", "explain"),
    *("held", "holds", "tickets", "waits", "release", "changed", "uses", "drops", "contents"),
)
_as_they_are = attrgetter(*_AS_THEY_ARE)


class Seen(NamedTuple):
    """The scores above 0 when `ask` was decided, at `at` by the event loop's clock; None where they are too
    many."""

    ask: Ask
    scores: Mapping[str, int] | None
    at: float


def ticket_name(holder: str, key: int) -> str:
    return f"{holder}/{key}"


def key_of(name: str, holder: str) -> int:
    """The key of one of this holder's tickets; 0, which is none, for any other name."""
    prefix, _, key = name.rpartition("/")
    return int(key) if prefix == holder and key.isdecimal() and len(key) <= _LONGEST_KEY else 0


def _row(holder: str, ticket: Ticket) -> list[Any]:
    ask, turn = ticket.ask, ticket.ask.turn
    order = [each.member for each in islice(ask.candidates, _FIRST)] if ask.ordered else False
    if turn is None:
        return ["", ask.view, order, ask.avoid, "", 1, 0, 0, ask.reluctant]
    name = ticket_name(holder, ticket.key)
    return [name, ask.view, order, ask.avoid, turn.priority, turn.weight, turn.limit, ticket.number, ask.reluctant]
