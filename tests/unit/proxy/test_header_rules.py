"""Which heads are read, with what body and host, and which are refused."""

import contextlib
import tracemalloc

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, Refused
from slb.proxy.headers import RequestHeads
from slb.upstreams.body import CHUNKED
from slb.upstreams.fields import fields_of
from tests.unit.proxy.test_headers import head, passed_on, refusal


@pytest.mark.parametrize(
    ("lines", "length", "framed"),
    [
        ([], 0, False),
        (["Content-Length: 0"], 0, True),
        (["Content-Length: 12"], 12, True),
        (["Content-Length: 0012 "], 12, True),
        (["Transfer-Encoding: chunked"], CHUNKED, True),
        (["transfer-encoding: Chunked "], CHUNKED, True),
    ],
)
def test_a_request_states_how_long_its_body_is(lines: list[str], length: int, framed: bool) -> None:
    assert (head(*lines).length, head(*lines).framed) == (length, framed)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "content-length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length:"],
        ["Content-Length: +5"],
        ["Content-Length: -5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5 5"],
        ["Content-Length: " + "9" * 19],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "transfer-encoding: identity"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding:"],
        ['Transfer-Encoding: "chunked"'],
        ["Transfer-Encoding:\x0bchunked"],
        ["Transfer-Encoding : chunked"],
    ],
)
def test_a_body_that_could_end_in_two_places_is_refused(lines: list[str]) -> None:
    assert refusal(*lines).reason is BAD_REQUEST


def test_a_chunked_request_is_announced_as_chunked_and_nothing_else() -> None:
    assert passed_on("X: y", "transfer-encoding:  CHUNKED") == ["X: y", "Transfer-Encoding: chunked"]


@pytest.mark.parametrize(
    "line",
    [
        "X : y",
        ": y",
        "X",
        "X: a\rb",
        "X: a\nb",
        "X: a\x00b",
        "X: a\x01b",
        "X: a\x7fb",
        "X: a\r\n folded",
        "X\xe9: y",
    ],
)
def test_a_field_that_breaks_the_grammar_is_refused(line: str) -> None:
    assert refusal("A: b", line, "C: d").reason is BAD_REQUEST


def test_nothing_may_stand_behind_the_empty_line() -> None:
    assert refusal("A: b", "", "C: d").reason is BAD_REQUEST


@pytest.mark.parametrize("count", [3, 4])
def test_more_fields_than_allowed_are_refused_by_that_name(count: int) -> None:
    lines = [f"X-{number % 2}: y" for number in range(count)]
    if count == 3:
        assert head(*lines, max_headers=3).length == 0
    else:
        assert refusal(*lines, max_headers=3).reason is HEADERS_TOO_LARGE


@pytest.mark.parametrize("value", ["h", "h:80", "[::1]", "[::1]:80", "192.0.2.4:8080", "", "h:", "a_b.c~d"])
def test_a_host_is_a_host_with_or_without_port(value: str) -> None:
    assert head(f"Host: {value} ").host == value.encode()


@pytest.mark.parametrize("value", ["h h", "h/x", "u@h", "h:x", "[h]", "[::1", "h,i:80:80", "\xe9", "h\\x", "h?x"])
def test_a_host_that_is_none_is_refused(value: str) -> None:
    assert refusal(f"Host: {value}").reason is BAD_REQUEST


def test_a_second_host_is_refused_even_where_it_is_the_same() -> None:
    assert refusal("Host: h", "host: h").reason is BAD_REQUEST


def test_an_absent_host_is_not_an_empty_one() -> None:
    assert (head("X: y").host, head("Host:").host) == (None, b"")


def test_100_continue_is_the_only_expectation() -> None:
    assert passed_on("Expect: 100-Continue") == ["Expect: 100-Continue"]
    assert refusal("Expect: 200-ok").reason is BAD_REQUEST


_NAMES = st.sampled_from(
    [b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"X-A", b"x-a", b"Via", b"A B", b"", b"X\x00"]
)
_VALUES = st.one_of(
    st.sampled_from(
        [b"h", b"5", b"chunked", b"close", b"+1", b"", b" spaced ", b"a\rb", b"a\nb", b"a\x00b", b"\xff", b"\t"]
    ),
    st.binary(max_size=8),
)
_LINES = st.lists(st.tuples(_NAMES, st.sampled_from([b":", b": ", b" :", b""]), _VALUES).map(b"".join), max_size=6)


@given(_LINES)
def test_what_is_accepted_llhttp_accepts_and_reads_alike(lines: list[bytes]) -> None:
    """A second opinion by a parser of other people's: never is ours the laxer one."""
    block = b"".join(line + b"\r\n" for line in [b"Host: h", *lines]) + b"\r\n"
    try:
        head = RequestHeads(b"slb-test", 100, trusted=False).parse(block)
    except Refused:
        return
    seen: list[tuple[bytes, bytes]] = []

    class Collector:
        def on_header(self, name: bytes, value: bytes) -> None:
            seen.append((name.lower(), value.strip(b" \t")))

    with contextlib.suppress(httptools.HttpParserUpgrade):
        httptools.HttpRequestParser(Collector()).feed_data(b"POST / HTTP/1.1\r\n" + block)
    assert [(name, value) for _, value, name in fields_of(block.split(b"\r\n")[:-2])] == seen
    assert (head.length > 0) == any(name == b"content-length" and int(value) > 0 for name, value in seen)


@pytest.mark.parametrize("line", [b"%d%b: v", b"Host: %d%b"], ids=["names", "hosts"])
def test_what_is_remembered_of_long_fields_does_not_fill_the_memory(line: bytes) -> None:
    heads = RequestHeads(b"own", 100, trusted=False)
    tracemalloc.start()
    try:
        for number in range(1000):
            heads.parse(line % (number, b"n" * 60_000) + b"\r\n\r\n")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20
