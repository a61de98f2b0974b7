"""Headers that upstreams trust, from clients that are not trusted."""

import pytest

from slb.loading import load_settings
from tests.proxy.harness import MakeProxy, Origin, Proxy

LISTED = load_settings({}, {}).untrusted_headers
SPELLINGS = [
    *LISTED,
    *(name.lower() for name in LISTED),
    *(name.upper() for name in LISTED),
    *(name.replace("-", "_") for name in LISTED if "-" in name),
    "X-Original_URL",
    "X.Client.IP",
    "x!original~url",
    "CF^Connecting-IP",
    "PROXY",
]


async def seen_of(proxy: Proxy, origin: Origin, *lines: str) -> list[str]:
    """The lines of the request that are not slb's own, as the upstream sees them."""
    wire = await proxy.connect()
    for _ in range(3):
        head = "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", "Host: h", *lines, ""))
        await wire.send(head.encode())
        assert (await wire.reply()).status == 200
    first, second, third = ([f"{name}: {value}" for name, value in each.headers] for each in origin.requests[-3:])
    assert [line for line in first if line in lines] == [line for line in third if line in lines]
    assert [line for line in second if line in lines] == [line for line in third if line in lines]
    return [
        line
        for line in third
        if line.partition(":")[0].lower() in {each.partition(":")[0].lower() for each in lines}
    ]


def test_those_that_are_known_to_be_believed_are_listed() -> None:
    assert set(LISTED) == {
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Forwarded",
        "Proxy",
        "Client-IP",
        "X-Cluster-Client-IP",
        "Fastly-Client-IP",
        "X-ProxyUser-IP",
        "X-Envoy-External-Address",
        "X-Original-Host",
        "X-Original-Forwarded-For",
    }


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_stranger_cannot_send_headers_that_upstreams_trust(proxy: Proxy, origin: Origin, name: str) -> None:
    assert await seen_of(proxy, origin, "A: 1", f"{name}: /admin", "B: 2") == ["A: 1", "B: 2"]


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_trusted_proxy_may(proxies: MakeProxy, origin: Origin, name: str) -> None:
    proxy = await proxies(trusted_proxies="127.0.0.0/8")
    proxy.route("/", origin)
    lines = ["A: 1", f"{name}: /admin", "B: 2"]
    assert await seen_of(proxy, origin, *lines) == lines


@pytest.mark.parametrize(
    "name", ["X-Original-Hosts", "X-Original", "X.Forward", "X-Forward", "X-Proxy", "Proxys", "XOriginalURL"]
)
async def test_what_is_not_listed_passes(proxy: Proxy, origin: Origin, name: str) -> None:
    assert await seen_of(proxy, origin, f"{name}: 1") == [f"{name}: 1"]


async def test_the_list_is_a_setting_that_holds_for_connections_that_come_later(
    proxies: MakeProxy, origin: Origin
) -> None:
    """And nothing that was remembered under another list goes on."""
    proxy = await proxies(untrusted_headers="X-Mine, x_other")
    proxy.route("/", origin)
    lines = ["X-Mine: 1", "x-mine: 1", "X_MINE: 1", "X-Other: 1", "Proxy: 1"]
    assert await seen_of(proxy, origin, *lines) == ["Proxy: 1"]
    old = await proxy.connect()
    assert (await old.get("/")).status == 200
    proxy.server.reconfigure(load_settings({"untrusted_headers": ""}, {}))
    assert await seen_of(proxy, origin, *lines) == lines
    assert (await old.get("/", X_Mine="1")).status == 200
    assert origin.requests[-1].one("X-Mine") is None
    proxy.server.reconfigure(proxy.settings)
    assert await seen_of(proxy, origin, *lines) == ["Proxy: 1"]


async def test_two_instances_of_one_process_have_each_its_own_list(proxies: MakeProxy, origin: Origin) -> None:
    one, other = await proxies(untrusted_headers="X-One"), await proxies(untrusted_headers="X-Other")
    for each in (one, other):
        each.route("/", origin)
    lines = ["X-One: 1", "X-Other: 1"]
    for _ in range(2):
        assert await seen_of(one, origin, *lines) == ["X-Other: 1"]
        assert await seen_of(other, origin, *lines) == ["X-One: 1"]


async def test_a_reply_may_have_them(proxies: MakeProxy, origin: Origin) -> None:
    async def reply(request: object) -> None:
        await origin.requests[-1].wire.send(b"HTTP/1.1 200 OK\r\nX-Original-URL: /\r\nContent-Length: 0\r\n\r\n")

    origin.handle = reply
    proxy = await proxies()
    proxy.route("/", origin)
    assert (await proxy.get("/")).one("X-Original-URL") == "/"
