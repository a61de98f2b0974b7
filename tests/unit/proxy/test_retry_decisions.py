"""What is decided after an attempt has failed, without a proxy."""

from random import Random

import pytest

from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, UPSTREAM_RESET
from slb.model import RouteSettings
from slb.proxy.retry import NOTHING, Retries, Tried, on_fresh_connection, past_full
from slb.routing.table import Route
from tests.unit.balance.upstreams import made_policy, upstreams


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def route_of(live: tuple[LiveUpstream, ...], retries: int) -> Route:
    settings = RouteSettings.model_validate({"retries": str(retries)})
    return Route("/r", settings, live, live, made_policy("round_robin", 0))


class Scene:
    """A route with so many upstreams and retries, and no request in its past."""

    def __init__(self, names: str, retries: int) -> None:
        self.live = upstreams(names)
        self.route = route_of(self.live, retries)
        self.retries = Retries(lambda path: 0, Clock(), Random(1))

    def after(self, tried: Tried, upstream: LiveUpstream, why: str) -> Tried | None:
        return self.retries.after_failure(self.route, tried, upstream, why, f"{why} at {upstream.member}").tried


def test_a_failed_attempt_is_remembered_with_what_failed() -> None:
    scene = Scene("abc", retries=2)
    one, two, _ = scene.live
    first = scene.after(NOTHING, one, UPSTREAM_RESET.name)
    assert first == Tried((one,), frozenset({one}), (f"upstream_reset at {one.member}",))
    assert scene.after(first, two, UPSTREAM_RESET.name) == Tried(
        (one, two),
        frozenset({one, two}),
        (f"upstream_reset at {one.member}", f"upstream_reset at {two.member}"),
    )


@pytest.mark.parametrize(("names", "retries"), [("abc", 0), ("a", 3)])
def test_without_a_retry_or_another_upstream_it_ends(names: str, retries: int) -> None:
    scene = Scene(names, retries)
    decision = scene.retries.after_failure(scene.route, NOTHING, scene.live[0], UPSTREAM_RESET.name, "")
    assert (decision.tried, decision.refused) == (None, False)


def test_a_spent_budget_ends_it_but_connections_that_were_not_made_go_by_none() -> None:
    scene = Scene("ab", retries=1)
    upstream = scene.live[0]
    assert all(scene.after(NOTHING, upstream, UPSTREAM_RESET.name) is not None for _ in range(3))
    refused = scene.retries.after_failure(scene.route, NOTHING, upstream, UPSTREAM_RESET.name, "")
    assert (refused.tried, refused.refused) == (None, True)
    assert scene.after(NOTHING, upstream, UPSTREAM_CONNECT.name) is not None


@pytest.mark.parametrize(
    ("unsent", "may_repeat", "replaced", "again"),
    [
        pytest.param(True, True, True, True, id="nothing was written: as often as it takes"),
        pytest.param(True, False, False, False, id="its body is not held any more"),
        pytest.param(False, True, False, True, id="some was written: allowed once"),
        pytest.param(False, True, True, False, id="some was written: not twice"),
        pytest.param(False, False, False, False, id="some was written, and it may not be repeated"),
    ],
)
def test_when_a_request_goes_on_a_fresh_connection(
    unsent: bool, may_repeat: bool, replaced: bool, again: bool
) -> None:
    tried = on_fresh_connection(Tried(replaced=replaced), unsent, may_repeat)
    assert (tried is not None) == again
    if tried is not None:
        assert tried == Tried(replaced=replaced or not unsent)


def test_past_full_upstreams_it_goes_on_while_one_is_left_and_that_is_no_attempt() -> None:
    one, two, three = live = upstreams("abc")
    route = route_of(live, retries=0)
    tried = past_full(route, NOTHING, [one])
    assert tried == Tried(avoided=frozenset({one}))
    assert past_full(route, tried, [two]) == Tried(avoided=frozenset({one, two}))
    assert past_full(route, tried, [two, three]) is None
