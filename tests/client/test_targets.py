"""The library asks an upstream for what the proxy would ask it for, to the byte."""

from collections.abc import AsyncIterator
from itertools import product
from random import Random

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from slb.client import CallRefused, Session
from slb.client.target import parse_target
from slb.errors import Refused
from slb.model import RouteRecord, RouteSettings
from slb.proxy.target import RequestLines
from slb.routing.mirror import Mirror
from tests.proxy.harness import Origin, Proxy
from tests.support.valkey import Valkey

SPELLINGS = [
    ("/p", "/p", "/"),
    ("/p/", "/p/", "/"),
    ("/p/x?y=%7E&z=a+b%20c", "/p/x?y=%7E&z=a+b%20c", "/x?y=%7E&z=a+b%20c"),
    ("/p/a%7Eb", "/p/a%7Eb", "/a%7Eb"),
    ("/p/a%3ab:c", "/p/a%3ab:c", "/a%3ab:c"),
    ("/p/%C3%A9/%c3%a9", "/p/%C3%A9/%c3%a9", "/%C3%A9/%c3%a9"),
    ("/%70/x", "/%70/x", "/x"),
    ("/p/a//b", "/p/a//b", "/a//b"),
    ("/p//host/b", "/p//host/b", "/host/b"),
    ("//p/x", "/p/x", "/x"),
    ("/p/x/", "/p/x/", "/x/"),
    ("/p/x/..", "/p/", "/"),
    ("/p/a//../b", "/p/b", "/b"),
    ("/p/../p/%78", "/p/%78", "/%78"),
    ("/q/%2e%2e/p/x;a=b", "/p/x;a=b", "/x;a=b"),
    ("/p/%252e%252e/x", "/p/%252e%252e/x", "/%252e%252e/x"),
    ("/p/a%2Cb,c'd!e$f&g(h)*i+j=k@l", "/p/a%2Cb,c'd!e$f&g(h)*i+j=k@l", "/a%2Cb,c'd!e$f&g(h)*i+j=k@l"),
]
ODD = ["/".join(("", *segments)) for segments in product(["p", "%70", "a%7e", "", "..", "%2E", "x;y"], repeat=4)]


@pytest_asyncio.fixture
async def origin() -> AsyncIterator[Origin]:
    made = await Origin().start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[Proxy]:
    made = await Proxy().start()
    yield made
    await made.stop()


@pytest.mark.parametrize("strip", [False, True])
async def test_both_send_the_same_target_over_the_wire(
    valkey: Valkey, proxy: Proxy, origin: Origin, strip: bool
) -> None:
    valkey.admin.sadd("slb_p", origin.member)
    valkey.admin.hset("slb:route:/p", "strip_prefix", str(strip).lower())
    proxy.route("/p", origin, strip_prefix=str(strip).lower())
    odd = Random(1).sample(ODD, 200)
    async with Session(redis_url=valkey.url) as session:
        for written in [*(each[0] for each in SPELLINGS), *odd]:
            assert await asked_by_both(session, proxy, origin, written)
        for written, kept, stripped in SPELLINGS:
            origin.requests.clear()
            await asked_by_both(session, proxy, origin, written)
            assert [each.target for each in origin.requests] == [stripped if strip else kept] * 2


async def asked_by_both(session: Session, proxy: Proxy, origin: Origin, written: str) -> bool:
    """Whether both asked for the same, or neither for anything."""
    origin.requests.clear()
    reply = await proxy.get(written)
    try:
        async with session.get(written) as response:
            assert response.status == 200
    except CallRefused as refusal:
        return not origin.requests and refusal.reason.name == reply.reason
    targets = [each.target for each in origin.requests]
    return len(targets) == 2 and targets[0] == targets[1]


async def test_both_refuse_what_takes_another_route_without_its_parameters(
    valkey: Valkey, proxy: Proxy, origin: Origin
) -> None:
    for path in ("/p", "/p/x"):
        valkey.admin.sadd(f"slb_{path[1:]}", origin.member)
        proxy.route(path, origin)
    async with Session(redis_url=valkey.url) as session:
        assert await asked_by_both(session, proxy, origin, "/p/x;y")
        assert origin.requests == []
        assert await asked_by_both(session, proxy, origin, "/p/y;x")
        assert len(origin.requests) == 2


async def test_parameters_given_apart_are_added_to_what_was_written(valkey: Valkey, origin: Origin) -> None:
    valkey.admin.sadd("slb_p", origin.member)
    async with Session(redis_url=valkey.url) as session:
        assert (await session.get("/p/a%7Eb//c?x=1", params={"y": "2"})).status == 200
    assert [each.target for each in origin.requests] == ["/p/a%7Eb//c?x=1&y=2"]


PIECES = st.sampled_from([*"/////..;;pab:@,=&~", "%2e", "%2E", "%3B", "%7e", "%c3%a9", "%25", "p/"])
WRITTEN = st.tuples(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(["", "?x=%7E/../y"]))


@given(WRITTEN, st.booleans())
def test_whatever_a_path_looks_like_both_send_the_same_or_refuse_it(written: tuple[str, str], strip: bool) -> None:
    target = "/" + "".join(written)
    mirror = Mirror(lambda path, stored: RouteSettings.model_validate(stored), Random(1))
    record = RouteRecord(frozenset(), {"strip_prefix": str(strip).lower()})
    mirror.update(dict.fromkeys(["/", "/p", "/p/a"], record), {})
    try:
        line = RequestLines(mirror).get(f"GET {target} HTTP/1.1\r\n".encode())
    except Refused:
        line = None
    if line is not None:
        assert line.route is not None
        asked = parse_target(target).at("http://10.0.0.1:80", line.route.path, strip)
        assert asked == URL(f"http://10.0.0.1:80{line.forwarded_target.decode()}", encoded=True)
        assert asked.raw_path_qs.encode() == line.forwarded_target
