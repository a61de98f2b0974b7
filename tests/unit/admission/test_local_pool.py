"""A pool decided by what one instance holds: shares, order, and what is told to whom."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slb.admission.local_pool import LocalPool
from slb.balance.asking import Candidate, Turn

NORMAL = Turn("normal", 3, 1000)


def some(*members: str, capacity: int = 1, slots: int = 1) -> tuple[Candidate, ...]:
    return tuple(Candidate(member, capacity, slots) for member in members)


class Request:
    """An ask that remembers what it was told."""

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        turn: Turn | None = NORMAL,
        avoid: tuple[str, ...] = (),
        ordered: bool = False,
        view: str = "/p",
        when_granted: Callable[[], object] = lambda: None,
        reluctant: tuple[str, ...] = (),
    ) -> None:
        self.reluctant = reluctant
        self.view, self.candidates, self.avoid, self.ordered, self.turn = view, candidates, avoid, ordered, turn
        self.told: list[str | int] = []
        self._when_granted = when_granted

    def granted(self, member: str) -> None:
        self.told.append(member)
        self._when_granted()

    def refused(self, reason: str) -> None:
        self.told.append(reason)

    def queued(self, position: int) -> None:
        self.told.append(position)


class Setup:
    """A pool shared by `instances`, and what this one holds of it."""

    def __init__(self, instances: int = 1, start: int = 0) -> None:
        self.held: Counter[str] = Counter()
        self.instances = instances
        self.pool = LocalPool(self.held, lambda: self.instances, start)

    def ask(
        self, candidates: tuple[Candidate, ...], turn: Turn | None = NORMAL, avoid: tuple[str, ...] = ()
    ) -> Request:
        return self.bring(Request(candidates, turn, avoid))

    def bring(self, request: Request) -> Request:
        self.pool.ask(request)
        return request

    def release(self, member: str) -> None:
        self.held[member] -= 1
        self.pool.freed()

    def granted(self, candidates: tuple[Candidate, ...], count: int) -> list[str | int]:
        """What so many that do not wait are told."""
        return [self.ask(candidates, turn=None).told[0] for _ in range(count)]


@pytest.mark.parametrize(
    ("capacity", "instances", "share"),
    [(1, 1, 1), (8, 1, 8), (8, 3, 2), (8, 8, 1), (2, 5, 1), (1, 100, 1), (4, 0, 4)],
)
def test_each_instance_may_use_its_part_of_a_capacity_and_one_at_least(
    capacity: int, instances: int, share: int
) -> None:
    setup = Setup(instances)
    told = setup.granted(some("a", capacity=capacity), share + 2)
    assert told == ["a"] * share + ["pool_saturated"] * 2
    assert setup.held == {"a": share}


def test_without_a_capacity_there_is_always_room() -> None:
    assert Setup(9).granted(some("a", capacity=0), 50) == ["a"] * 50


def test_what_others_granted_counts_too() -> None:
    setup = Setup()
    setup.held["a"] = 2
    assert setup.granted(some("a", capacity=3), 2) == ["a", "pool_saturated"]


def test_the_least_held_gets_it() -> None:
    setup = Setup()
    setup.held.update({"a": 2, "b": 1, "c": 3})
    assert setup.granted(some("a", "b", "c", capacity=9), 1) == ["b"]


def test_slots_divide_what_is_held() -> None:
    setup = Setup()
    setup.held.update({"big": 3, "small": 1})
    candidates = (*some("big", capacity=0, slots=4), *some("small", capacity=0))
    assert setup.granted(candidates, 1) == ["big"]


def test_ties_rotate() -> None:
    setup, candidates = Setup(), some("a", "b", "c", capacity=0)
    seen = []
    for _ in range(6):
        seen += setup.granted(candidates, 1)
        setup.held.clear()
    assert seen == ["a", "b", "c", "a", "b", "c"]


def test_instances_may_begin_at_different_places() -> None:
    candidates = some("a", "b", "c", capacity=0)
    assert [Setup(start=start).granted(candidates, 1) for start in range(4)] == [["a"], ["b"], ["c"], ["a"]]


def test_the_first_with_room_gets_it_where_a_policy_has_put_them_in_order() -> None:
    setup, candidates = Setup(), some("c", "a", capacity=2)
    setup.held["a"] = 0
    told = [setup.bring(Request(candidates, None, ordered=True)).told[0] for _ in range(5)]
    assert told == ["c", "c", "a", "a", "pool_saturated"]


def test_an_upstream_it_failed_at_is_not_used_again() -> None:
    setup = Setup()
    assert setup.ask(some("a", "b"), avoid=("a",)).told == ["b"]
    assert setup.ask(some("a", "b"), turn=None, avoid=("a",)).told == ["pool_saturated"]


@pytest.mark.parametrize("ordered", [True, False])
def test_an_upstream_it_is_reluctant_to_use_is_taken_where_no_other_has_room(ordered: bool) -> None:
    setup = Setup()
    told = [setup.bring(Request(some("a", "b"), ordered=ordered, reluctant=("a",))).told for _ in range(3)]
    assert told == [["b"], ["a"], [0]]
    setup.release("a")
    assert told[2] == [0, "a"]


@pytest.mark.parametrize(("candidates", "avoid"), [((), ()), (some("a"), ("a",))])
def test_who_can_use_nothing_at_all_does_not_wait(
    candidates: tuple[Candidate, ...], avoid: tuple[str, ...]
) -> None:
    assert Setup().ask(candidates, avoid=avoid).told == ["no_upstream"]


def test_where_all_is_full_it_waits_and_is_told_how_many_are_before_it() -> None:
    setup = Setup()
    told = [setup.ask(some("a")).told for _ in range(4)]
    assert told == [["a"], [0], [1], [2]]
    batch = setup.ask(some("a"), Turn("batch", 1, 1000))
    assert batch.told == [0]
    assert len(setup.pool) == 4
    assert setup.pool.depths() == {"normal": 3, "batch": 1}
    assert setup.pool.position(batch) == 0
    assert setup.pool.waiting_views == {"/p"}


def test_where_enough_wait_it_is_refused() -> None:
    setup = Setup()
    limited = Turn("normal", 3, 2)
    told = [setup.ask(some("a"), limited).told for _ in range(4)]
    assert told == [["a"], [0], [1], ["queue_full"]]


def test_a_slot_that_frees_goes_to_who_came_first() -> None:
    setup = Setup()
    first, second, third = (setup.ask(some("a")) for _ in range(3))
    setup.release("a")
    assert (first.told, second.told, third.told) == (["a"], [0, "a"], [1])
    assert setup.held == {"a": 1}
    assert setup.pool.position(third) == 0


def test_a_heavier_class_is_served_more_often() -> None:
    setup = Setup()
    setup.ask(some("a"))
    waiting = [setup.ask(some("a"), Turn(*turn)) for turn in [("batch", 1, 99), ("critical", 8, 99)] * 8]
    for _ in range(9):
        setup.release("a")
    assert Counter(ask.turn.priority for ask in waiting if ask.told[-1] == "a" and ask.turn) == {
        "batch": 1,
        "critical": 8,
    }


def test_who_cannot_use_the_slot_is_passed_over_and_keeps_its_place() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    wants_b = setup.ask(some("a", "b"), avoid=("a",))
    any_will_do = setup.ask(some("a", "b"))
    setup.release("a")
    assert (wants_b.told, any_will_do.told) == ([0], [1, "a"])
    setup.release("b")
    assert wants_b.told == [0, "b"]


def test_routes_share_the_slots_of_a_pool_and_its_queue() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    one = setup.bring(Request(some("a"), view="/one"))
    both = setup.bring(Request(some("a", "b"), view="/both"))
    setup.release("b")
    assert (one.told, both.told) == ([0], [1, "b"])
    assert setup.pool.waiting_views == {"/one"}


def test_who_leaves_frees_its_place() -> None:
    setup = Setup()
    _, second, third = (setup.ask(some("a")) for _ in range(3))
    assert setup.pool.leave(second)
    assert setup.pool.position(third) == 0
    setup.release("a")
    assert (second.told, third.told) == ([0], [1, "a"])


def test_who_was_answered_has_nothing_to_leave() -> None:
    setup = Setup()
    served, refused = setup.ask(some("a")), setup.ask(some("a"), turn=None)
    assert not setup.pool.leave(served)
    assert not setup.pool.leave(refused)
    assert setup.held == {"a": 1}


def test_candidates_that_changed_serve_who_waits() -> None:
    setup = Setup()
    _, second, third = (setup.ask(some("a")) for _ in range(3))
    setup.pool.views("/p", some("a", "b"))
    assert (second.told, third.told) == ([0, "b"], [1])
    setup.pool.views("/p", some("c"))
    assert third.told == [1, "c"]
    assert setup.held == {"a": 1, "b": 1, "c": 1}


def test_a_capacity_that_was_raised_serves_who_waits() -> None:
    setup = Setup()
    requests = [setup.ask(some("a")) for _ in range(4)]
    setup.pool.views("/p", some("a", capacity=3))
    assert [request.told[-1] for request in requests] == ["a", "a", "a", 2]


def test_who_waits_is_refused_once_there_is_nothing_it_can_use() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    choosy, other = setup.ask(some("a", "b"), avoid=("a",)), setup.ask(some("a", "b"))
    elsewhere = setup.bring(Request(some("b"), view="/other"))
    setup.pool.views("/p", some("a"))
    assert (choosy.told, other.told, elsewhere.told) == ([0, "no_upstream"], [1], [2])
    setup.pool.views("/p", ())
    assert other.told == [1, "no_upstream"]
    assert len(setup.pool) == 1


def test_who_waits_is_not_bound_to_the_fewer_candidates_a_second_attempt_came_with() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    second_attempt = setup.ask(some("b"), avoid=("a",))
    first_attempt = setup.ask(some("a", "b"))
    setup.release("a")
    assert (second_attempt.told, first_attempt.told) == ([0], [1, "a"])


def test_candidates_who_waits_has_not_heard_of_are_for_it_too() -> None:
    setup = Setup()
    setup.granted(some("a"), 1)
    waiting = setup.ask(some("a"))
    late = setup.ask(some("a", "b"), avoid=("b",))
    assert (waiting.told, late.told) == ([0, "b"], [0])


def test_fewer_instances_leave_more_for_each() -> None:
    setup = Setup(instances=4)
    requests = [setup.ask(some("a", capacity=4)) for _ in range(5)]
    setup.instances = 2
    setup.pool.freed()
    assert [request.told[-1] for request in requests] == ["a", "a", 1, 2, 3]
    setup.instances = 1
    late = setup.ask(some("a", capacity=4))  # nobody said so; it still does not go before who waits
    assert [request.told[-1] for request in (*requests, late)] == ["a", "a", "a", "a", 3, 1]


def test_more_instances_take_nothing_away_but_grant_nothing_more() -> None:
    setup = Setup()
    assert setup.granted(some("a", capacity=4), 4) == ["a"] * 4
    setup.instances = 2
    waiting = setup.ask(some("a", capacity=4))
    setup.release("a")
    setup.release("a")
    assert waiting.told == [0]
    setup.release("a")
    assert waiting.told == [0, "a"]


def test_who_waits_is_handed_over_in_the_order_they_came() -> None:
    setup = Setup()
    setup.ask(some("a"))
    waiting = [setup.ask(some("a"), Turn(name, 1, 99)) for name in ("b", "a", "c", "a")]
    assert setup.pool.drain_waiting() == waiting
    assert len(setup.pool) == 0
    setup.release("a")
    assert [request.told[-1] for request in waiting] == [0, 0, 0, 1]
    assert setup.ask(some("a")).told == ["a"]


def test_a_grant_that_ends_at_once_serves_the_next_without_growing_the_stack() -> None:
    setup = Setup()
    requests = [
        Request(some("a"), Turn("n", 1, 9999), when_granted=lambda: setup.release("a")) for _ in range(5000)
    ]
    setup.held["a"] = 1
    for request in requests:
        setup.pool.ask(request)
    setup.release("a")
    assert all(request.told[1:] == ["a"] for request in requests)
    assert setup.held["a"] == 0


def test_who_leaves_before_it_was_told_of_its_grant_is_not_told_and_the_next_gets_it() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    leaver, third = Request(some("a", "b")), Request(some("a", "b"))
    first = Request(some("a", "b"), when_granted=lambda: setup.pool.leave(leaver))
    for request in (first, leaver, third):
        setup.pool.ask(request)
    setup.held.clear()
    setup.pool.freed()
    assert leaver.told == [1]
    assert sorted(map(str, [first.told[-1], third.told[-1]])) == ["a", "b"]
    assert setup.held == {"a": 1, "b": 1}


def test_an_asker_that_fails_costs_nobody_else_an_answer() -> None:
    def fail() -> None:
        raise ValueError("broken")

    setup = Setup()
    setup.granted(some("a", "b"), 2)
    broken, next_one = setup.bring(Request(some("a", "b"), when_granted=fail)), setup.ask(some("a", "b"))
    setup.held.clear()
    with pytest.raises(ValueError, match="broken"):
        setup.pool.freed()
    setup.pool.freed()
    assert broken.told[-1] in ("a", "b")
    assert next_one.told[-1] in ("a", "b")


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
        if request.told == ["queue_full"]:
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
    def nobody_waits_who_could_be_served(self) -> None:
        assert len(self.setup.pool) == len(self._waiting())
        for request in self._waiting():
            able = [each for each in self.now[request.view] if each.member not in request.avoid]
            assert able
            assert not [each for each in able if self._room(each)]

    @invariant()
    def everybody_is_answered_once(self) -> None:
        for request in self.requests:
            answers = [each for each in request.told if isinstance(each, str)]
            assert len(answers) <= 1

    @invariant()
    def what_is_held_is_what_was_granted(self) -> None:
        assert +self.setup.held == Counter(self.running)

    @invariant()
    def within_a_class_of_a_view_the_first_is_served_first(self) -> None:
        """Of those that want the same, whoever was served was not behind one that waits."""
        for index, request in enumerate(self.requests):
            if request in self._waiting():
                behind = self.requests[index + 1 :]
                assert not [each for each in behind if _alike(each, request) and each.told[-1] in MEMBERS]

    def _follow(self) -> None:
        """What has been granted runs; none of it went above the share of its candidate."""
        granted = [request for request in self.requests if request.told[-1] in MEMBERS]
        new = Counter(str(request.told[-1]) for request in granted) - Counter(self._granted_before)
        self._granted_before = [str(request.told[-1]) for request in granted]
        self.running += new.elements()
        for member in new:
            limits = [self._share(each) for view in self.now.values() for each in view if each.member == member]
            assert self.setup.held[member] <= max(limits)

    def _waiting(self) -> list[Request]:
        return [each for each in self.requests if isinstance(each.told[-1], int) and each not in self.gone]

    def _share(self, candidate: Candidate) -> float:
        return max(1, candidate.capacity // self.setup.instances) if candidate.capacity else float("inf")

    def _room(self, candidate: Candidate) -> bool:
        return self.setup.held[candidate.member] < self._share(candidate)


def _alike(one: Request, other: Request) -> bool:
    if one.turn is None or other.turn is None:
        return False
    return (one.view, one.avoid, one.turn.priority) == (other.view, other.avoid, other.turn.priority)


TestTraffic = Traffic.TestCase
