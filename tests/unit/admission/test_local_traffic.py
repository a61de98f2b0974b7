"""Anything that can happen to a pool decided here, in any order."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slb.balance.asking import Candidate, Turn
from tests.unit.admission.local_pool_rig import Request, Setup

MEMBERS = ("a", "b", "c", "d")
VIEWS = ("/one", "/two", "/three")
candidates_of_a_view = st.lists(
    st.builds(Candidate, st.sampled_from(MEMBERS), st.integers(0, 5), st.integers(1, 3)),
    max_size=4,
    unique_by=lambda candidate: candidate.member,
).map(tuple)
turns = st.none() | st.builds(Turn, st.sampled_from(["x", "y"]), st.integers(1, 4), st.integers(1, 6))


class Traffic(RuleBasedStateMachine):
    """Anything that can happen to a pool, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = Setup()
        self.now: dict[str, tuple[Candidate, ...]] = dict.fromkeys(VIEWS, ())
        self.requests: list[Request] = []
        self.gone: set[Request] = set()
        self.running: list[str] = []
        self._granted_before: list[str] = []

    @rule(view=st.sampled_from(VIEWS), candidates=candidates_of_a_view)
    def candidates_change(self, view: str, candidates: tuple[Candidate, ...]) -> None:
        self.now[view] = candidates
        self.setup.pool.views(view, candidates)
        self._follow()

    @rule(
        view=st.sampled_from(VIEWS),
        turn=turns,
        avoid=st.lists(st.sampled_from(MEMBERS), max_size=2).map(tuple),
        ordered=st.booleans(),
    )
    def ask(self, view: str, turn: Turn | None, avoid: tuple[str, ...], ordered: bool) -> None:
        before = len(self.setup.pool)
        request = self.setup.bring(Request(self.now[view], turn, avoid, ordered, view))
        self.requests.append(request)
        if request.answers == ["queue_full"]:
            assert turn is not None
            assert before >= turn.limit
        self._follow()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.running))
        self.running.remove(member)
        self.setup.release(member)
        self._follow()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.requests))
        waits = request in self._waiting()
        assert self.setup.pool.leave(request) == waits
        self.gone.add(request)
        self._follow()

    @rule(instances=st.integers(1, 6))
    def instances_change(self, instances: int) -> None:
        self.setup.instances = instances
        self.setup.pool.freed()
        self._follow()

    @rule()
    def hand_over(self) -> None:
        waiting = self._waiting()
        assert self.setup.pool.drain_waiting() == waiting
        self.gone.update(waiting)

    @invariant()
    def no_request_waits_that_could_be_served(self) -> None:
        assert len(self.setup.pool) == len(self._waiting())
        for request in self._waiting():
            able = [each for each in self.now[request.view] if each.member not in request.avoid]
            assert able
            assert not [each for each in able if self._room(each)]

    @invariant()
    def everybody_is_answered_once(self) -> None:
        for request in self.requests:
            answers = [each for each in request.answers if isinstance(each, str)]
            assert len(answers) <= 1

    @invariant()
    def what_is_held_is_what_was_granted(self) -> None:
        assert +self.setup.held == Counter(self.running)

    @invariant()
    def within_a_class_of_a_view_the_first_is_served_first(self) -> None:
        """Of those that want the same, the one that was served was not behind one that waits."""
        for index, request in enumerate(self.requests):
            if request in self._waiting():
                behind = self.requests[index + 1 :]
                assert not [each for each in behind if _alike(each, request) and each.answers[-1] in MEMBERS]

    def _follow(self) -> None:
        """What has been granted runs; none of it went above the share of its candidate."""
        granted = [request for request in self.requests if request.answers[-1] in MEMBERS]
        new = Counter(str(request.answers[-1]) for request in granted) - Counter(self._granted_before)
        self._granted_before = [str(request.answers[-1]) for request in granted]
        self.running += new.elements()
        for member in new:
            limits = [self._share(each) for view in self.now.values() for each in view if each.member == member]
            assert self.setup.held[member] <= max(limits)

    def _waiting(self) -> list[Request]:
        return [each for each in self.requests if isinstance(each.answers[-1], int) and each not in self.gone]

    def _share(self, candidate: Candidate) -> float:
        return max(1, candidate.capacity // self.setup.instances) if candidate.capacity else float("inf")

    def _room(self, candidate: Candidate) -> bool:
        return self.setup.held[candidate.member] < self._share(candidate)


def _alike(one: Request, other: Request) -> bool:
    if one.turn is None or other.turn is None:
        return False
    return (one.view, one.avoid, one.turn.priority) == (other.view, other.avoid, other.turn.priority)


TestTraffic = Traffic.TestCase
