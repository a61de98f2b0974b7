"""Cutting out the lines that vary changes nothing of what a head means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.errors import Refused
from slb.proxy.headers import RequestHead, RequestHeads
from slb.proxy.varying import VaryingHeads

TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

LINES = st.lists(
    st.sampled_from(
        [
            b"traceparent: " + TRACE,
            b"Traceparent:" + TRACE + b"  ",
            b"traceparent: 00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
            b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01",
            b"traceparent: " + TRACE + b"-more",
            b"traceparent: cc" + TRACE[2:] + b"-more",
            b"tracestate: a=b",
            b"tracestate: a=c",
            b"Content-Length: 5",
            b"content-length:0",
            b"Content-Length: 010",
            b"CONTENT-LENGTH: 00",
            b"Content-Length: 5, 5",
            b"Content-Length: +5",
            b"X-Request-Id: mine",
            b"x-request-id: two words",
            b"Transfer-Encoding: chunked",
            b"Connection: close",
            b"Connection: Upgrade, X-Request-Id",
            b"Upgrade: websocket",
            b"TE: trailers",
            b"X-A: b\ntraceparent: " + TRACE,
            b"X-A: b\n",
            b"X-A: b\r",
            b"X-A: \n",
            b" folded: line",
            b"User-Agent: t",
        ]
    ),
    max_size=6,
)


def meaning(head: RequestHead) -> dict[str, object]:
    """All a head means, but for the order and the spelling of the lines passed on."""
    found = {name: getattr(head, name) for name in dir(head) if not name.startswith("_") and name != "lines"}
    lines = [line.partition(b":") for line in head.fields.split(b"\r\n")]
    return {**found, "fields": sorted((name.lower(), value.strip()) for name, _, value in lines)}


@given(LINES, st.booleans())
def test_a_head_means_the_same_however_it_is_read(lines: list[bytes], trusted: bool) -> None:
    block = b"".join(line + b"\r\n" for line in [b"Host: h", *lines]) + b"\r\n"
    heads = RequestHeads(b"slb-test", 6, trusted)
    varying = VaryingHeads(heads.parse, 6)
    try:
        whole = heads.parse(block)
    except Refused:
        with pytest.raises(Refused):
            varying.parse(block)
    else:
        for _ in range(3):
            assert meaning(varying.parse(block)) == meaning(whole)


def test_what_is_shared_is_never_changed() -> None:
    varying = VaryingHeads(RequestHeads(b"slb-test", 100, trusted=False).parse, 100)
    blocks = [b"Host: h\r\nContent-Length: %d\r\n\r\n" % length for length in (1, 2, 3, 1)]
    assert [varying.parse(block).length for block in blocks] == [1, 2, 3, 1]
    assert varying.parse(b"Host: h\r\n\r\n").length == 0


def test_lines_that_vary_count_among_the_headers_there_may_be() -> None:
    varying = VaryingHeads(RequestHeads(b"slb-test", 2, trusted=False).parse, 2)
    common, trace, length = b"Host: h\r\n", b"traceparent: " + TRACE + b"\r\n", b"Content-Length: 5\r\n"
    assert varying.parse(common + trace + b"\r\n").trace
    assert varying.parse(common + length + b"\r\n").length == 5
    with pytest.raises(Refused):
        varying.parse(common + trace + length + b"\r\n")


def test_heads_that_differ_in_lines_that_vary_are_parsed_without_them_and_together_only_twice() -> None:
    parsed: list[bytes] = []
    heads = RequestHeads(b"slb-test", 100, trusted=False)

    def parse(block: bytes) -> RequestHead:
        parsed.append(block)
        return heads.parse(block)

    varying = VaryingHeads(parse, 100)
    for number in range(5):
        varying.parse(
            b"Host: h\r\nX-Request-Id: %d\r\nUser-Agent: t\r\nContent-Length: %d\r\n\r\n" % (number, number)
        )
    assert parsed == [b"Host: h\r\nUser-Agent: t\r\n\r\n"] * 2
