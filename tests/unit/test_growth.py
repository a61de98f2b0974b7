"""What strangers may repeat, each kind of it: twice as much takes about twice the steps, counted in bytecodes of
Python. What patterns do within one of these is counted in `test_patterns`."""

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_network
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from slb.api.bodies import body_of, parsed, registrations
from slb.api.quota_bodies import ScheduleBody
from slb.api.shortcut import Shortcut
from slb.balance.hash_key import cookie
from slb.dns import wire
from slb.errors import InvalidName, Refused
from slb.names import normal_member, normal_path, seconds
from slb.proxy.choice import key_of
from slb.proxy.headers import Forwarding, RequestHead, RequestHeads
from slb.proxy.peer import Peer
from slb.proxy.proxy_protocol import MalformedHeader, missing, parse
from slb.proxy.reader import without_empty_lines
from slb.proxy.request import Request
from slb.proxy.target import judge_for_api, parse_line
from slb.proxy.trace_context import is_tracestate
from slb.proxy.varying import VaryingHeads
from slb.routing.forwarded import forwarded
from slb.upstreams.body import ChunkedBody, MalformedBody, last_chunk
from slb.upstreams.fields import FIELDS, connection_tokens, field_value, fields_of
from slb.upstreams.replies import MalformedReply, parse_reply

GROWTH = 2.5
Run = Callable[[int], Any]
"""Reads something that stands there so many times."""


def steps(run: Run, times: int) -> int:
    """Bytecodes that `run(times)` takes. It may refuse. The garbage collector waits: what it calls (finalizers,
    callbacks) would be counted with the run it falls into."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += 1
        return trace

    FIELDS.clear()  # lines are remembered, and the first time is what counts
    FIELDS._names.clear()
    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        with suppress(Refused, InvalidName, MalformedBody, MalformedHeader, MalformedReply):
            run(times)
    finally:
        sys.settrace(before)
        gc.enable()
    return counted


def head_of(block: bytes, trusted: bool = True) -> RequestHead:
    return RequestHeads(b"1.1 me", 1_000_000, trusted).parse(b"Host: h\r\n" + block + b"\r\n")


def varied(block: bytes) -> RequestHead:
    return VaryingHeads(RequestHeads(b"1.1 me", 1_000_000, True).parse, 1_000_000).parse(block + b"\r\n")


def peer() -> Peer:
    transport = SimpleNamespace(get_extra_info=lambda name: ("10.0.0.1", 1) if name == "peername" else None)
    return Peer(cast("Any", transport), (ip_network("10.0.0.0/8"),))


def client_of(hops: bytes) -> str:
    head = RequestHead()
    head.forwarding = Forwarding(hops, False, False, False)
    return peer().client(head)


def key(hash_key: str, line: bytes, block: bytes) -> bytes:
    nothing: Any = None
    return key_of(hash_key)(Request(parse_line(line), head_of(block), nothing, nothing, b""))


def fed(data: bytes, size: int) -> bytes:
    body = ChunkedBody()
    payload = b""
    for at in range(0, len(data), size):
        payload = body.feed(data[at : at + size])
        while body.has_more:
            payload = body.feed(b"")
    return payload


def dripping(start: bytes, byte: bytes, times: int) -> None:
    header = start
    for _ in range(times):
        header += byte
        missing(header)


SHORT = Shortcut(
    {"/schedule": cast("Any", None)},
    lambda: cast("Any", SimpleNamespace(api_token=None, tokens={})),
    print,
    {"/schedule": ("quota",)},
)

RUNS: dict[str, Run] = {
    "field lines": lambda n: head_of(b"a: b\r\n" * n),
    "field lines that are all different": lambda n: head_of(b"".join(b"a%d: b\r\n" % each for each in range(n))),
    "blanks in a value": lambda n: fields_of([b"a:" + b" \t" * n + b"b"]),
    "Connection tokens": lambda n: head_of(b"Connection: " + b"a," * n + b"\r\n"),
    "different Connection tokens": lambda n: connection_tokens(fields_of([b"Connection: " + names(n)])),
    "Connection lines": lambda n: head_of(b"Connection: close\r\n" * n),
    "members of a tracestate": lambda n: is_tracestate([b"a=b," * n]),
    "tracestate lines": lambda n: is_tracestate([b"a=b"] * n),
    "dot segments that are resolved": lambda n: forwarded("/p" + "/a/.." * n, "/p", False),
    "slashes before a route's end": lambda n: forwarded("/" * n + "p", "/p", True),
    "TE": lambda n: head_of(b"TE: " + b"a, b," * n + b"\r\n"),
    "Via": lambda n: head_of(b"Via: 1.1 me, 1.1 m\r\n" * n),
    "X-Forwarded-For lines": lambda n: head_of(b"X-Forwarded-For: 10.0.0.1\r\n" * n),
    "X-Forwarded-For": lambda n: client_of(b"10.0.0.1, " * n + b"10.0.0.2"),
    "Upgrade": lambda n: head_of(b"Connection: upgrade\r\nUpgrade: a\r\n" * n),
    "lines that vary": lambda n: varied(b"Host: h\r\n" + b"X-Request-Id: a\r\n" * n),
    "lines that nearly vary": lambda n: varied(b"Host: h\r\n" + b"traceparent: 00-\r\n" * n),
    "a field by name": lambda n: field_value(b"x-a : b\r\n" * n, "x-a"),
    "cookies": lambda n: cookie("a=b; " * n, "c"),
    "cookie lines": lambda n: key("cookie:c", b"GET / HTTP/1.1\r\n", b"Cookie: a=b\r\n" * n),
    "a cookie's name": lambda n: cookie("c" * n + "; c" * n + ";" * n, "c"),
    "query parameters": lambda n: key("query:a", b"GET /?%b HTTP/1.1\r\n" % (b"%41=+&" * n), b""),
    "empty query parameters": lambda n: key("query:a", b"GET /?%b HTTP/1.1\r\n" % (b"&" * n), b""),
    "segments": lambda n: parse_line(b"GET %b HTTP/1.1\r\n" % (b"/a" * n)),
    "slashes": lambda n: normal_path("/" * n + "%41"),
    "dot segments": lambda n: normal_path("/a/%2e./." * n),
    "dot segments that climb": lambda n: normal_path("/a" * n + "/.." * (n + 1)),
    "escapes": lambda n: normal_path("/%7e%C3" * n),
    "parameters of segments": lambda n: normal_path("/..a;" * n),
    "a model's slashes": lambda n: judge_for_api(b"GET /models/%b HTTP/1.1\r\n" % (b"%2fa" * n)),
    "empty lines": lambda n: without_empty_lines(b"\r\n" * n + b"\r"),
    "digits of a length": lambda n: head_of(b"Content-Length: " + b"1" * n + b"\r\n"),
    "digits of a deadline": lambda n: head_of(b"X-Request-Timeout: " + b"1" * n + b"s\r\n"),
    "digits of a duration": lambda n: seconds("1" * n + "." + "1" * n + "s"),
    "digits of a chunk": lambda n: fed(b"0" * n + b"\r\n\r\n", n),
    "chunks": lambda n: fed(b"1\r\na\r\n" * n, 64),
    "chunks in pieces of a byte": lambda n: fed(b"1\r\na\r\n" * n, 1),
    "chunks with extensions": lambda n: fed(b'1;a="\\"";b=c\r\na\r\n' * n, 100_000),
    "extensions": lambda n: fed(b"1" + b' ; a = "b"' * n + b"\r\n", 1),
    "trailers": lambda n: fed(b"0\r\n" + b"a:\r\n" * n, 1),
    "trailers that are passed on": lambda n: last_chunk([b"a: b"] * n),
    "reply lines": lambda n: parse_reply(b"HTTP/1.1 200 OK\r\n" + b"Set-Cookie: a\r\n" * n + b"\r\n"),
    "Connection tokens of a reply": lambda n: parse_reply(
        b"HTTP/1.1 200 OK\r\nConnection: %b\r\nA: b\r\n\r\n" % names(n)
    ),
    "digits of a reply's length": lambda n: parse_reply(
        b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % (b"1" * n)
    ),
    "a PROXY header that drips": lambda n: dripping(b"PROXY TCP4 ", b" ", n),
    "words of a PROXY header": lambda n: parse(b"PROXY TCP4" + b" 1" * n + b"\r\n"),
    "lines of the short way": lambda n: SHORT.read(
        b"POST /schedule HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * n + b"\r\n", "127.0.0.1"
    ),
    "JSON depth": lambda n: parsed(b"[" * n + b"]" * n),
    "JSON digits": lambda n: parsed(b"1" * n),
    "fields of a registration": lambda n: registrations({f"f{each}": 0 for each in range(n)}),
    "registrations": lambda n: registrations([{"path": "/"} for _ in range(n)]),
    "models": lambda n: body_of(ScheduleBody, {"estimated_tokens": 1, "models": ["a/b"] * n}),
    "segments of a model": lambda n: body_of(ScheduleBody, {"estimated_tokens": 1, "models": ["a/" * n]}),
    "labels of a target": lambda n: normal_member("a." * n),
    "labels of a query": lambda n: wire.read(b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"\1a" * n + b"\0\0\1\0\1"),
    "colons of a target": lambda n: normal_member(f"[{':' * n}]"),
}


def names(count: int) -> bytes:
    return b",".join(b"a%d" % each for each in range(count))


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_twice_as_much_of_what_may_be_repeated_takes_twice_the_steps_at_most(run: Run) -> None:
    steps(run, 400)  # whatever is remembered is remembered now
    assert steps(run, 800) <= GROWTH * steps(run, 400)


def test_a_square_is_seen() -> None:
    run: Run = lambda n: [each for each in range(n) for _ in range(n)]  # noqa: E731
    assert steps(run, 200) > GROWTH * steps(run, 100)


def test_hops_beyond_any_chain_of_proxies_are_not_looked_at() -> None:
    assert steps(RUNS["X-Forwarded-For"], 5000) <= 1.1 * steps(RUNS["X-Forwarded-For"], 500)
    assert client_of(b"8.8.8.8, " + b"10.0.0.1, " * 99 + b"10.0.0.2") == "10.0.0.1"
    assert client_of(b"8.8.8.8, " + b"10.0.0.1, " * 98 + b"10.0.0.2") == "8.8.8.8"


def test_tokens_that_add_nothing_new_are_looked_at_once() -> None:
    assert steps(RUNS["Connection tokens"], 5000) <= 1.1 * steps(RUNS["Connection tokens"], 50)


def test_more_faults_than_anybody_reads_are_counted_and_not_listed() -> None:
    with pytest.raises(Refused) as refused:
        registrations({f"f{each}": 0 for each in range(100_000)})
    assert refused.value.detail == "body: 100002 faults, and only up to 1000 are listed"
    assert steps(RUNS["fields of a registration"], 50_000) <= 60 * 50_000


def test_json_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(Refused, match="not JSON"):
        parsed(b"[" * 1_000_000)
