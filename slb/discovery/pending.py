"""When what a source says is written. Decisions only: the writer acts on them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slb.discovery.found import Found, Member

Attributes = Mapping[str, str]

DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class WriteTiming:
    """Seconds. `debounce`: changes are collected for so long, so that a rolling deploy is one. `drain`: how long
    until a member that is about to end gets nothing new. `empty_grace`: how long an empty answer has to stand where
    there were members."""

    debounce: float = 2.0
    drain: float = 0.1
    empty_grace: float = 30.0


def attributes_of(member: Member) -> dict[str, str]:
    """In the form of Redis; what the source does not say is not there."""
    said = {
        DRAIN: "true" if member.is_draining else "",
        "weight": "" if member.weight is None else str(member.weight),
        "slots": "" if member.slots is None else str(member.slots),
        "zone": member.zone,
        "node": member.node,
    }
    return {name: text for name, text in said.items() if text}


def drained(known: Mapping[str, Attributes], wanted: Mapping[str, Attributes]) -> dict[str, Attributes]:
    """Of the members that stay, those that are to drain and do not yet, with their attributes."""
    return {
        member: {**known[member], DRAIN: said[DRAIN]}
        for member, said in wanted.items()
        if DRAIN in said and member in known and DRAIN not in known[member]
    }


class Pending:
    """Of one source. Call `look` whenever what it says or what is written has changed; then `due` is the time to
    call `now_due`. Times are the caller's clock, in seconds."""

    def __init__(self, timing: WriteTiming) -> None:
        self._timing = timing
        self._since = math.inf
        self._empty_since = math.inf
        self._drain_since = math.inf
        self.due = math.inf
        self.is_held_back = False
        """Whether an empty answer is not believed yet."""

    def look(
        self, now: float, known: Mapping[str, Attributes], wanted: Mapping[str, Attributes], is_gone: bool
    ) -> None:
        """`known`: what was written; `wanted`: what the source says; `is_gone`: it says that nothing is right."""
        is_changed = dict(known) != dict(wanted)
        self.is_held_back = bool(known) and not wanted and not is_gone
        self._since = min(self._since, now) if is_changed and not self.is_held_back else math.inf
        self._empty_since = min(self._empty_since, now) if self.is_held_back else math.inf
        self._drain_since = min(self._drain_since, now) if drained(known, wanted) else math.inf
        self.due = min(self._whole_due(is_first=not known), self._drain_since + self._timing.drain)

    def now_due(
        self, now: float, known: Mapping[str, Attributes], wanted: Mapping[str, Attributes]
    ) -> Mapping[str, Attributes] | None:
        """What is to be written now; None where it is not yet time."""
        if now >= self._whole_due(is_first=not known):
            return wanted
        if now >= self._drain_since + self._timing.drain:
            return {**known, **drained(known, wanted)}
        return None

    def _whole_due(self, is_first: bool) -> float:
        collected = self._since if is_first else self._since + self._timing.debounce
        return min(collected, self._empty_since + self._timing.empty_grace)


def wanted_of(found: Found) -> dict[str, Attributes]:
    return {member: attributes_of(said) for member, said in found.members.items()}
