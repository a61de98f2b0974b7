"""Which key a request has, by the route's `hash_key`."""

from ipaddress import ip_network
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from slb.model import RouteSettings, setting_fault
from slb.proxy.choice import key_of
from slb.proxy.headers import RequestHeads
from slb.proxy.peer import Peer
from slb.proxy.request import Request
from slb.proxy.target import parse_line

if TYPE_CHECKING:
    import asyncio

TRUSTED = (ip_network("10.0.0.0/8"),)


def key(hash_key: str, *lines: str, target: str = "/", peer: str = "192.0.2.9") -> bytes:
    """Of a GET with these header lines, from that address."""
    RouteSettings.model_validate({"hash_key": hash_key})
    transport: Any = SimpleNamespace(get_extra_info=lambda name: (peer, 4711) if name == "peername" else None)
    sender = Peer(cast("asyncio.Transport", transport), TRUSTED)
    block = "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"
    head = RequestHeads(b"slb-1", 100, sender.is_trusted).parse(block)
    line = parse_line(f"GET {target} HTTP/1.1\r\n".encode())
    route: Any = None  # a key does not depend on it
    return key_of(hash_key)(Request(line, head, sender, route, b""))


@pytest.mark.parametrize("target", ["/products/1", "//products/./%31", "/products/x/../1?page=2"])
def test_all_spellings_of_a_path_are_one_key_and_the_query_is_no_part_of_it(target: str) -> None:
    assert key("path", target=target) == b"/products/1"


def test_an_address_is_that_of_the_peer() -> None:
    assert key("ip", "X-Forwarded-For: 203.0.113.1") == b"192.0.2.9"


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.1", b"203.0.113.1"),
        ("203.0.113.1, 10.1.1.1", b"203.0.113.1"),
        ("198.51.100.7, 203.0.113.1 ,10.1.1.1", b"203.0.113.1"),
        ("10.2.2.2, 10.1.1.1", b"10.2.2.2"),
    ],
)
def test_behind_a_trusted_proxy_it_is_the_last_address_that_is_no_proxys(forwarded: str, client: bytes) -> None:
    assert key("ip", f"X-Forwarded-For: {forwarded}", peer="10.0.0.1") == client


def test_a_headers_name_has_no_case_and_its_value_no_white_space_around_it() -> None:
    assert key("header:X-Session", "x-session:  a b\t") == b"a b"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("Cookie: sid=7", b"7"),
        ("cookie: a=1; sid=7; b=2", b"7"),
        ("Cookie: xsid=1;sid=7", b"7"),
        ('Cookie: sid="7"', b"7"),
        ("Cookie: sid=7=8", b"7=8"),
        ("Cookie: SID=1", b""),
        ("Cookie: xsid=1; a=sid=2", b""),
    ],
)
def test_a_cookie_is_found_by_its_whole_name(line: str, value: bytes) -> None:
    assert key("cookie:sid", "X-A: sid=0", line) == value


@pytest.mark.parametrize(
    ("query", "value"),
    [("?user=7", b"7"), ("?a=1&user=7&user=8", b"7"), ("?us%65r=%37+8", b"7 8"), ("?xuser=1", b""), ("?user", b"")],
)
def test_a_name_in_a_query_is_found_however_it_is_written(query: str, value: bytes) -> None:
    assert key("query:user", target=f"/p{query}") == value


@pytest.mark.parametrize("hash_key", ["header:X-Session", "cookie:sid", "query:user"])
def test_a_request_may_have_no_such_key(hash_key: str) -> None:
    assert key(hash_key, "Host: h", target="/p") == b""


@pytest.mark.parametrize(
    "value", ["", "body", "header", "header:", "header:a b", "cookie:a;b", "query:", "ip:1", "path "]
)
def test_what_names_no_key_is_refused(value: str) -> None:
    fault = setting_fault("hash_key", value)
    assert fault is not None
    assert fault == f"hash_key = {value!r}: a key is path, ip, header:NAME, cookie:NAME or query:NAME"
