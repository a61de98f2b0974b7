"""No spelling of a path reaches what its route does not expose, by the reading of the servers that serve it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, unquote

import pytest
import pytest_asyncio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slb.names import normal_path
from slb.proxy.target import parse_line
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Wire
from tests.proxy.real_servers import SHOW, RealServer, python_servers, tomcat

SERVERS = ("uvicorn on h11", "uvicorn on httptools", "aiohttp", "tomcat")


@pytest.fixture(scope="session")
def in_python() -> Iterator[Mapping[str, RealServer]]:
    with python_servers() as servers:
        yield {server.name: server for server in servers}


@pytest.fixture(scope="session")
def in_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, RealServer]]:
    with tomcat(tmp_path_factory.mktemp("tomcat")) as server:
        yield {server.name: server}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> RealServer:
    return found(request, request.param)


def found(request: pytest.FixtureRequest, name: str) -> RealServer:
    """The server of this name, started where it was not asked for before."""
    servers: Mapping[str, RealServer] = request.getfixturevalue("in_java" if name == "tomcat" else "in_python")
    return servers[name]


def owner(path: bytes, routes: Iterable[str]) -> str | None:
    """The longest of `routes` that `path`, as a server has read it, is under."""
    under = [each for each in routes if path == each.encode() or path.startswith(each.rstrip("/").encode() + b"/")]
    return max(under, key=len, default=None)


@pytest.mark.parametrize(
    ("name", "target", "handler"),
    [
        *((name, "/admin/../p1/x.txt", b"/admin") for name in SERVERS[:3]),
        *((name, "/admin/%2e%2e/p1/x.txt", b"/admin") for name in SERVERS[:3]),
        *((name, "//p1/x.txt", b"") for name in SERVERS[:3]),
        ("tomcat", "/p1/;/../admin/x.txt", b"/admin"),
        ("tomcat", "/p1/;a=b/%2e%2e/admin/x.txt", b"/admin"),
        ("tomcat", "/p1/..;/admin/x.txt", b"/admin"),
        ("tomcat", "/p1/;/secret/x.txt", b"/p1/secret"),
        ("tomcat", "/p1/secret;a=b/x.txt", b"/p1/secret"),
    ],
)
async def test_servers_differ_in_what_they_read(
    request: pytest.FixtureRequest, name: str, target: str, handler: bytes
) -> None:
    """Asked directly: what the tests below are about."""
    server = found(request, name)
    wire = Wire(*await asyncio.open_connection("127.0.0.1", server.port))
    assert (await wire.get(target)).body == handler
    wire.close()


BESIDE = [
    "/admin/../p1/x.txt",
    "/admin/%2e%2e/p1/x.txt",
    "/admin/.%2E/p1/x.txt",
    "/admin/x.txt/../../p1/x.txt",
    "/admin//../p1/x.txt",
    "/p1/;/../admin/x.txt",
    "/p1/;a=b/%2e%2e/admin/x.txt",
    "/p1/;/%2E./;/../admin/x.txt",
    "/p1/..;/admin/x.txt",
    "/p1/..;a=b/admin/x.txt",
    "/p1/%2e%2e;/admin/x.txt",
    "/p1/..%3b/admin/x.txt",
    "/p1/%2e%2e%3b/admin/x.txt",
    "/p1/.;/../admin/x.txt",
    "/p1/.;/..;/admin/x.txt",
    "/p1/../admin/x.txt",
    "/p1/x/../../admin/x.txt",
    "/p1//../admin/x.txt",
    "/p1//../../admin/x.txt",
    "/p1/%252e%252e/admin/x.txt",
    "/p1/..%2fadmin/x.txt",
    "/p1/..%5cadmin/x.txt",
    "/p1/..\\admin/x.txt",
    "/admin;/../p1/x.txt",
    "/admin/..;/p1/x.txt",
    "//admin/../p1/x.txt",
    "/./admin/../p1/x.txt",
    "//p1/x.txt",
    "/p1;/../admin/x.txt",
    "http://h/admin/../p1/x.txt",
    "http://h/p1/;/../admin/x.txt",
]


@pytest.mark.parametrize("target", BESIDE)
async def test_no_spelling_leads_from_a_route_to_what_stands_beside_it(
    proxies: MakeProxy, server: RealServer, target: str
) -> None:
    proxy = await proxies()
    proxy.route("/p1", server.member)
    assert (await proxy.get(target)).body not in (b"/admin", b"")
    reading = server.reading(await proxy.get(target, **SHOW))
    assert reading is None or owner(reading, ["/p1"]) == "/p1"


BENEATH = [
    "/p1/secret/x.txt",
    "/p1/;/secret/x.txt",
    "/p1;/secret/x.txt",
    "/p1;a=b/;/secret/x.txt",
    "/p1/secret;/x.txt",
    "/p1/secret;a=b/x.txt",
    "/p1/;a=b/./secret;c/x.txt",
    "/p1//secret/x.txt",
    "/p1/secret;/../secret/x.txt",
    "/p1/x/../secret/x.txt",
    "/p1/%73ecret/x.txt",
    "/p1/%3b/../secret/x.txt",
]


@pytest.mark.parametrize("target", BENEATH)
async def test_no_spelling_leads_past_a_longer_route_to_what_it_hides(
    proxies: MakeProxy, origins: MakeOrigin, server: RealServer, target: str
) -> None:
    """`/p1/secret` is served elsewhere; this server has one too, which no route exposes."""
    proxy = await proxies()
    proxy.route("/p1", server.member)
    proxy.route("/p1/secret", await origins())
    assert (await proxy.get(target)).body != b"/p1/secret"
    reading = server.reading(await proxy.get(target, **SHOW))
    assert reading is None or owner(reading, ["/p1", "/p1/secret"]) == "/p1"


async def test_parameters_that_change_no_route_go_on(proxies: MakeProxy, server: RealServer) -> None:
    proxy = await proxies()
    proxy.route("/p1", server.member)
    reply = await proxy.get("/p1/x.txt;jsessionid=1A", **SHOW)
    assert server.reading(reply) == (b"/p1/x.txt;jsessionid=1A" if server.is_literal else b"/p1/x.txt")


@pytest_asyncio.fixture
async def front(proxies: MakeProxy, origins: MakeOrigin) -> tuple[Proxy, Origin]:
    return await proxies(), await origins()


OFTEN = ("p1", "secret", "admin", "x", "", "..", ";")
SELDOM = (
    *(
        ".",
        ";a=b",
        "%2e",
        "%2E%2e",
        ".%2e",
        "%2e.",
        "..;",
        ".;",
        "..;a=b",
        ";..",
        "%2e%2e;",
        "%3b",
        "%3B..",
        "..%3b",
    ),
    *("p1;", "p1;a", "secret;", "secret%3ba;b", "admin;..", "%252e%252e", "%70%31", "se%63ret", "%61dmin", "..."),
    *("a:b", "%20", "%09", "%C3%A9", "x%3b"),
)
SEGMENTS = st.one_of(st.sampled_from(OFTEN), st.sampled_from(OFTEN), st.sampled_from(SELDOM))
PATHS = st.lists(
    st.tuples(
        st.sampled_from(["", "http://h"]),
        st.lists(SEGMENTS, min_size=1, max_size=7).map("/".join),
        st.sampled_from(["", "?", "?a=/../b"]),
    ).map(lambda parts: f"{parts[0]}/{parts[1]}{parts[2]}"),
    min_size=20,
    max_size=20,
)
HERE, ELSEWHERE = True, False
TABLES: list[dict[str, bool]] = [
    {"/p1": HERE},
    {"/p1/secret": HERE},
    {"/p1": HERE, "/p1/secret": ELSEWHERE},
    {"/p1": ELSEWHERE, "/p1/secret": HERE},
    {"/": HERE, "/admin": ELSEWHERE, "/p1/secret%3Ba": ELSEWHERE},
]


@settings(max_examples=40, phases=(Phase.generate,))  # what fails here is plain enough as it is
@given(PATHS, st.sampled_from(TABLES), st.booleans())
async def test_whatever_a_path_is_made_of_it_is_read_as_it_was_matched(
    front: tuple[Proxy, Origin], server: RealServer, paths: list[str], table: dict[str, bool], strip: bool
) -> None:
    proxy, other = front
    proxy.mirror.update(dict.fromkeys(proxy.mirror.table.routes), {})
    for path, here in table.items():
        proxy.route(path, server.member if here else other, strip_prefix=str(strip).lower())
    for path in paths:
        reading = server.reading(await proxy.get(path, **SHOW))
        if reading is None:
            continue
        route = proxy.logged()[-1]["route"]
        whole = (route.encode() if strip and route != "/" else b"") + reading
        assert not {b".", b".."} & set(reading.split(b"/"))
        assert owner(whole, [unquote(each) for each in table]) == route
        if server.is_literal or ";" not in path:
            matched = parse_line(f"GET {path} HTTP/1.1\r\n".encode()).normal
            assert normal_path(quote(whole), encoded_controls=True) == matched
