"""What the access log has of a request."""

import asyncio
import contextlib

from structlog.testing import capture_logs

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request
from tests.support.waiting import soon


async def test_a_request_is_logged_with_where_it_went(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(b"POST /a?secret=1 HTTP/1.1\r\nHost: h\r\nX-Request-Id: r\r\nContent-Length: 2\r\n\r\nhi")
    await wire.reply()
    line = proxy.logged()[0]
    assert (line["method"], line["path"], line["status"], line["reason"]) == ("POST", "/a", 200, "")
    assert (line["route"], line["upstream"], line["request_id"]) == ("/", origin.member, "r")
    assert (line["bytes_in"], line["bytes_out"], line["client"], line["attempts"]) == (2, 2, "127.0.0.1", 1)
    assert 0 < line["first_byte"] <= line["duration"]


async def test_an_error_names_the_very_address(proxies: MakeProxy, origins: MakeOrigin) -> None:
    """`localhost` may be many hosts; the one that failed is in the log."""

    async def hang_up(request: Request) -> None:
        request.wire.reset()

    proxy = await proxies()
    origin = await origins(hang_up)
    port = origin.member.rpartition(":")[2]
    proxy.route("/", f"localhost:{port}")
    await proxy.get("/")
    assert f"localhost:{port} (127.0.0.1 port {port})" in proxy.logged()[0]["detail"]


async def test_with_errors_only_a_good_request_leaves_no_line(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(access_log="errors")
    proxy.route("/api", origin)
    await proxy.get("/api")
    await proxy.get("/nowhere")
    assert [line["reason"] for line in proxy.logged()] == ["no_route"]


async def test_refused_requests_cannot_fill_the_log_which_has_how_many_lines_are_missing(
    proxies: MakeProxy, origin: Origin
) -> None:
    """No route, a malformed head, a route without upstreams: none of them costs an upstream anything."""
    proxy = await proxies(access_log_refused=200)
    proxy.route("/api", origin)
    proxy.route("/empty")
    for _ in range(8):
        for path in ("/nowhere/" + "x" * 400, "/empty", "/%zz"):
            await proxy.get(path)
        await proxy.get("/api")
    refused = [line for line in proxy.logged() if line["reason"]]
    served = [line for line in proxy.logged() if line["status"] == 200]
    assert len(served) == 8
    assert 0 < len(refused) < 12
    assert sum(proxy.counted().values()) == 32
    with capture_logs() as logs:
        proxy.log.refused.report()
        proxy.log.refused.report()
    logged = [(line["event"], line["lines"]) for line in logs]
    assert logged == [("access_log_suppressed", 24 - len(refused))]


async def test_what_failed_at_an_upstream_is_always_logged(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def hang_up(request: Request) -> None:
        request.wire.reset()

    proxy = await proxies(access_log_refused=1)
    proxy.route("/", await origins(hang_up), eject_after="0")
    await asyncio.gather(*(proxy.get("/") for _ in range(20)))
    assert [line["reason"] for line in proxy.logged()] == ["upstream_reset"] * 20


async def test_a_reply_that_broke_off_is_logged_with_the_bytes_that_were_still_to_come(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def breaks(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        request.wire.close()

    proxy = await proxies()
    proxy.route("/", await origins(breaks))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        await soon(wire.reader.read())
    await proxy.at_rest()
    (line,) = proxy.logged()
    assert (line["bytes_out"], line["owed"]) == (4, 96)
