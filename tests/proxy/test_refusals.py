"""Every answer slb gives itself, by its name; and that nothing malformed reaches an upstream."""

import asyncio

import pytest

from slb.model import RouteRecord
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, port_that_never_accepts
from tests.support.waiting import eventually

MALFORMED = {
    "no colon": b"GET / HTTP/1.1\r\nHost: h\r\nbroken\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a Host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a zero length and a coding": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a negative length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    "a length with a sign": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na",
    "length and coding": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a broken chunk size": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a NUL": b"GET / HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n",
    "a bare CR": b"GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n",
    "bare LFs": b"GET / HTTP/1.1\nHost: h\n\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
    "an encoded slash": b"GET /a%2fb HTTP/1.1\r\nHost: h\r\n\r\n",
    "an encoded backslash": b"GET /a%5cb HTTP/1.1\r\nHost: h\r\n\r\n",
    "an encoded NUL": b"GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n",
    "a path above the root": b"GET /../x HTTP/1.1\r\nHost: h\r\n\r\n",
    "a half escape": b"GET /a%4 HTTP/1.1\r\nHost: h\r\n\r\n",
    "an unknown expectation": b"GET / HTTP/1.1\r\nHost: h\r\nExpect: magic\r\n\r\n",
    "a shadowed name": b"POST / HTTP/1.1\r\nHost: h\r\nContent_Length: 3\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "noise": bytes(range(128, 256)),
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_request_is_400_and_the_end_of_its_connection(
    proxy: Proxy, origin: Origin, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await proxy.connect()
    await wire.send(raw)
    reply = await wire.reply()
    assert (reply.status, reply.reason, reply.one("Connection")) == (400, "bad_request", "close")
    assert await wire.ended()
    assert origin.connections == 0
    assert proxy.counted() == {(400, "bad_request"): 1}
    assert not caplog.records


@pytest.mark.parametrize(
    "raw", [b"GET / HTTP/2.0\r\n\r\n", b"GET /x\r\n\r\n", b"GET /x\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
async def test_other_versions_are_505(proxy: Proxy, origin: Origin, raw: bytes) -> None:
    wire = await proxy.connect()
    await wire.send(raw)
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (505, "http_version")
    assert await wire.ended()
    assert origin.connections == 0


async def test_connect_is_405(proxy: Proxy) -> None:
    wire = await proxy.connect()
    await wire.send(b"CONNECT example.test:443 HTTP/1.1\r\nHost: example.test\r\n\r\n")
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (405, "method_not_allowed")


async def test_a_line_too_long_is_414(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_request_line=100)
    proxy.route("/", origin)
    for raw in (b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"a" * 200), b"GET /" + b"a" * 200):
        wire = await proxy.connect()
        await wire.send(raw)
        assert (await wire.reply()).reason == "uri_too_long"


async def test_a_head_too_long_is_431(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_head=1000, max_headers=5)
    proxy.route("/", origin)
    for lines in (b"A: %b\r\n" % (b"b" * 1000), b"A: b\r\n" * 6):
        wire = await proxy.connect()
        await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n")
        assert (await wire.reply()).reason == "headers_too_large"


async def test_a_body_too_long_is_413(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_body=10)
    proxy.route("/", origin)
    for raw in (b"Content-Length: 11\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n"):
        wire = await proxy.connect()
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\n" + raw)
        assert (await wire.reply()).reason == "body_too_large"
        assert await wire.ended()
    assert [request.whole for request in origin.requests] in ([], [b""])


async def test_no_route_is_404_and_keeps_the_connection(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/api", origin)
    wire = await proxy.connect()
    for path in ("/", "/apix", "/other"):
        reply = await wire.get(path)
        assert (reply.status, reply.reason, reply.one("Connection")) == (404, "no_route", None)
    assert (await wire.get("/api/x")).status == 200


async def test_a_route_without_members_is_503_and_not_its_parents(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    proxy.route("/api")
    reply = await proxy.get("/api/x")
    assert (reply.status, reply.reason, reply.one("Retry-After")) == (503, "no_upstream", "1")
    assert origin.requests == []


async def test_everything_is_503_before_the_first_table(proxies: MakeProxy) -> None:
    proxy = await proxies()
    reply = await proxy.get("/")
    assert (reply.status, reply.reason, reply.one("Retry-After")) == (503, "not_ready", "1")


async def test_an_error_names_what_happened_and_to_which_request(proxies: MakeProxy) -> None:
    proxy = await proxies()
    proxy.mirror.update({"/x": RouteRecord()}, {})
    reply = await proxy.get("/", X_Request_Id="r-1")
    assert reply.body == b'{"error":"no_route","detail":"no route takes this path","request_id":"r-1"}\n'
    assert (reply.one("Content-Type"), reply.one("X-Request-Id")) == ("application/json", "r-1")


async def test_an_error_to_head_has_no_body(proxies: MakeProxy) -> None:
    proxy = await proxies()
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await wire.reply("HEAD")).status == 503


async def test_an_upstream_that_refuses_connections_is_502(proxies: MakeProxy, origins: MakeOrigin) -> None:
    gone = await origins()
    await gone.stop()
    proxy = await proxies(client_detail="full")
    proxy.route("/", gone)
    reply = await proxy.get("/")
    assert (reply.status, reply.reason) == (502, "upstream_connect")
    assert gone.member.split(":")[1] in reply.body.decode()


async def test_a_request_goes_to_another_upstream_where_one_refuses_connections(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    gone = await origins()
    await gone.stop()
    proxy = await proxies()
    proxy.route("/", gone, origin)
    wire = await proxy.connect()
    for _ in range(4):
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
        assert (await wire.reply()).status == 200
    assert [request.whole for request in origin.requests] == [b"hi"] * 4
    assert proxy.metrics.retries["upstream_connect"] == 2


async def test_without_retries_a_refused_connection_is_502(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    gone = await origins()
    await gone.stop()
    proxy = await proxies()
    proxy.route("/", gone, origin, retries="0")
    statuses = sorted([(await proxy.get("/")).status for _ in range(4)])
    assert statuses == [200, 200, 502, 502]


async def test_a_connection_that_does_not_come_is_502(proxies: MakeProxy) -> None:
    listener, fillers, member = port_that_never_accepts()
    try:
        proxy = await proxies()
        proxy.route("/", member.replace("127.0.0.1", "localhost"), connect_timeout="200ms")
        reply = await proxy.get("/")
        assert (reply.status, reply.reason) == (502, "upstream_connect")
        assert "(127.0.0.1 port " in proxy.logged()[0]["detail"], "a name can be many hosts"
    finally:
        for each in (listener, *fillers):
            each.close()


async def test_an_upstream_that_does_not_answer_is_504(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def silence(request: Request) -> None:
        ended.append(await request.wire.ended())

    ended: list[bool] = []
    proxy = await proxies()
    origin = await origins(silence)
    proxy.route("/", origin, first_byte_timeout="100ms")
    reply = await proxy.get("/")
    assert (reply.status, reply.reason) == (504, "upstream_timeout")
    await eventually(lambda: ended == [True])


async def test_a_request_longer_than_its_time_is_504(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def silence(request: Request) -> None:
        await request.wire.ended()

    proxy = await proxies()
    proxy.route("/", await origins(silence), request_timeout="100ms")
    assert (await proxy.get("/")).reason == "upstream_timeout"


async def test_an_upstream_that_hangs_up_is_502(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def hang_up(request: Request) -> None:
        request.wire.reset()

    proxy = await proxies()
    proxy.route("/", await origins(hang_up))
    reply = await proxy.get("/")
    assert (reply.status, reply.reason) == (502, "upstream_reset")


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_a_reply_that_is_not_http_is_502(proxies: MakeProxy, origins: MakeOrigin, raw: bytes) -> None:
    async def broken(request: Request) -> None:
        await request.wire.send(raw)
        await request.wire.ended()

    proxy = await proxies()
    proxy.route("/", await origins(broken))
    reply = await proxy.get("/")
    assert (reply.status, reply.reason) == (502, "upstream_protocol")


async def test_a_request_that_comes_back_is_508(proxies: MakeProxy) -> None:
    first, second = await proxies(), await proxies()
    first.route("/", f"127.0.0.1:{second.address[1]}")
    second.route("/", f"127.0.0.1:{first.address[1]}")
    reply = await first.get("/")
    assert (reply.status, reply.reason) == (508, "loop")


async def test_slb_does_not_connect_to_itself(proxies: MakeProxy) -> None:
    proxy = await proxies()
    proxy.own.append(proxy.address)
    proxy.route("/", f"127.0.0.1:{proxy.address[1]}")
    reply = await proxy.get("/")
    assert (reply.status, reply.reason) == (502, "upstream_connect")


async def test_a_head_that_does_not_end_is_408(proxies: MakeProxy) -> None:
    proxy = await proxies(head_timeout="100ms")
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHo")
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (408, "request_timeout")
    assert await wire.ended()


async def test_a_refusal_is_logged_as_its_client_sees_it(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(head_timeout="100ms")
    proxy.route("/api", origin)
    wire = await proxy.connect()
    await wire.send(b"GET /none?secret=1 HTTP/1.1\r\nHost: h\r\n\r\nGET / HT")
    replies = [await wire.reply(), await wire.reply()]
    lines = proxy.logged()
    assert [line["request_id"] for line in lines] == [reply.one("X-Request-Id") for reply in replies]
    assert [(line["reason"], line["path"]) for line in lines] == [("no_route", "/none"), ("request_timeout", "")]
    assert [bool(line["detail"]) for line in lines] == [True, True]
    assert lines[0]["duration"] == 0 < lines[1]["duration"]


@pytest.mark.parametrize(
    "raw",
    [
        b"Content-Length: 11\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nb\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nz\r\n",
    ],
)
async def test_a_body_refused_with_its_head_is_logged_with_the_request_it_belongs_to(
    proxies: MakeProxy, origin: Origin, raw: bytes
) -> None:
    proxy = await proxies(max_body=10)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST /upload HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\n" + raw)
    assert (await wire.reply()).one("X-Request-Id") == "mine"
    (line,) = proxy.logged()
    assert (line["method"], line["path"], line["route"], line["request_id"]) == ("POST", "/upload", "/", "mine")
    assert [route for (route, *_), _ in proxy.metrics.traffic.requests()] == ["/"]


async def test_a_head_that_drips_is_408_all_the_same(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(head_timeout="200ms")
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert (await wire.get("/")).status == 200

    async def drip() -> None:
        await wire.send(b"GET / HTTP/1.1\r\n")
        while True:
            await wire.send(b"A: b\r\n")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert (await wire.reply()).reason == "request_timeout"
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)


async def test_a_body_that_does_not_come_is_408(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", origin, idle_timeout="100ms")
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab")
    assert (await wire.reply()).reason == "request_timeout"
    assert await wire.ended()


async def test_an_idle_connection_is_closed_without_a_word(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(keepalive_timeout="100ms")
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert (await wire.get("/")).status == 200
    assert await wire.ended()


async def test_what_is_reserved_goes_to_the_applications(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    for line in ("POST /register", "DELETE /register", "GET /_slb/healthz", "GET /_slb/readyz"):
        wire = await proxy.connect()
        await wire.send(f"{line} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi".encode())
        assert (await wire.reply()).body == b"mine"
    for path in ("/register", "/register/x", "/_slb/other"):
        assert (await proxy.get(path)).body == b"ok"
    assert [data.endswith(b"\r\n\r\nhi") for data in proxy.handed_over] == [True] * 4


async def test_register_can_be_left_to_the_applications_behind(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(data_register=False)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST /register HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
    assert (await wire.reply()).body == b"ok"
