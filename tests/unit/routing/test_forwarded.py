"""What of a path goes on, spelling by spelling, and what holds for all of them."""

import sys
from random import Random
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.errors import InvalidName
from slb.model import RouteRecord, RouteSettings
from slb.names import normal_path
from slb.routing.forwarded import forwarded, route_of
from slb.routing.mirror import Mirror
from slb.routing.table import Table


@pytest.mark.parametrize(
    ("written", "route", "kept", "stripped"),
    [
        ("/", "/", "/", "/"),
        ("/x/", "/", "/x/", "/x/"),
        ("*", "/", "*", "*"),
        ("/p1", "/p1", "/p1", "/"),
        ("/p1/", "/p1", "/p1/", "/"),
        ("/p1/a%7Eb/%3a:", "/p1", "/p1/a%7Eb/%3a:", "/a%7Eb/%3a:"),
        ("/%70%31/x", "/p1", "/%70%31/x", "/x"),
        ("/a:b/x", "/a%3Ab", "/a:b/x", "/x"),
        ("/p1/a//b//", "/p1", "/p1/a//b//", "/a//b//"),
        ("/p1//host/x", "/p1", "/p1//host/x", "/host/x"),
        ("//p1/x", "/p1", "/p1/x", "/x"),
        ("///x//y", "/", "/x//y", "/x//y"),
        ("//", "/", "/", "/"),
        ("/a///p1//x", "/a/p1", "/a/p1//x", "/x"),
        ("/.", "/", "/", "/"),
        ("/p1/.", "/p1", "/p1/", "/"),
        ("/p1/x/..", "/p1", "/p1/", "/"),
        ("/p1/x/../", "/p1", "/p1/", "/"),
        ("/p1/x/.//../y", "/p1", "/p1/y", "/y"),
        ("/p1/..", "/", "/", "/"),
        ("/p1//../x", "/", "/x", "/x"),
        ("/admin/../p1/x", "/p1", "/p1/x", "/x"),
        ("/admin/%2e%2E/p1/%78", "/p1", "/p1/%78", "/%78"),
        ("/admin/.%2e/p1/x//y", "/p1", "/p1/x/y", "/x/y"),
        ("/p1/;a=b/%2e%2e/admin", "/p1", "/p1/admin", "/admin"),
        ("/p1/;a=b/x;", "/p1", "/p1/;a=b/x;", "/;a=b/x;"),
        ("/p1/%252e%252e/x", "/p1", "/p1/%252e%252e/x", "/%252e%252e/x"),
        ("/p1/.../..x/.x", "/p1", "/p1/.../..x/.x", "/.../..x/.x"),
    ],
)
def test_the_segments_that_remain_go_on_as_they_were_written(
    written: str, route: str, kept: str, stripped: str
) -> None:
    assert (forwarded(written, route, False), forwarded(written, route, True)) == (kept, stripped)


PATHS = st.lists(
    st.sampled_from(["p1", "%701", "a", "a:b", "", "", ".", "..", "%2e", "%2E.", ";", "a;b", "%3bc", "..a", "~"]),
    max_size=9,
).map(lambda segments: "/" + "/".join(segments))
DOTS = {".", ".."}


def normal(path: str) -> str | None:
    try:
        return normal_path(path, encoded_controls=True)
    except InvalidName:
        return None


@given(PATHS, st.integers(0, 3))
def test_what_goes_on_is_what_was_matched(path: str, depth: int) -> None:
    matched = normal(path)
    if matched is None:
        return
    segments = matched.split("/")[1:]
    route = "/" + "/".join(segments[:depth])
    kept, stripped = forwarded(path, route, False), forwarded(path, route, True)
    assert normal(kept) == matched
    assert normal(stripped) == ("/" if route == matched else matched.removeprefix(route.rstrip("/")))
    assert unquote(kept).startswith(unquote(route))
    for sent in (kept, stripped):
        assert not {unquote(segment) for segment in sent.split("/")} & DOTS
        assert sent[0] == "/" != sent[1:2]
        assert set(sent.split("/")) <= set(path.split("/")) | {""}


@given(PATHS)
def test_a_path_without_empty_and_dot_segments_goes_on_to_the_byte(path: str) -> None:
    matched = normal(path)
    if matched is not None and not {unquote(segment) for segment in path.split("/")[1:]} & {"", ".", ".."}:
        assert forwarded(path, matched, False) == path


def table_of(*paths: str) -> Table:
    mirror = Mirror(lambda path, stored: RouteSettings.model_validate(stored), Random(1))
    mirror.update({path: RouteRecord(frozenset(), {}) for path in paths}, {})
    return mirror.table


def is_clear(path: str, *routes: str) -> bool:
    table, normal = table_of(*routes), normal_path(path)
    try:
        assert route_of(table, path, normal) is table.match(normal) is not None
    except InvalidName:
        return False
    return True


@pytest.mark.parametrize(
    ("path", "routes"),
    [
        ("/p1/;/secret", ["/p1", "/p1/secret"]),
        ("/p1/secret;a=b/x", ["/p1", "/p1/secret"]),
        ("/p1/secret%3Ba=b/x", ["/p1", "/p1/secret"]),
        ("/p1/;a/;b%3Bc/secret/x", ["/p1", "/p1/secret"]),
        ("/p1/x/../;/secret", ["/p1", "/p1/secret"]),
        ("/p1;", ["/", "/p1"]),
        ("/;/p1", ["/", "/p1"]),
        ("/a%3Bb;c/x", ["/", "/a%3Bb"]),  # only to readers that look before they decode
        ("/a;b%3Bc/x;/y", ["/", "/a/x/y"]),  # only to readers that look afterwards
    ],
)
def test_parameters_that_hide_another_route_are_not_clear(path: str, routes: list[str]) -> None:
    assert not is_clear(path, *routes)


@pytest.mark.parametrize(
    ("path", "routes"),
    [
        ("/p1/x;jsessionid=1A", ["/p1"]),
        ("/p1/;/secret", ["/p1"]),
        ("/p1/;/secret", ["/p1", "/secret"]),
        ("/;a=b/", ["/", "/p1"]),
        ("/p1/secret/;/x;", ["/p1", "/p1/secret"]),
        ("/p1/;/../secret", ["/p1", "/p1/secret"]),
        ("/a;b/x;c", ["/", "/a%3Bb"]),
    ],
)
def test_parameters_that_hide_none_are_clear(path: str, routes: list[str]) -> None:
    assert is_clear(path, *routes)


@pytest.mark.parametrize("piece", ["/a/..", "/.", "/%2e", "/", "/;", "/a;b", ";", "%3B", "/a"])
def test_the_steps_grow_with_the_path_and_no_faster(piece: str) -> None:
    table = table_of("/")

    def steps(repeated: int) -> int:
        count = 0

        def trace(*_: object) -> None:
            nonlocal count
            count += 1

        path = "/p1" + piece * repeated + "/x"
        sys.setprofile(trace)
        try:
            forwarded(path, "/", True)
            route_of(table, path, "/%3B")
        finally:
            sys.setprofile(None)
        return count

    assert steps(4000) <= 2.5 * steps(2000)
