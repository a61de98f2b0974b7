"""Settings of routes in the mirror: whose word holds, and what becomes of bad ones."""

import pytest

from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.mirror import Mirror
from tests.unit.routing.mirror_rig import A, make_mirror, record, replace


def test_bad_settings_are_dropped_one_by_one_and_named(mirror: Mirror) -> None:
    replace(mirror, {"/p": record(A, retries="99", idle_timeout="3s", colour="red"), "/q": record(A)})
    route = mirror.table.routes["/p"]
    assert (route.settings.retries, route.settings.idle_timeout) == (1, 3.0)
    assert [fault.split(" ")[0] for fault in mirror.faults["/p"]] == ["retries", "colour:"]
    assert list(mirror.faults) == ["/p"]


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
