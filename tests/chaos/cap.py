"""How many requests run at once at each upstream, counted there, and when that was too many."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tests.chaos.checker import Violation
from tests.chaos.history import Granted, History, Span
from tests.chaos.upstream import Leases


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many at once at one upstream, more than its cap. `running`: the instance each came through, and when."""

    time: float
    member: str
    running: Sequence[tuple[str, float]]

    @property
    def count(self) -> int:
        return len(self.running)

    def __str__(self) -> str:
        """The last to come is the one too many."""
        return ", ".join(f"{instance} {(self.time - began) * 1000:.0f} ms ago" for instance, began in self.running)


THAWED_SECONDS = 0.2
"""So long after it was thawed an instance sends what it was about to send when it was frozen."""


class Cap:
    """Fed with what runs; `excused`: when the cap need not hold. `worst`: the most at once while it was excused.
    `strict`: how many requests of those that were judged came while it was not. `late`: how often one too many
    was excused by an instance that had just been thawed: frozen between a grant's message and its acknowledgement
    it uses that grant all the same. Once for each time: the documentation has one for each such grant."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._running: defaultdict[str, dict[str, tuple[str, float]]] = defaultdict(dict)
        self._member_of: dict[str, str] = {}
        self._crowds: list[Crowd] = []
        self.excused: list[Span] = []
        self.worst = 0
        self.strict = 0
        self.late = 0
        self._thawed: dict[str, float] = {}
        self._times: list[float] = []

    def began(self, time: float, ask: str, member: str, instance: str) -> None:
        """A request has come to its upstream, through that instance."""
        self._times.append(time)
        running = self._running[member]
        running[ask] = instance, time
        self._member_of[ask] = member
        if len(running) > self._cap and not self._is_late(time, running):
            self._crowds.append(Crowd(time, member, tuple(running.values())))

    def thawed(self, time: float, instance: str) -> None:
        """It was frozen for longer than a grant waits for its acknowledgement."""
        self._thawed[instance] = time

    def ended(self, ask: str) -> None:
        """It was served, or its client has left, whichever comes first."""
        if member := self._member_of.pop(ask, None):
            del self._running[member][ask]

    def judged(self, now: float, what: str) -> list[Violation]:
        """Of all that came since the last judgement: one violation, if any. `what` was done meanwhile."""
        crowds, self._crowds = self._crowds, []
        times, self._times = self._times, []
        self.strict += sum(not self._is_excused(time) for time in times)
        wrong = [crowd for crowd in crowds if not self._is_excused(crowd.time)]
        self.worst = max([self.worst, *(crowd.count for crowd in crowds if self._is_excused(crowd.time))])
        self.excused = [span for span in self.excused if span.end > now]
        if not wrong:
            return []
        most = max(wrong, key=lambda crowd: crowd.count)
        crowd = f"{most.count} at once of {self._cap} at {most.member} ({most})"
        words = f"{crowd}, {len(wrong)} requests too many: {what}"
        return [Violation("above the cap", wrong[0].time, words)]

    def _is_late(self, time: float, running: Mapping[str, tuple[str, float]]) -> bool:
        for instance, _ in running.values():
            if time - self._thawed.get(instance, -inf) < THAWED_SECONDS:
                del self._thawed[instance]
                self.late += 1
                return True
        return False

    def _is_excused(self, time: float) -> bool:
        return any(span.meets(time, time) for span in self.excused)


class CountedLeases(Leases):
    """Counts in `cap` what runs."""

    def __init__(self, history: History, cap: Cap) -> None:
        super().__init__(history)
        self._cap = cap
        self._gone: set[str] = set()

    def began(self, grant: Granted) -> None:
        super().began(grant)
        if grant.ask in self._gone:
            self._gone.remove(grant.ask)  # its client had left before it came: the instance cuts it off
        else:
            self._cap.began(grant.time, grant.ask, grant.member, grant.instance)

    def ended(self, ask: str, instance: str) -> None:
        self._cap.ended(ask)
        super().ended(ask, instance)

    def left(self, ask: str, instance: str) -> None:
        self._gone.add(ask)
        super().left(ask, instance)
