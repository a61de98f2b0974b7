"""What was read from Redis, made into routes, without losing what is counted of an upstream."""

from random import Random

import pytest

from slb.balance.least_local import LeastLocal
from slb.balance.upstream import Handle
from slb.config import Settings
from slb.routing.mirror import Mirror
from tests.unit.routing.mirror_rig import A, B, C, D, Swaps, record, replace, shown, upstreams


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


def test_members_that_no_route_names_any_more_are_passed_on_once(mirror: Mirror) -> None:
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
        return route.policy.pick(route.view).member

    while pick() != B:
        pass
    mirror.update({"/p": record(A, B, C, D)}, {})
    assert [pick() for _ in range(3)] == [C, D, A]
    mirror.update({}, {B: {"drain": "1"}})
    assert [pick() for _ in range(3)] == [C, D, A]


def test_an_old_table_stays_whole(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, B)})
    held = mirror.table
    mirror.update({"/p": None, "/q": record(C)}, {})
    assert [live.member for live in held.routes["/p"].upstreams] == [A, B]
    assert list(held.routes) == ["/p"]


def test_since_when_a_route_is_empty_or_its_settings_are_at_fault_is_known_to_who_has_seen_it() -> None:
    now = [100.0]
    mirror = Mirror(Settings().route_settings, Random(1), wall=lambda: now[0])

    def since() -> dict[str, float | None]:
        return {path: route.empty_since for path, route in mirror.table.routes.items()}

    replace(mirror, {"/p": record(A), "/old": record(retries="x")})
    assert (since(), mirror.effective.faults_since) == ({"/p": None, "/old": 0.0}, {"/old": 0.0})
    mirror.update({"/p": record(retries="x"), "/new": record()}, {})
    now[0] = 200.0
    mirror.update({"/p": record(retries="y", policy="p2c"), "/old": record(policy="p2c")}, {})
    assert since() == {"/p": 100.0, "/old": 0.0, "/new": 100.0}
    assert mirror.effective.faults_since == {"/p": 100.0}
    for _ in mirror.reconfigure(Settings.model_validate({"defaults": {"queue_limit": 7}}).route_settings):
        pass
    assert since()["/p"] == 100.0, "it was made anew"
    mirror.update({"/p": record(A)}, {})
    assert (since()["/p"], mirror.effective.faults_since) == (None, {})
    mirror.update({"/p": record()}, {})
    assert since()["/p"] == 200.0
