"""Receivers of callbacks that are slow or do not answer, and how many callbacks to one are under way. Pure."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from slb.jobs.posting import MOST_AT_ONCE, WITHIN
from slb.jobs.webhook import LONGEST

MOST_TO_SILENT, MOST_TO_SLOW = 4, 16
"""Callbacks at once to a receiver that did not answer the last one, or took long to: each holds its place for up to
half a minute, and without a bound one receiver would have the places of all others."""
MOST_TO_STRANGERS = MOST_AT_ONCE // 2
"""Callbacks at once to receivers that have never answered: however many hosts one submitter names, the others'
callbacks have the other half."""
SLOW = 1.0
"""Seconds from which on an answer took long."""
_MOST_KNOWN = 1_000
"""Receivers that are slow or silent: their names are a stranger's. The one known first is forgotten first."""
_MOST_ANSWERED = 10_000
"""Receivers that have answered, alike."""

Group = tuple[str, str]
"""Whose callbacks share places among each other: the model, and who has submitted the jobs."""


def receiver_of(url: str) -> str:
    """Host and port, as they are written, without a user. Raises ValueError."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


@dataclass(slots=True)
class _Slow:
    """`most`: places that it may have; `took`: seconds of its last callback; `filled`: until when they are taken by
    those that were put off."""

    most: int
    took: float
    filled: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a place should be free for one more that is put off."""
        self.filled = min(max(self.filled, now) + self.took / self.most, now + LONGEST)
        return self.filled - now


class _Group:
    """`strangers`: callbacks under way to receivers that have never answered, `silent`: those of them that were
    tried before; `put_off`: those that have no place, of either kind."""

    def __init__(self) -> None:
        self.strangers = self.silent = 0
        self.put_off = {False: _Slow(1, WITHIN), True: _Slow(1, WITHIN)}


class Sent(NamedTuple):
    """A callback that is under way, and what was known of its receiver when it began."""

    receiver: str
    group: Group
    is_stranger: bool
    is_silent: bool


class Receivers:
    """Those that one instance sends callbacks to."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._slow: dict[str, _Slow] = {}
        self._answered: dict[str, None] = {}
        self._groups: dict[Group, _Group] = {}

    def put_off(self, receiver: str, group: Group, now: float) -> float:
        """Seconds for which a callback is put off: 0 where it has a place; else until one is free for it, behind
        those that were put off before. So each is looked at about once for each that is sent."""
        slow = self._slow.get(receiver)
        if slow is not None and self._under_way[receiver] >= slow.most:
            return slow.wait(now)
        return 0.0 if receiver in self._answered else self._stranger(slow is not None, group, now)

    def _stranger(self, is_silent: bool, group: Group, now: float) -> float:
        """A group has its share of these places, and one share is left for the next group. Half of its share is for
        receivers that were not tried yet."""
        if len(self._groups) > _MOST_KNOWN:
            self._groups = {each: known for each, known in self._groups.items() if known.strangers}
        known = self._groups.setdefault(group, _Group())
        busy = sum(each.strangers > 0 for each in self._groups.values() if each is not known)
        most = max(1, MOST_TO_STRANGERS // (busy + 2))
        places, taken = (max(1, most // 2), known.silent) if is_silent else (most, known.strangers)
        if taken >= places or known.strangers >= most:
            known.put_off[is_silent].most = places
            return known.put_off[is_silent].wait(now)
        full = sum(each.strangers for each in self._groups.values()) >= MOST_TO_STRANGERS
        return WITHIN / MOST_TO_STRANGERS if full else 0.0

    def begins(self, receiver: str, group: Group) -> Sent:
        """One is sent."""
        self._under_way[receiver] += 1
        sent = Sent(receiver, group, receiver not in self._answered, receiver in self._slow)
        self._count(sent, 1)
        return sent

    def _count(self, sent: Sent, change: int) -> None:
        if not sent.is_stranger:
            return
        known = self._groups.setdefault(sent.group, _Group())
        known.strangers += change
        known.silent += change if sent.is_silent else 0

    def ended(self, sent: Sent, now: float, took: float | None) -> None:
        """One that was sent: answered after so many seconds, or not at all (None)."""
        receiver = sent.receiver
        self._count(sent, -1)
        waits = self._groups[sent.group].put_off.values() if sent.group in self._groups else ()
        if waits and not self._groups[sent.group].strangers and all(each.filled <= now for each in waits):
            del self._groups[sent.group]
        self._under_way[receiver] -= 1
        if not self._under_way[receiver]:
            del self._under_way[receiver]
        if took is not None:
            self._answered[receiver] = None
            if len(self._answered) > _MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
        if took is not None and took < SLOW:
            self._slow.pop(receiver, None)
            return
        slow = self._slow.setdefault(receiver, _Slow(0, 0.0))
        slow.most, slow.took = (MOST_TO_SILENT, WITHIN) if took is None else (MOST_TO_SLOW, took)
        if len(self._slow) > _MOST_KNOWN:
            del self._slow[next(iter(self._slow))]
