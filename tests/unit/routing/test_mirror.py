"""What Redis said, made into routes, without losing what is counted of an upstream."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.least_local import LeastLocal
from slb.balance.upstream import Handle
from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.mirror import Attributes, Mirror

A, B, C, D = (f"10.0.0.{number}:80" for number in range(1, 5))
Records = Mapping[str, RouteRecord]


class Swaps:
    """Notes the members gone, swap by swap."""

    def __init__(self, mirror: Mirror) -> None:
        self.gone: list[list[str]] = []
        mirror.on_swap(lambda members: self.gone.append(sorted(members)))


def make_mirror(**settings: object) -> Mirror:
    return Mirror(Settings.model_validate(settings).route_settings, Random(1))


def record(*members: str, **settings: str) -> RouteRecord:
    return RouteRecord(frozenset(members), settings)


def replace(mirror: Mirror, records: Records, attributes: Attributes | None = None) -> None:
    for _ in mirror.replace(records, attributes or {}):
        pass


def shown(mirror: Mirror) -> dict[str, object]:
    """All there is to see of a mirror."""
    return {
        "routes": {
            path: (
                route.settings,
                type(route.policy),
                [each.member for each in route.members],
                [each.member for each in route.upstreams],
            )
            for path, route in mirror.table.routes.items()
        },
        "upstreams": {member: live.spec for member, live in mirror.upstreams.items()},
        "uses": {member: mirror.uses(member) for member in mirror.upstreams},
        "records": mirror.records,
        "attributes": mirror.attributes,
        "faults": mirror.faults,
    }


def upstreams(mirror: Mirror, path: str) -> list[str]:
    return [live.member for live in mirror.table.routes[path].upstreams]


@pytest.fixture
def mirror() -> Mirror:
    return make_mirror()


def test_a_mirror_is_ready_from_its_first_table_on_even_an_empty_one(mirror: Mirror) -> None:
    assert not mirror.ready
    replace(mirror, {})
    assert mirror.ready


def test_nothing_of_a_full_sync_is_seen_before_its_last_slice(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, retries="x"), "/q": record(B)}, {A: {"weight": "2"}})
    swaps, before, table = Swaps(mirror), shown(mirror), mirror.table
    many = {f"/{number}": record(f"10.1.{number % 250}.1:80", retries="no") for number in range(500)}
    slices = mirror.replace({**many, "/p": record(A, B, retries="2")}, {A: {"drain": "1"}})
    seen = 0
    for _ in slices:
        seen += 1
        assert shown(mirror) == before
        assert mirror.table is table
    assert seen > 3
    assert len(mirror.table.routes) == 501
    assert upstreams(mirror, "/p") == [B]
    assert len(swaps.gone) == 1


def test_a_full_sync_that_is_given_up_changes_nothing(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, retries="x")})
    before = shown(mirror)
    slices = mirror.replace({f"/{number}": record(B, retries="no") for number in range(500)}, {A: {"drain": "1"}})
    for _ in range(5):
        next(slices)
    del slices
    assert shown(mirror) == before
    replace(mirror, {"/p": record(A)})
    assert mirror.faults == {}


def test_what_is_counted_of_an_upstream_survives_every_swap_that_still_names_it(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B)})
    live = mirror.upstreams[A]
    handle = Handle(live)
    mirror.update({"/q": record(A), "/p": record(B)}, {A: {"weight": "5"}})
    replace(mirror, {"/r": record(A)}, {A: {"weight": "7"}})
    assert mirror.upstream(A) is live
    assert mirror.table.routes["/r"].members == (live,)
    assert (live.inflight, live.spec.weight) == (1, 7)
    handle.release()
    assert live.inflight == 0


def test_one_upstream_in_several_routes_is_one_object(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A), "/q": record(A)})
    mirror.update({"/r": record(A), "/s": record(A)}, {})
    assert len({id(route.members[0]) for route in mirror.table.routes.values()}) == 1
    assert mirror.uses(A) == 4


def test_a_member_that_comes_back_is_another_upstream(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A)})
    first = mirror.upstreams[A]
    mirror.update({"/p": record()}, {})
    assert mirror.upstream(A) is None
    mirror.update({"/p": record(A)}, {})
    assert mirror.upstreams[A] is not first


def test_members_that_no_route_names_any_more_are_told_once(mirror: Mirror) -> None:
    swaps = Swaps(mirror)
    replace(mirror, {"/p": record(A, B), "/q": record(B, C)})
    mirror.update({"/p": record(A)}, {})
    mirror.update({"/q": None, "/r": record(C)}, {})
    mirror.update({"/p": None, "/r": None}, {})
    mirror.update({"/p": None}, {})
    replace(mirror, {"/p": record(D)})
    replace(mirror, {})
    assert swaps.gone == [[], [], [B], [A, C], [], [], [D]]


def test_a_route_that_stays_the_same_is_the_same_object_after_a_resync(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A), "/q": record(B)}, {A: {"weight": "2"}})
    before = dict(mirror.table.routes)
    replace(mirror, {"/p": record(A), "/q": record(B, C)}, {A: {"weight": "2"}})
    assert mirror.table.routes["/p"] is before["/p"]
    assert mirror.table.routes["/q"] is not before["/q"]


def test_a_change_of_attributes_remakes_the_routes_of_that_member_and_no_others(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B), "/q": record(B), "/r": record(A)})
    before = dict(mirror.table.routes)
    mirror.update({}, {A: {"drain": "1"}})
    after = mirror.table.routes
    assert {path for path in before if after[path] is not before[path]} == {"/p", "/r"}
    mirror.update({}, {A: {"drain": "1"}})
    assert mirror.table.routes["/p"] is after["/p"]


@pytest.mark.parametrize("whole", [True, False])
def test_drain_takes_an_upstream_out_of_the_choice_but_not_out_of_the_route(mirror: Mirror, whole: bool) -> None:
    replace(mirror, {"/p": record(A, B)})
    live = mirror.upstreams[A]
    if whole:
        replace(mirror, {"/p": record(A, B)}, {A: {"drain": "true"}})
    else:
        mirror.update({}, {A: {"drain": "true"}})
    route = mirror.table.routes["/p"]
    assert (upstreams(mirror, "/p"), [each.member for each in route.members]) == ([B], [A, B])
    assert mirror.upstream(A) is live
    if whole:
        replace(mirror, {"/p": record(A, B)})
    else:
        mirror.update({}, {A: {}})
    assert upstreams(mirror, "/p") == [A, B]
    assert mirror.attributes == {}


def test_attributes_that_come_before_the_member_are_there_when_it_comes(mirror: Mirror) -> None:
    mirror.update({}, {A: {"weight": "4", "drain": "1"}})
    mirror.update({"/p": record(A)}, {})
    assert mirror.upstreams[A].spec.weight == 4
    assert upstreams(mirror, "/p") == []


def test_the_policy_goes_on_where_it_is_the_same_and_begins_anew_where_it_is_another(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B)})
    policy = mirror.table.routes["/p"].policy
    mirror.update({"/p": record(A, C, retries="3")}, {})
    assert mirror.table.routes["/p"].policy is policy
    mirror.update({"/p": record(A, C, policy="least_local")}, {})
    assert isinstance(mirror.table.routes["/p"].policy, LeastLocal)


def test_every_route_goes_its_own_round(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B), "/q": record(A, B)})
    assert mirror.table.routes["/p"].policy is not mirror.table.routes["/q"].policy


def test_a_round_goes_on_with_the_next_in_order_while_upstreams_come_and_go(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B, D)})

    def pick() -> str:
        route = mirror.table.routes["/p"]
        return route.policy.pick(route.upstreams).member

    while pick() != B:
        pass
    mirror.update({"/p": record(A, B, C, D)}, {})
    assert [pick() for _ in range(3)] == [C, D, A]
    mirror.update({}, {B: {"drain": "1"}})
    assert [pick() for _ in range(3)] == [C, D, A]


def test_bad_settings_are_dropped_one_by_one_and_named(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, retries="99", idle_timeout="3s", colour="red"), "/q": record(A)})
    route = mirror.table.routes["/p"]
    assert (route.settings.retries, route.settings.idle_timeout) == (1, 3.0)
    assert [fault.split(" ")[0] for fault in mirror.faults.pop("/p")] == ["retries", "colour:"]
    assert mirror.faults == {}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("after", [None, record(A), record(A, retries="2")])
def test_faults_end_with_what_was_at_fault(mirror: Mirror, whole: bool, after: RouteRecord | None) -> None:
    replace(mirror, {"/p": record(A, retries="x")})
    assert list(mirror.faults) == ["/p"]
    if whole:
        replace(mirror, {"/p": after} if after else {})
    else:
        mirror.update({"/p": after}, {})
    assert mirror.faults == {}


@pytest.mark.parametrize("whole", [True, False])
def test_a_setting_that_turns_bad_keeps_the_value_it_had_until_it_is_good_or_gone(whole: bool) -> None:
    mirror = make_mirror(defaults={"max_inflight": 9})

    def written(**settings: str) -> tuple[int, str, list[str]]:
        if whole:
            replace(mirror, {"/p": record(A, **settings)})
        else:
            mirror.update({"/p": record(A, **settings)}, {})
        found = mirror.table.routes["/p"].settings
        return found.max_inflight, found.policy, [fault.split(" ")[0] for fault in mirror.faults.get("/p", [])]

    assert written(max_inflight="4", policy="p2c") == (4, "p2c", [])
    assert written(max_inflight="-1", policy="p2c") == (4, "p2c", ["max_inflight"])
    assert written(max_inflight="lots", policy="best") == (4, "p2c", ["max_inflight", "policy"])
    for _ in mirror.reconfigure(Settings.model_validate({"defaults": {"retries": 7}}).route_settings):
        pass
    assert mirror.table.routes["/p"].settings.retries == 7
    assert mirror.table.routes["/p"].settings.max_inflight == 4
    assert written(max_inflight="99999999", policy="random") == (4, "random", ["max_inflight"])
    assert written(max_inflight="5") == (5, "round_robin", [])
    assert written(max_inflight="bad") == (5, "round_robin", ["max_inflight"])
    assert written() == (0, "round_robin", [])
    assert written(max_inflight="bad") == (0, "round_robin", ["max_inflight"])


def test_a_setting_that_was_never_good_is_the_files_and_a_route_removed_leaves_nothing() -> None:
    mirror = make_mirror(defaults={"max_inflight": 9})
    replace(mirror, {"/p": record(A, priorities="critical=0")})
    assert mirror.table.routes["/p"].settings.priorities == ()
    mirror.update({"/p": record(A, max_inflight="4")}, {})
    mirror.update({"/p": record(A, max_inflight="x")}, {})
    mirror.update({"/p": None}, {})
    mirror.update({"/p": record(A, max_inflight="x")}, {})
    assert mirror.table.routes["/p"].settings.max_inflight == 9


def test_settings_in_redis_win_over_those_in_the_file() -> None:
    mirror = make_mirror(defaults={"retries": 3}, routes={"/p": {"retries": 4, "idle_timeout": "9s"}})
    replace(mirror, {"/p": record(A, retries="5"), "/q": record(A), "/r": record(A, retries="bad")})
    found = {path: route.settings for path, route in mirror.table.routes.items()}
    assert {path: each.retries for path, each in found.items()} == {"/p": 5, "/q": 3, "/r": 3}
    assert found["/p"].idle_timeout == 9.0


def test_a_route_exists_while_its_settings_exist(mirror: Mirror) -> None:
    replace(mirror, {"/": record(A), "/p": record(retries="2")})
    taken = mirror.table.match("/p/x")
    assert taken is not None
    assert (taken.path, taken.upstreams) == ("/p", ())


def test_whoever_holds_an_old_table_still_sees_it_whole(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B)})
    held = mirror.table
    mirror.update({"/p": None, "/q": record(C)}, {})
    assert [live.member for live in held.routes["/p"].upstreams] == [A, B]
    assert list(held.routes) == ["/p"]


_records = st.builds(
    lambda members, settings: RouteRecord(frozenset(members), settings),
    st.sets(st.sampled_from([A, B, C, D])),
    # No value that is bad for its name: what stands in its place is the one thing that depends on the past.
    st.fixed_dictionaries(
        {},
        optional={
            "retries": st.sampled_from(["1", "2"]),
            "policy": st.sampled_from(["p2c", "random"]),
            "bad": st.just("1"),
        },
    ),
)
_hashes = st.dictionaries(
    st.sampled_from(["weight", "drain", "zone", "other"]), st.sampled_from(["1", "5", "", "z"]), max_size=2
)
_paths = st.sampled_from(["/", "/p", "/q", "/p/q"])
_changes = st.tuples(
    st.dictionaries(_paths, st.none() | _records, max_size=3),
    st.dictionaries(st.sampled_from([A, B, C, D]), _hashes, max_size=2),
)


@given(st.dictionaries(_paths, _records), st.lists(_changes, max_size=6))
def test_change_by_change_the_mirror_shows_what_a_full_sync_of_the_outcome_shows(
    first: dict[str, RouteRecord],
    changes: Sequence[tuple[dict[str, RouteRecord | None], dict[str, dict[str, str]]]],
) -> None:
    mirror = make_mirror()
    swaps = Swaps(mirror)
    replace(mirror, first)
    records, attributes = dict(first), dict[str, dict[str, str]]()
    for changed, hashes in changes:
        named, live = set(mirror.upstreams), dict(mirror.upstreams)
        mirror.update(changed, hashes)
        records = {path: each for path, each in {**records, **changed}.items() if each is not None}
        attributes = {member: each for member, each in {**attributes, **hashes}.items() if each}
        names = {member for each in records.values() for member in each.members}
        assert swaps.gone[-1] == sorted(named - names)
        assert all(mirror.upstream(member) is live[member] for member in named & names)
    at_once, again = make_mirror(), shown(mirror)
    replace(at_once, records, attributes)
    assert again == shown(at_once)
    replace(mirror, records, attributes)
    assert shown(mirror) == again
    assert swaps.gone[-1] == []


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fading(**settings: object) -> tuple[Mirror, Clock]:
    clock = Clock()
    return Mirror(Settings.model_validate(settings).route_settings, Random(1), clock), clock


FADES = {"defaults": {"fade_in": "10s"}}


@pytest.mark.parametrize("whole", [True, False])
def test_a_member_that_comes_after_the_first_table_fades_in(whole: bool) -> None:
    mirror, clock = fading(**FADES)
    replace(mirror, {"/p": record(A, B)})
    assert mirror.table.routes["/p"].fading_until == 0.0
    if whole:
        replace(mirror, {"/p": record(A, B, C)})
    else:
        mirror.update({"/p": record(A, B, C)}, {})
    route = mirror.table.routes["/p"]
    assert route.fading_until == 1010.0
    assert [each.member for each in route.candidates(clock.now, Random(1))] == [A, B]
    assert [each.member for each in route.held_back(clock.now, Random(1))] == [C]
    clock.now += 10
    assert route.held_back(clock.now, Random(1)) == ()
    assert route.candidates(clock.now, Random(1)) is route.serving
    assert route.fading_until == 0.0


def test_a_member_another_route_has_named_long_since_is_not_new() -> None:
    mirror, clock = fading(**FADES)
    replace(mirror, {"/p": record(A, B), "/q": record(C)})
    clock.now += 1
    mirror.update({"/p": record(A, B, C)}, {})
    assert mirror.table.routes["/p"].fading_until == 0.0


def test_a_member_that_left_and_came_back_is_new_again() -> None:
    mirror, _ = fading(**FADES)
    replace(mirror, {"/p": record(A, B)})
    mirror.update({"/p": record(A)}, {})
    mirror.update({"/p": record(A, B)}, {})
    assert mirror.table.routes["/p"].fading_until == 1010.0


def test_a_new_route_does_not_fade_nor_does_any_without_the_setting() -> None:
    mirror, clock = fading(routes={"/p": {"fade_in": "10s"}})
    replace(mirror, {"/q": record(A)})
    mirror.update({"/p": record(B, C), "/q": record(A, D)}, {})
    assert [mirror.table.routes[path].fading_until for path in ("/p", "/q")] == [0.0, 0.0]
    assert mirror.table.routes["/p"].candidates(clock.now, Random(1)) is mirror.table.routes["/p"].serving


def test_who_fades_is_judged_among_those_that_serve() -> None:
    mirror, _ = fading(**FADES)
    replace(mirror, {"/p": record(A, B)})
    mirror.update({"/p": record(A, B, C, D)}, {})
    route = mirror.table.routes["/p"]
    for member in (C, D):
        mirror.upstreams[member].available = False
    mirror.refresh([C, D])
    assert (route.serving, route.fading_until) == (route.upstreams[:2], 0.0)
    mirror.upstreams[C].available = True
    mirror.refresh([C])
    assert route.fading_until == 1010.0


def test_a_fade_in_set_while_one_is_new_holds_from_when_it_came() -> None:
    mirror, clock = fading()
    replace(mirror, {"/p": record(A, B)})
    mirror.update({"/p": record(A, B, C)}, {})
    clock.now += 3
    mirror.update({"/p": record(A, B, C, fade_in="5s")}, {})
    assert mirror.table.routes["/p"].fading_until == 1005.0
