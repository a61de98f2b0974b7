"""OPTIONS of the server as a whole (RFC 9110, 9.3.7), end to end."""

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request


async def allow(request: Request) -> None:
    await request.body()
    await request.wire.send(b"HTTP/1.1 204 No Content\r\nAllow: GET, OPTIONS\r\n\r\n")


async def test_options_of_all_goes_to_the_root_as_it_is_and_its_answer_comes_back(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    root, deeper = await origins(allow), await origins()
    proxy.route("/deeper", deeper)
    proxy.route("/", root)
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"OPTIONS * HTTP/1.1\r\nHost: public.test\r\n\r\n")
        reply = await wire.reply("OPTIONS")
        assert (reply.status, reply.one("Allow")) == (204, "GET, OPTIONS")
    assert [(each.line, each.one("Host")) for each in root.requests] == [("OPTIONS * HTTP/1.1", "public.test")] * 2
    assert deeper.requests == []
    assert {line["path"] for line in proxy.logged()} == {"*"}
    assert {line["route"] for line in proxy.logged()} == {"/"}


async def test_options_of_all_without_a_route_for_the_root_has_no_route(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/deeper", origin)
    wire = await proxy.connect()
    await wire.send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await wire.reply()).reason == "no_route"
    assert origin.requests == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
async def test_no_other_method_has_an_asterisk_for_its_target(proxy: Proxy, origin: Origin, method: str) -> None:
    wire = await proxy.connect()
    await wire.send(f"{method} * HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n".encode())
    assert (await wire.reply(method)).status == 400
    assert origin.requests == []


async def test_it_is_sent_again_like_any_other_that_may_be(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def fail(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(fail), await origins(allow))
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await wire.reply("OPTIONS")).status == 204


async def test_with_strip_prefix_the_root_has_nothing_to_take_off(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    root = await origins(allow)
    proxy.route("/", root, strip_prefix="true")
    wire = await proxy.connect()
    await wire.send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await wire.reply("OPTIONS")).status == 204
    assert root.requests[0].target == "*"
