"""What a reply's head states of its body and its connection, and which bytes of it are passed on."""

import pytest

from slb.upstreams.body import CHUNKED, UNTIL_CLOSE
from slb.upstreams.replies import MalformedReply, ReplyHead, parse_reply


def reply(start: str, *lines: str) -> ReplyHead:
    return parse_reply("".join(f"{line}\r\n" for line in (start, *lines, "")).encode("latin-1"))


def reply_lines(start: str, *lines: str) -> list[str]:
    return reply(start, *lines).start.decode("latin-1").split("\r\n")[:-1]


@pytest.mark.parametrize(
    ("start", "lines", "length", "keep_alive"),
    [
        ("HTTP/1.1 200 OK", ["Content-Length: 5"], 5, True),
        ("HTTP/1.1 200 OK", ["Content-Length: 5", "Connection: close"], 5, False),
        ("HTTP/1.1 200 OK", ["Transfer-Encoding: chunked"], CHUNKED, True),
        ("HTTP/1.1 200 OK", [], UNTIL_CLOSE, True),
        ("HTTP/1.1 200 OK", ["Connection: close"], UNTIL_CLOSE, False),
        ("HTTP/1.1 200 OK", ["Connection: keep-alive"], UNTIL_CLOSE, True),
        ("HTTP/1.0 200 OK", [], UNTIL_CLOSE, False),
        ("HTTP/1.0 200 OK", ["Connection: close, keep-alive"], UNTIL_CLOSE, False),
        ("HTTP/1.0 200 OK", ["Content-Length: 5"], 5, False),
        ("HTTP/1.0 200 OK", ["Content-Length: 5", "Connection: Keep-Alive"], 5, True),
        ("HTTP/1.0 200 OK", ["Transfer-Encoding: chunked", "Connection: keep-alive"], CHUNKED, False),
        ("HTTP/1.1 204 No Content", [], 0, True),
        ("HTTP/1.1 304 Not Modified", ["Content-Length: 5"], 0, True),
        ("HTTP/1.1 304 Not Modified", ["Transfer-Encoding: chunked"], 0, True),
        ("HTTP/1.1 204 No Content", ["Transfer-Encoding: chunked", "Connection: close"], 0, False),
    ],
)
def test_a_reply_states_where_its_body_ends_and_whether_the_connection_goes_on(
    start: str, lines: list[str], length: int, keep_alive: bool
) -> None:
    found = reply(start, *lines)
    assert (found.length, found.keep_alive) == (length, keep_alive)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: -1"],
        ["Content-Length: " + "9" * 19],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, gzip"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: gzip"],
        ["X : y"],
        ["X: a\r\n folded"],
        ["X: a\nY: b"],
        ["X: \x00"],
    ],
)
def test_a_reply_whose_end_is_in_doubt_is_malformed(lines: list[str]) -> None:
    with pytest.raises(MalformedReply):
        reply("HTTP/1.1 200 OK", *lines)


@pytest.mark.parametrize(
    "start",
    ["HTTP/2 200 OK", "HTTP/1.2 200 OK", "HTTP/1.1 99 x", "HTTP/1.1 600 x", "HTTP/1.1  200 OK", "200 OK"],
)
def test_a_status_line_that_is_not_http_1_is_malformed(start: str) -> None:
    with pytest.raises(MalformedReply):
        reply(start, "Content-Length: 0")


def test_hop_by_hop_fields_of_a_reply_end_here_and_the_rest_is_passed_on_in_order() -> None:
    lines = [
        "Connection: keep-alive, X-Hop, set-cookie, content-type",
        "Keep-Alive: timeout=5",
        "X-Hop: 1",
        "Set-Cookie: a",
        "Set-Cookie: b",
        "Content-Type: text/plain",
        "Proxy-Authenticate: Basic",
        "Transfer-Encoding: chunked",
        "Upgrade: h2c",
        "X-Request-Id: theirs",
        "X-Forwarded-For: kept",
    ]
    assert reply_lines("HTTP/1.1 200 Fine indeed", *lines) == [
        "HTTP/1.1 200 Fine indeed",
        "Set-Cookie: a",
        "Set-Cookie: b",
        "Content-Type: text/plain",
        "X-Forwarded-For: kept",
        "Via: 1.1 slb",
    ]


@pytest.mark.parametrize("status", ["100 Continue", "103 Early Hints", "204 No Content"])
def test_a_reply_that_can_have_no_body_is_passed_on_without_a_length(status: str) -> None:
    assert reply_lines(f"HTTP/1.1 {status}", "Content-Length: 5")[1:] == ["Via: 1.1 slb"]


def test_a_304_keeps_the_length_in_its_head() -> None:
    assert "Content-Length: 5" in reply_lines("HTTP/1.1 304 Not Modified", "Content-Length: 5")


@pytest.mark.parametrize("start", ["HTTP/1.0 200", "HTTP/1.0 200 "])
def test_an_older_reply_is_passed_on_as_http_1_1_and_via_has_its_version(start: str) -> None:
    assert reply_lines(start, "A: b") == ["HTTP/1.1 200 ", "A: b", "Via: 1.0 slb"]


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [(["Retry-After: 7"], 7.0), (["retry-after:  12 "], 12.0), (["Retry-After: soon"], 0.0), (["A: b"], None)],
)
def test_when_an_upstream_asks_for_a_request_again(lines: list[str], seconds: float | None) -> None:
    head = "\r\n".join(["HTTP/1.1 503 Full", "Content-Length: 0", *lines, "", ""]).encode()
    assert parse_reply(head).retry_after(1000.0) == seconds
