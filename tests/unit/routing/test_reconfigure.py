"""Routes follow other settings of the process, whatever else happens meanwhile."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.mirror import Mirror

A, B = "10.0.0.1:80", "10.0.0.2:80"
ROUTES = 200
"""Several slices of work."""


def settings(retries: int) -> Settings:
    return Settings.model_validate({"defaults": {"retries": retries}})


@pytest.fixture
def mirror() -> Mirror:
    made = Mirror(settings(1).route_settings, Random(1))
    run(made.replace({f"/p{number}": RouteRecord(frozenset({A})) for number in range(ROUTES)}, {}))
    return made


def run(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def retries(mirror: Mirror) -> set[int]:
    return {route.settings.retries for route in mirror.table.routes.values()}


def test_all_routes_follow_with_one_swap_and_keep_what_is_counted(mirror: Mirror) -> None:
    before = mirror.table.routes["/p0"]
    steps = mirror.reconfigure(settings(4).route_settings)
    next(steps)
    assert retries(mirror) == {1}
    run(steps)
    assert retries(mirror) == {4}
    assert mirror.table.routes["/p0"].members[0] is before.members[0]
    assert mirror.table.routes["/p0"].policy is before.policy


def test_a_route_whose_own_settings_override_them_is_the_same_object(mirror: Mirror) -> None:
    mirror.update({"/own": RouteRecord(frozenset({A}), {"retries": "7"})}, {})
    before = mirror.table.routes["/own"]
    run(mirror.reconfigure(settings(4).route_settings))
    assert mirror.table.routes["/own"] is before


def _update(mirror: Mirror) -> None:
    mirror.update(
        {"/new": RouteRecord(frozenset({B})), "/p0": None, "/p199": RouteRecord(frozenset({A, B}))},
        {B: {"weight": "2"}},
    )


def _resync(mirror: Mirror) -> None:
    records = {path: record for path, record in mirror.records.items() if path != "/p0"}
    records |= {"/new": RouteRecord(frozenset({B})), "/p199": RouteRecord(frozenset({A, B}))}
    run(mirror.replace(records, {}))


@pytest.mark.parametrize("change", [_update, _resync])
def test_what_changes_meanwhile_is_neither_lost_nor_left_behind(
    mirror: Mirror, change: Callable[[Mirror], None]
) -> None:
    steps = mirror.reconfigure(settings(4).route_settings)
    next(steps)
    change(mirror)
    run(steps)
    assert retries(mirror) == {4}
    assert "/p0" not in mirror.table.routes
    assert [live.member for live in mirror.table.routes["/new"].members] == [B]
    assert [live.member for live in mirror.table.routes["/p199"].members] == [A, B]


def test_a_full_sync_that_began_before_ends_with_the_new_settings(mirror: Mirror) -> None:
    sync = mirror.replace(dict(mirror.records), {})
    next(sync)
    run(mirror.reconfigure(settings(4).route_settings))
    run(sync)
    assert retries(mirror) == {4}


def test_an_upstream_that_is_ejected_meanwhile_serves_no_route_afterwards(mirror: Mirror) -> None:
    mirror.update({"/p0": RouteRecord(frozenset({A, B}))}, {})
    steps = mirror.reconfigure(settings(4).route_settings)
    next(steps)
    live = mirror.upstream(A)
    assert live is not None
    live.available = False
    mirror.refresh([A])
    run(steps)
    assert [each.member for each in mirror.table.routes["/p0"].serving] == [B]


def test_before_the_first_table_the_settings_wait_for_it() -> None:
    mirror = Mirror(settings(1).route_settings, Random(1))
    run(mirror.reconfigure(settings(4).route_settings))
    assert not mirror.ready
    mirror.update({"/p": RouteRecord(frozenset({A}))}, {})
    assert retries(mirror) == {4}


def test_a_policy_that_new_settings_made_while_its_members_were_read_goes_on(mirror: Mirror) -> None:
    many = frozenset(f"10.0.1.{number}:80" for number in range(120))
    steps = mirror.updating({"/p0": RouteRecord(many)}, {})
    next(steps)
    run(mirror.reconfigure(Settings.model_validate({"defaults": {"policy": "p2c"}}).route_settings))
    made = mirror.table.routes["/p0"].policy
    run(steps)
    assert len(mirror.table.routes["/p0"].members) == 120
    assert mirror.table.routes["/p0"].policy is made
