"""Who is new to the mirror, and so fades in."""

from random import Random

import pytest

from slb.config import Settings
from slb.routing.mirror import Mirror
from tests.unit.routing.mirror_rig import A, B, C, D, record, replace


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
    assert mirror.table.routes["/p"].view.fading_until == 0.0
    if whole:
        replace(mirror, {"/p": record(A, B, C)})
    else:
        mirror.update({"/p": record(A, B, C)}, {})
    route = mirror.table.routes["/p"]
    assert route.view.fading_until == 1010.0
    assert [each.member for each in route.view.deprioritized(clock.now, Random(1))] == [C]
    clock.now += 10
    assert route.view.deprioritized(clock.now, Random(1)) == ()
    assert route.view.fading_until == 0.0


def test_a_member_another_route_has_named_long_since_is_not_new() -> None:
    mirror, clock = fading(**FADES)
    replace(mirror, {"/p": record(A, B), "/q": record(C)})
    clock.now += 1
    mirror.update({"/p": record(A, B, C)}, {})
    assert mirror.table.routes["/p"].view.fading_until == 0.0


def test_a_member_that_left_and_came_back_is_new_again() -> None:
    mirror, _ = fading(**FADES)
    replace(mirror, {"/p": record(A, B)})
    mirror.update({"/p": record(A)}, {})
    mirror.update({"/p": record(A, B)}, {})
    assert mirror.table.routes["/p"].view.fading_until == 1010.0


def test_a_new_route_does_not_fade_nor_does_any_without_the_setting() -> None:
    mirror, _ = fading(routes={"/p": {"fade_in": "10s"}})
    replace(mirror, {"/q": record(A)})
    mirror.update({"/p": record(B, C), "/q": record(A, D)}, {})
    assert [mirror.table.routes[path].view.fading_until for path in ("/p", "/q")] == [0.0, 0.0]


def test_a_fading_upstream_is_judged_among_those_that_serve() -> None:
    mirror, _ = fading(**FADES)
    replace(mirror, {"/p": record(A, B)})
    mirror.update({"/p": record(A, B, C, D)}, {})
    route = mirror.table.routes["/p"]
    for member in (C, D):
        mirror.upstreams[member].available = False
    mirror.refresh([C, D])
    assert (route.serving, route.view.fading_until) == (route.upstreams[:2], 0.0)
    mirror.upstreams[C].available = True
    mirror.refresh([C])
    assert route.view.fading_until == 1010.0


def test_a_fade_in_set_while_one_is_new_holds_from_when_it_came() -> None:
    mirror, clock = fading()
    replace(mirror, {"/p": record(A, B)})
    mirror.update({"/p": record(A, B, C)}, {})
    clock.now += 3
    mirror.update({"/p": record(A, B, C, fade_in="5s")}, {})
    assert mirror.table.routes["/p"].view.fading_until == 1005.0
