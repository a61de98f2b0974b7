"""One pool decided by what this instance holds itself, while Redis is slow or gone. Each instance may use an equal
part of a capacity, and at least one slot: with more instances than slots an upstream may get more than its
capacity."""

from collections import Counter
from collections.abc import Callable

from slb.admission.fair_queue import FairQueue
from slb.balance.asking import Ask, Candidate


class LocalPool:
    """Grants, refuses and queues asks, which differ by identity and may call back when answered. After each call no
    ask waits that could use what this instance may still take.

    `held`: requests of this instance in flight by member. The pool adds one at a grant; the caller subtracts it
    when the request ends and then calls `freed`. `instances`: how many share each capacity. `start`: where ties
    begin to rotate, different for each instance.
    """

    def __init__(self, held: Counter[str], instances: Callable[[], int], start: int) -> None:
        self._held = held
        self._instances = instances
        self._rotation = start
        self._queue: FairQueue[Ask] = FairQueue()
        self._views: dict[str, tuple[Candidate, ...]] = {}  # of waiting asks
        self._answers: dict[Ask, tuple[str | None, str]] = {}  # a slot of this member, or why there is none
        self._answering = False

    def __len__(self) -> int:
        return len(self._queue)

    def ask(self, ask: Ask) -> None:
        self._serve()
        member = self._choose(ask, ask.candidates)
        if member is not None:
            self._grant(ask, member)
        elif reason := self._refusal(ask):
            self._answers[ask] = (None, reason)
        else:
            self._enqueue(ask)
        self._give_answers()

    def leave(self, ask: Ask) -> bool:
        """Remove it without an answer; False where it was answered or never asked."""
        was_answered = ask in self._answers
        member, _ = self._answers.pop(ask, (None, ""))
        if member is not None:
            self._held[member] -= 1
            if not self._held[member]:
                del self._held[member]
        left = self._queue.remove(ask) or was_answered
        self.freed()
        return left

    def freed(self) -> None:
        """Serve what waits: less is held, or fewer instances share."""
        self._serve()
        self._give_answers()

    def views(self, view: str, candidates: tuple[Candidate, ...]) -> None:
        """Set a route's candidates; asks that can use none of them are refused."""
        if view in self._views:
            self._views[view] = candidates
            self._refuse_hopeless(view)
        self.freed()

    def capacity(self, candidate: Candidate) -> int:
        """This instance's part; 0 for any number."""
        return _part(candidate, max(1, self._instances()))

    def drain_waiting(self) -> list[Ask]:
        """Remove the waiting asks, and return them in the order they came."""
        waiting = list(self._queue)
        self._queue = FairQueue()
        self._views.clear()
        return waiting

    def _refuse_hopeless(self, view: str) -> None:
        for ask in self._queue:
            if ask.view == view and not _usable(ask, self._views[view]):
                self._queue.remove(ask)
                self._answers[ask] = (None, "no_upstream")

    def _serve(self) -> None:
        while self._queue and self._room_somewhere():
            found = self._queue.pop(self._chooser())
            if found is None:
                break
            self._grant(*found)
        if not self._queue:
            self._views.clear()

    def _give_answers(self) -> None:
        """An answered ask may call back and decide others: the outermost call answers these too."""
        if self._answering:
            return
        self._answering = True
        try:
            while self._answers:
                ask = next(iter(self._answers))
                member, reason = self._answers.pop(ask)
                if member is None:
                    ask.refused(reason)
                else:
                    ask.granted(member)
        finally:
            self._answering = False

    def _grant(self, ask: Ask, member: str) -> None:
        self._held[member] += 1
        self._answers[ask] = (member, "")

    def _refusal(self, ask: Ask) -> str | None:
        if not _usable(ask, ask.candidates):
            return "no_upstream"
        if ask.turn is None:
            return "pool_saturated"
        had_a_place = ask.number > 0  # or a slot: so the queue outgrows its limit by the slots there are at most
        return "queue_full" if len(self._queue) >= ask.turn.limit and not had_a_place else None

    def _enqueue(self, ask: Ask) -> None:
        assert ask.turn is not None  # else it was refused
        self._queue.push(ask, ask.turn.priority, ask.turn.weight, ask.arrival)
        self._widen(ask)
        ask.queued(self._queue.position(ask))

    def _widen(self, ask: Ask) -> None:
        """A second attempt may bring fewer of a route's candidates than others have that wait there."""
        known = self._views.setdefault(ask.view, ask.candidates)
        members = {each.member for each in known}
        if new := tuple(each for each in ask.candidates if each.member not in members):
            self._views[ask.view] = known + new
            self._serve()

    def _chooser(self) -> Callable[[Ask], str | None]:
        """Chooses for one ticket after another while nothing changes; what is full for one is full for all like
        it."""
        full: set[tuple[str, tuple[str, ...]]] = set()

        def choose(ask: Ask) -> str | None:
            kind = (ask.view, ask.avoid)
            member = None if kind in full else self._choose(ask, self._views[ask.view])
            if member is None:
                full.add(kind)
            return member

        return choose

    def _choose(self, ask: Ask, candidates: tuple[Candidate, ...]) -> str | None:
        instances = max(1, self._instances())
        roomy = [each for each in _usable(ask, candidates) if self._has_room(each, instances)]
        if not roomy:
            return None
        roomy = [each for each in roomy if each.member not in ask.reluctant] or roomy
        return roomy[0].member if ask.ordered else self._least(roomy)

    def _least(self, roomy: list[Candidate]) -> str:
        loads = [self._held[each.member] / each.slots for each in roomy]
        least = min(loads)
        ties = [each.member for each, load in zip(roomy, loads, strict=True) if load == least]
        self._rotation += 1
        return ties[(self._rotation - 1) % len(ties)]

    def _room_somewhere(self) -> bool:
        """Spares the walk along a queue of which no ask can be served."""
        instances = max(1, self._instances())
        return any(self._has_room(each, instances) for view in self._views.values() for each in view)

    def _has_room(self, candidate: Candidate, instances: int) -> bool:
        return candidate.capacity == 0 or self._held[candidate.member] < _part(candidate, instances)


def _part(candidate: Candidate, instances: int) -> int:
    return max(1, candidate.capacity // instances) if candidate.capacity else 0


def _usable(ask: Ask, candidates: tuple[Candidate, ...]) -> list[Candidate]:
    return [each for each in candidates if each.member not in ask.avoid]
