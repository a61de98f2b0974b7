"""What requests ask for at a gate, as their routes change."""

from random import Random

from slb.admission.candidates import RouteCandidates, renewed
from slb.balance.asking import Candidate
from slb.routing.mirror import Mirror
from slb.routing.table import Route
from tests.unit.routing.mirror_rig import A, B, C, make_mirror, record, replace

PATH = "/p"
CAPPED = {"max_inflight": "2", "policy": "round_robin"}


def routed(mirror: Mirror, *members: str, **settings: str) -> Route:
    """The route `/p` of `mirror`, which is this from now on."""
    replace(mirror, {PATH: record(*members, **settings)})
    return mirror.table.routes[PATH]


def members(candidates: tuple[Candidate, ...]) -> list[str]:
    return [each.member for each in candidates]


def some(*names: str, capacity: int = 1) -> tuple[Candidate, ...]:
    return tuple(Candidate(name, capacity, 1) for name in names)


def test_candidates_are_the_same_object_until_something_of_them_changes() -> None:
    mirror, candidates = make_mirror(), RouteCandidates(Random(1))
    before = candidates.of(routed(mirror, A, B, **CAPPED))
    assert [(each.member, each.capacity) for each in before] == [(A, 2), (B, 2)]
    assert candidates.of(routed(mirror, A, B, **CAPPED, retries="3")) is before
    after = candidates.of(routed(mirror, A, B, **{**CAPPED, "max_inflight": "3"}))
    assert [(each.member, each.capacity) for each in after] == [(A, 3), (B, 3)]
    candidates.keep(())
    assert candidates.of(mirror.table.routes[PATH]) is not after


def test_an_order_is_the_policys_and_the_last_come_last() -> None:
    candidates, route = RouteCandidates(Random(1)), routed(make_mirror(), A, B, C, **CAPPED)
    candidates.of(route)
    last = tuple(each for each in route.members if each.member == B)
    orders = [members(candidates.ordered(route, (), last, b"")) for _ in range(3)]
    assert sorted(orders[:2]) == [[A, C, B], [C, A, B]]
    assert orders[2] == orders[0]


def test_while_one_is_probed_the_others_keep_the_order_of_the_policy_and_it_comes_last() -> None:
    candidates, route = RouteCandidates(Random(1)), routed(make_mirror(), A, B, C, **CAPPED)
    candidates.of(route)
    probed = tuple(each for each in route.members if each.member == B)
    route.members[0].inflight = 5  # which the policy does not look at
    orders = [members(candidates.ordered(route, (), (), b"", probed)) for _ in range(6)]
    assert sorted(orders[:2]) == [[A, C, B], [C, A, B]]
    assert orders == orders[:2] * 3
    assert members(candidates.ordered(route, (), probed, b"")) == orders[0]


def test_where_all_come_last_there_is_nothing_for_the_policy_to_order() -> None:
    candidates, route = RouteCandidates(Random(1)), routed(make_mirror(), A, B, **CAPPED)
    candidates.of(route)
    one, other = route.members
    assert members(candidates.ordered(route, (), (one,), b"", (other,))) == [one.member, other.member]


def test_a_further_attempt_takes_no_turn_of_the_policy() -> None:
    candidates, route = RouteCandidates(Random(1)), routed(make_mirror(), A, B, **CAPPED)
    candidates.of(route)
    first = members(candidates.ordered(route, (), (), b""))
    for _ in range(3):
        assert sorted(members(candidates.ordered(route, route.members[:1], (), b""))) == [A, B]
    assert members(candidates.ordered(route, (), (), b"")) == first[::-1]


def test_what_serves_is_of_the_routes_that_have_asked_and_are_of_this_pool_still() -> None:
    mirror, candidates = make_mirror(), RouteCandidates(Random(1))
    shared = {**CAPPED, "pool": PATH}
    replace(mirror, {PATH: record(A, **CAPPED), "/q": record(B, **shared), "/silent": record(C, **shared)})
    for path in (PATH, "/q"):
        candidates.of(mirror.table.routes[path])
    assert candidates.serving(PATH, mirror.table.routes) == {A, B}
    replace(mirror, {PATH: record(C, **CAPPED), "/q": record(B, **CAPPED)})
    assert candidates.serving(PATH, mirror.table.routes) == {C}
    candidates.keep({"/q"})
    assert not candidates.serving(PATH, mirror.table.routes)


def test_a_renewed_ask_keeps_its_order_and_has_what_is_new_last() -> None:
    now = some(A, B, C, capacity=7)
    assert renewed(some(C, A), now) == (now[2], now[0], now[1])
    assert renewed(some(B, A), some(A)) == some(A)
    assert renewed((), now) == now
