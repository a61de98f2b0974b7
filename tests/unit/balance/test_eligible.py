"""Which upstreams of a route may take a request at all."""

import pytest

from slb.balance.eligible import condition, may_eject_one_more, served, takes_requests, untried
from slb.balance.upstream import LiveUpstream
from slb.model import HealthCheck, RouteSettings
from tests.unit.balance.upstreams import name, upstreams

CHECKED = RouteSettings.model_validate({"health_path": "/health"})


def ejected(names: str, of: str = "abcd") -> tuple[LiveUpstream, ...]:
    found = upstreams(of)
    for live in found:
        live.available = name(live) not in names
    return found


def serving(found: tuple[LiveUpstream, ...], settings: RouteSettings) -> tuple[str, bool]:
    taken, ill = served(found, settings)
    assert all(live.available is (live not in ill) for live in taken if settings.eject_after)
    return "".join(map(name, taken)), bool(ill)


@pytest.mark.parametrize(
    ("stored", "takes"), [(None, True), ({}, True), ({"drain": "0"}, True), ({"drain": "1"}, False)]
)
def test_an_upstream_marked_drain_takes_nothing_new(stored: dict[str, str] | None, takes: bool) -> None:
    attributes = {} if stored is None else {"a:80": stored}
    assert takes_requests("a:80", attributes) is takes


def test_a_drain_that_cannot_be_read_is_as_if_it_were_not_there() -> None:
    assert takes_requests("a:80", {"a:80": {"drain": "perhaps"}})


def test_a_request_goes_to_no_upstream_twice() -> None:
    a, b, c = found = upstreams("abc")
    assert untried(found, (b,)) == (a, c)
    assert untried(found, ()) == found
    assert untried(found, found) == ()


@pytest.mark.parametrize(
    ("out", "threshold", "expected"),
    [
        ("", "0.5", ("abcd", False)),
        ("a", "0.5", ("bcd", False)),
        ("ab", "0.5", ("cd", False)),
        ("abc", "0.5", ("abcd", True)),
        ("abcd", "0.5", ("abcd", True)),
        ("abc", "0", ("d", False)),
        ("abcd", "0", ("", False)),
        ("a", "1", ("abcd", True)),
    ],
)
def test_those_available_serve_and_all_do_in_panic(out: str, threshold: str, expected: tuple[str, bool]) -> None:
    settings = RouteSettings.model_validate({"panic_threshold": threshold})
    assert serving(ejected(out), settings) == expected


def test_a_panic_threshold_that_is_a_whole_number_of_upstreams_but_for_rounding_is_that_number() -> None:
    """0.07 * 100 is a little more than 7."""
    found = tuple(upstreams("a" * 100))
    for live in found[7:]:
        live.available = False
    settings = RouteSettings.model_validate({"panic_threshold": "0.07"})
    assert served(found, settings) == (found[:7], frozenset())
    found[6].available = False
    assert served(found, settings) == (found, frozenset(found[6:]))


def test_a_route_that_takes_no_part_in_ejection_uses_what_others_ejected() -> None:
    assert serving(ejected("a"), RouteSettings(eject_after=0)) == ("abcd", False)


def test_only_a_route_s_own_check_takes_an_upstream_out_of_it() -> None:
    found = upstreams("abcd")
    assert CHECKED.health_check is not None
    found[0].down = frozenset({CHECKED.health_check})
    found[1].down = frozenset({HealthCheck("/other", 1.0, 1, 1, 1.0)})
    assert serving(found, CHECKED) == ("bcd", False)
    assert serving(found, RouteSettings()) == ("abcd", False)


@pytest.mark.parametrize(
    ("out", "share", "may"),
    [("", 0.5, True), ("a", 0.5, True), ("ab", 0.5, False), ("", 0.2, False), ("abc", 1, True)],
)
def test_no_more_than_a_share_is_ejected_at_a_time(out: str, share: float, may: bool) -> None:
    assert may_eject_one_more(ejected(out), share) is may


def test_a_share_that_is_a_whole_number_of_upstreams_but_for_rounding_is_that_number() -> None:
    found = tuple(upstreams("a" * 100))
    for live in found[:6]:
        live.available = False
    assert may_eject_one_more(found, 0.07)


def test_an_upstream_is_up_once_it_has_answered_and_unknown_until_then() -> None:
    (live,) = upstreams("a")
    settings = RouteSettings()
    found = [condition(live, settings)]
    live.answered_at = 1.0
    found.append(condition(live, settings))
    live.failures = 1
    found.append(condition(live, settings))
    live.available = False
    found.append(condition(live, settings))
    assert found == ["unchecked", "up", "failing", "ejected"]


def test_a_check_that_passes_makes_an_upstream_up_for_the_routes_that_have_it() -> None:
    (live,) = upstreams("a")
    check = CHECKED.health_check
    assert check is not None
    live.passing = frozenset({check})
    assert (condition(live, CHECKED), condition(live, RouteSettings())) == ("up", "unchecked")
    live.passing, live.down = frozenset(), frozenset({check})
    assert (condition(live, CHECKED), condition(live, RouteSettings())) == ("down", "unchecked")
