"""The request line: what is taken, what is refused and by which name, and where it leads."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.errors import BAD_REQUEST, HTTP_VERSION, METHOD_NOT_ALLOWED, Reason, Refused
from slb.model import RouteRecord, RouteSettings
from slb.names import normal_path
from slb.proxy.target import RequestLines, parse_line
from slb.routing.mirror import Mirror
from tests.support.memory import kept_of


def settings_for(path: str, stored: Mapping[str, str]) -> RouteSettings:
    return RouteSettings.model_validate(stored)


def mirror_of(**routes: dict[str, str]) -> Mirror:
    """Routes by path without its slash; `root` is `/`."""
    mirror = Mirror(settings_for, Random(1))
    paths = {name: "/" if name == "root" else f"/{name}" for name in routes}
    mirror.update({paths[name]: RouteRecord(frozenset(), each) for name, each in routes.items()}, {})
    return mirror


def parts(line: bytes) -> "Parts":
    found = parse_line(line + b"\r\n")
    return found.method, found.path, found.query, found.minor, found.host


Parts = tuple[bytes, bytes, bytes, int, bytes | None]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET / HTTP/1.1", (b"GET", b"/", b"", 1, None)),
        (b"GET /a/b?c=d?e HTTP/1.0", (b"GET", b"/a/b", b"?c=d?e", 0, None)),
        (b"GET /a? HTTP/1.1", (b"GET", b"/a", b"?", 1, None)),
        (b"GET /a?b#c HTTP/1.1", (b"GET", b"/a", b"?b", 1, None)),
        (b"GET /a#b?c HTTP/1.1", (b"GET", b"/a", b"", 1, None)),
        (b"PURGE! /%7e HTTP/1.1", (b"PURGE!", b"/%7e", b"", 1, None)),
        (b"get /A HTTP/1.1", (b"get", b"/A", b"", 1, None)),
        (b"GET http://h:80/a?b HTTP/1.1", (b"GET", b"/a", b"?b", 1, b"h:80")),
        (b"GET HTTP://u:p@h/a HTTP/1.1", (b"GET", b"/a", b"", 1, b"h")),
        (b"GET https://[::1]:8443?q HTTP/1.1", (b"GET", b"/", b"?q", 1, b"[::1]:8443")),
        (b"GET http://h#f HTTP/1.1", (b"GET", b"/", b"", 1, b"h")),
        (b"OPTIONS * HTTP/1.1", (b"OPTIONS", b"*", b"", 1, None)),
        (b"OPTIONS http://h HTTP/1.1", (b"OPTIONS", b"*", b"", 1, b"h")),
        (b"OPTIONS http://h/ HTTP/1.1", (b"OPTIONS", b"/", b"", 1, b"h")),
        (b"OPTIONS http://h?q HTTP/1.1", (b"OPTIONS", b"/", b"?q", 1, b"h")),
    ],
)
def test_a_request_line_is_taken_apart(
    line: bytes, expected: tuple[bytes, bytes, bytes, int, bytes | None]
) -> None:
    assert parts(line) == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"GET / HTTP/2.0\r\n", HTTP_VERSION),
        (b"PRI * HTTP/2.0\r\n", HTTP_VERSION),
        (b"GET / HTTP/1.2\r\n", HTTP_VERSION),
        (b"GET / HTTP/0.9\r\n", HTTP_VERSION),
        (b"GET / HTTP/1.10\r\n", HTTP_VERSION),
        (b"GET / HTTP/3\r\n", HTTP_VERSION),
        (b"GET /\r\n", HTTP_VERSION),
        (b"GET /x\n", HTTP_VERSION),
        (b"GET http://h/\r\n", HTTP_VERSION),
        (b"CONNECT h:443 HTTP/1.1\r\n", METHOD_NOT_ALLOWED),
        (b"CONNECT /h HTTP/1.1\r\n", METHOD_NOT_ALLOWED),
        (b"CONNECT http://h/ HTTP/1.1\r\n", METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\n", BAD_REQUEST),
        (b"GET / http/1.1\r\n", BAD_REQUEST),
        (b"GET  / HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /  HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET\t/ HTTP/1.1\r\n", BAD_REQUEST),
        (b" GET / HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET / HTTP/1.1 \r\n", BAD_REQUEST),
        (b"GET /a b HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /?a b HTTP/1.0\r\n", BAD_REQUEST),
        (b"GET /\xc3\xa9 HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /\x00 HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /\x7f HTTP/1.1\r\n", BAD_REQUEST),
        (b"G(T / HTTP/1.1\r\n", BAD_REQUEST),
        (b"/ HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET\r\n", BAD_REQUEST),
        (b"hello\r\n", BAD_REQUEST),
        (b"GET * HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET a/b HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET ftp://h/ HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET http:///a HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET http://a@b@c/ HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET http://h\\@evil/ HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /a%2fb HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /a%5Cb HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /a%00 HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /a\\b HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /a%zz HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /../a HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /%2e%2E/a HTTP/1.1\r\n", BAD_REQUEST),
        (b"GET /a/..;/b HTTP/1.1\r\n", BAD_REQUEST),
    ],
)
def test_a_line_that_cannot_be_served_is_refused_by_its_name(line: bytes, reason: Reason) -> None:
    with pytest.raises(Refused) as caught:
        parse_line(line)
    assert caught.value.reason is reason


def test_controls_that_stay_encoded_are_the_upstreams_business() -> None:
    assert parse_line(b"GET /a%0d%0a HTTP/1.1\r\n").normal == "/a%0D%0A"


@pytest.mark.parametrize(
    ("target", "route", "forwarded"),
    [
        (b"/p1", "/p1", b"/p1"),
        (b"/p1/x?q", "/p1", b"/p1/x?q"),
        (b"/p1//x/?/../", "/p1", b"/p1//x/?/../"),
        (b"/%70%31/x", "/p1", b"/%70%31/x"),
        (b"//p1//x", "/p1", b"/p1//x"),
        (b"//x//p1", "/", b"/x//p1"),
        (b"/x/../p1?q", "/p1", b"/p1?q"),
        (b"/p1/../p2", "/", b"/p2"),
        (b"/p1x", "/", b"/p1x"),
        (b"*", "/", b"*"),
        (b"/", "/", b"/"),
        (b"/.", "/", b"/"),
        (b"/%2e?q", "/", b"/?q"),
        (b"/p1/..", "/", b"/"),
        (b"http://h/p1/x", "/p1", b"/p1/x"),
        (b"http://h//p1/./x/%2e%2e?q", "/p1", b"/p1/?q"),
    ],
)
def test_a_target_takes_the_route_of_its_normal_form_and_is_forwarded_in_the_segments_written(
    target: bytes, route: str, forwarded: bytes
) -> None:
    lines = RequestLines(mirror_of(p1={}, root={}))
    found = lines.get(b"OPTIONS %b HTTP/1.1\r\n" % target)
    assert found.route is not None
    assert (found.route.path, found.forwarded_target) == (route, forwarded)


@pytest.mark.parametrize("target", [b"/p1/;/x", b"/p1;a", b"/p1;a/x?q", b"/;/p1", b"/p1%3Ba"])
def test_a_target_that_takes_another_route_without_its_parameters_is_refused(target: bytes) -> None:
    mirror = mirror_of(p1={}, root={})
    mirror.update({"/p1/x": RouteRecord(frozenset(), {})}, {})
    lines = RequestLines(mirror)
    with pytest.raises(Refused, match="without its parameters") as caught:
        lines.get(b"GET %b HTTP/1.1\r\n" % target)
    assert caught.value.reason is BAD_REQUEST


@pytest.mark.parametrize("target", [b"/p1/x;a=b", b"/p1/;/y", b"/p1/x/;", b"/;/q", b"/q;/p1"])
def test_parameters_that_change_no_route_are_forwarded(target: bytes) -> None:
    mirror = mirror_of(p1={}, root={})
    assert RequestLines(mirror).get(b"GET %b HTTP/1.1\r\n" % target).forwarded_target == target


def test_where_no_route_takes_a_target_it_is_no_matter_what_its_parameters_hide() -> None:
    assert RequestLines(mirror_of(p1={})).get(b"GET /p1;a HTTP/1.1\r\n").route is None


@pytest.mark.parametrize(
    ("target", "forwarded"),
    [
        (b"/p1", b"/"),
        (b"/p1?q", b"/?q"),
        (b"/p1/", b"/"),
        (b"/p1/a%3ab/?q", b"/a%3ab/?q"),
        (b"/p1/./a/../b", b"/b"),
        (b"/%70%31", b"/"),
        (b"/%70%31/a/?q", b"/a/?q"),
        (b"//p1/a", b"/a"),
        (b"/x/../p1/a", b"/a"),
        (b"/p1/../p1/a", b"/a"),
        (b"/p1/a/../../p1/b?q", b"/b?q"),
        (b"/p1/%2e%2e/p1/b/", b"/b/"),
        (b"/p1//../p1/b", b"/b"),
    ],
)
def test_the_prefix_is_stripped_however_it_is_written(target: bytes, forwarded: bytes) -> None:
    lines = RequestLines(mirror_of(p1={"strip_prefix": "true"}))
    assert lines.get(b"GET %b HTTP/1.1\r\n" % target).forwarded_target == forwarded


@given(st.lists(st.sampled_from(["p1", ".", "..", "", "%2e%2e", "a", "%70"]), max_size=8).map("/".join))
def test_what_is_left_of_a_stripped_path_means_what_was_behind_the_prefix(tail: str) -> None:
    lines = RequestLines(mirror_of(p1={"strip_prefix": "true"}))
    try:
        found = lines.get(f"GET /p1/{tail} HTTP/1.1\r\n".encode())
    except Refused:
        return
    if found.route is not None:
        assert normal_path(found.forwarded_target.decode()) == (found.normal.removeprefix("/p1") or "/")


def test_the_root_has_no_prefix_to_strip() -> None:
    lines = RequestLines(mirror_of(root={"strip_prefix": "true"}))
    assert lines.get(b"GET /a/b HTTP/1.1\r\n").forwarded_target == b"/a/b"


def test_a_line_is_taken_apart_once_for_one_table_and_again_for_the_next() -> None:
    mirror = mirror_of(p1={})
    lines, line = RequestLines(mirror), b"GET /p1 HTTP/1.1\r\n"
    first = lines.get(line)
    assert lines.get(line) is first
    mirror.update({"/p1": None}, {})
    assert lines.get(line).route is None
    assert first.route is not None


@pytest.mark.parametrize("length", [10, 600])
def test_memory_for_lines_is_bounded(length: int) -> None:
    lines = RequestLines(mirror_of(root={}))
    for number in range(5000):
        lines.get(b"GET /%0*d HTTP/1.1\r\n" % (length, number))
    kept = {each for each in kept_of(lines, bytes) if each.startswith(b"GET /")}
    assert sum(map(len, kept)) <= 4096 * 512
    assert len(kept) <= (4096 if length == 10 else 0)
