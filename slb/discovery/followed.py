"""One source of one route at one instance: what it says, what of that is written, and by which lease."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slb.backoff import Backoff
from slb.control.discovered import Attributes, Discovered, Lost, Term
from slb.discovery.found import Found, Source
from slb.discovery.pending import Pending, WriteTiming, drained, wanted_of
from slb.model import RouteRecord

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
_ON_ITS_WAY = 1.0
"""Seconds until what was written is shown by this instance's own mirror, at most."""


class Wrote(NamedTuple):
    came: int
    went: int
    drained: int


@dataclass
class Followed:
    """`writer`: the name of the instance that writes. `known`: what this instance has written or read, kept for a
    Redis that loses it; `is_taken`: whether its present
    term has begun. `due`: when to `act`."""

    source: Source
    timing: WriteTiming
    term: int = 0
    until: float = -math.inf
    writer: str = ""
    found: Found | None = None
    known: Mapping[str, Attributes] = field(default_factory=dict)
    is_taken: bool = False
    due: float = math.inf

    def __post_init__(self) -> None:
        self._pending = Pending(self.timing)
        self._backoff = Backoff(_FIRST_PAUSE)
        self._wanted: Mapping[str, Attributes] = {}
        self._shown: RouteRecord | None = None
        self._missing_due = math.inf

    @property
    def key(self) -> tuple[str, str]:
        return self.source.path, self.source.name

    @property
    def is_held_back(self) -> bool:
        return self._pending.is_held_back

    def begin(self, term: int, until: float, now: float) -> bool:
        """This instance writes until then. Whether the term is a new one."""
        is_new, has_lapsed = term != self.term, now >= self.until
        self.term, self.until = term, until
        if is_new:
            self.is_taken = False
        if is_new or has_lapsed:
            self.due = now
        return is_new

    def end(self) -> bool:
        """Another instance writes. Whether it was this one before."""
        was_mine, self.term, self.until, self.due = self.term > 0, 0, -math.inf, math.inf
        self.is_taken, self.found, self.known, self._wanted = False, None, {}, {}
        return was_mine

    def hear(self, found: Found, now: float) -> None:
        self.found, self._wanted = found, wanted_of(found)
        if found.is_gone:
            self._missing_due = math.inf
        if self.is_taken:
            self._look(now)

    def compare(self, record: RouteRecord | None, now: float) -> None:
        """The route as it is served now. What is missing there was removed by hand, or is on its way: it is written
        again where it is still missing a moment later, unless the source is gone."""
        if record is self._shown or not self.is_taken or self._is_gone:
            return
        self._shown = record
        if not self._missing():
            self._missing_due = math.inf
        elif self._missing_due == math.inf:
            self._missing_due = now + _ON_ITS_WAY
            self.due = min(self.due, self._missing_due)

    async def act(self, discovered: Discovered, clock: Callable[[], float]) -> Wrote | None:
        """Do what is due: begin the term, or write; None where nothing was written. Raises Fenced,
        RedisUnavailable."""
        if clock() >= self.until:
            self.due = math.inf  # the next lease has another term
            return None
        term = Term(self.source.path, self.source.name, self.term)
        try:
            if not self.is_taken:
                await self._take(discovered, term)
                return None
            if clock() >= self._missing_due:
                return await self._write(discovered, term, self.known)
            after = self._pending.now_due(clock(), self.known, self._wanted)
            return None if after is None else await self._write(discovered, term, after)
        except Lost:
            self.is_taken = False
            return None
        finally:
            self._look(clock())

    def failed(self, now: float) -> None:
        """Redis did not take it: later again."""
        self.due = now + self._backoff.pause(now, _FIRST_PAUSE, _LONGEST_PAUSE)

    async def _take(self, discovered: Discovered, term: Term) -> None:
        before, kept = self.known, await discovered.take(term)
        if before and not kept and not self._is_gone:  # Redis has lost it
            await discovered.write(term, {}, before, mine=before)
            kept = {member: dict(said) for member, said in before.items()}
        self.known, self.is_taken = kept, True
        self._shown, self._missing_due = None, math.inf

    async def _write(self, discovered: Discovered, term: Term, after: Mapping[str, Attributes]) -> Wrote:
        missing = self._missing() if after is self.known else frozenset()
        before = {member: said for member, said in self.known.items() if member not in missing}
        came, went = await discovered.write(term, before, after, mine=self.known)
        drain = len(drained(self.known, after))
        self.known = after
        self._shown, self._missing_due = None, math.inf
        return Wrote(came, went, drain)

    @property
    def _is_gone(self) -> bool:
        return self.found is not None and self.found.is_gone

    def _missing(self) -> frozenset[str]:
        """Members that were written, and are not in the table."""
        return frozenset(self.known.keys() - (self._shown.members if self._shown is not None else ()))

    def _look(self, now: float) -> None:
        """Find what is due next."""
        if not self.is_taken:
            self.due = now
            return
        if self.found is None:
            self.due = self._missing_due
            return
        self._pending.look(now, self.known, self._wanted, self.found.is_gone)
        self.due = min(self._pending.due, self._missing_due)
