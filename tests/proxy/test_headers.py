"""What a proxy takes off a message and what it puts on."""

import re
from email.utils import parsedate_to_datetime

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request
from tests.proxy.test_relaying import chunked

TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


async def test_hop_by_hop_headers_and_the_tokens_of_connection_end_here(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\n"
        b"TE: gzip\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\nX-Kept: 2\r\n\r\n"
    )
    await wire.reply()
    names = {name.lower() for name, _ in origin.requests[0].headers}
    assert names == {
        "host",
        "x-kept",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-request-id",
        "via",
        "traceparent",
    }


async def test_hop_by_hop_headers_of_replies_end_here(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def reply(request: Request) -> None:
        await request.wire.send(
            b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n"
            b"Proxy-Authenticate: Basic\r\nX-Kept: a\r\nX-Kept: b\r\nContent-Length: 0\r\n\r\n"
        )

    proxy = await proxies()
    proxy.route("/", await origins(reply))
    got = await proxy.get("/")
    assert [name.lower() for name, _ in got.headers] == [
        "x-kept",
        "x-kept",
        "content-length",
        "via",
        "date",
        "x-request-id",
    ]
    assert got.all("X-Kept") == ["a", "b"]


async def test_connection_cannot_strip_what_makes_the_message(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(
        b"POST / HTTP/1.1\r\nHost: h\r\nConnection: host, content-length, x-forwarded-for, via\r\n"
        b"Content-Length: 2\r\n\r\nhi"
    )
    assert (await wire.reply()).status == 200
    seen = origin.requests[0]
    assert (seen.one("Host"), seen.one("Content-Length"), seen.one("X-Forwarded-For")) == ("h", "2", "127.0.0.1")


async def test_the_upstream_gets_the_address_the_scheme_and_the_host_of_the_client(
    proxy: Proxy, origin: Origin
) -> None:
    await proxy.get("/a/b?c=d")
    seen = origin.requests[0]
    assert seen.line == "GET /a/b?c=d HTTP/1.1"
    assert seen.one("Host") == "example.test"
    assert seen.one("X-Forwarded-For") == "127.0.0.1"
    assert seen.one("X-Forwarded-Proto") == "http"
    assert seen.one("X-Forwarded-Host") == "example.test"
    assert re.fullmatch(r"1\.1 slb-[0-9a-f]{8}", seen.one("Via") or "")


async def test_forwarding_headers_of_strangers_are_replaced(proxy: Proxy, origin: Origin) -> None:
    await proxy.get(
        "/",
        X_Forwarded_For="192.0.2.4",
        X_Forwarded_Proto="https",
        Forwarded="for=192.0.2.4",
        X_Real_IP="192.0.2.4",
    )
    seen = origin.requests[0]
    assert (seen.all("X-Forwarded-For"), seen.all("X-Forwarded-Proto")) == (["127.0.0.1"], ["http"])
    assert (seen.all("Forwarded"), seen.all("X-Real-IP")) == ([], [])


async def test_forwarding_headers_of_trusted_proxies_are_appended_to(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(trusted_proxies="127.0.0.0/8")
    proxy.route("/", origin)
    await proxy.get("/", X_Forwarded_For="192.0.2.4", X_Forwarded_Proto="https", X_Forwarded_Host="public.test")
    seen = origin.requests[0]
    assert (seen.all("X-Forwarded-For"), seen.all("X-Forwarded-Proto")) == (["192.0.2.4, 127.0.0.1"], ["https"])
    assert seen.all("X-Forwarded-Host") == ["public.test"]


async def test_forwarded_of_a_trusted_proxy_is_appended_to(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(trusted_proxies="127.0.0.0/8")
    proxy.route("/", origin)
    await proxy.get("/", Forwarded="for=192.0.2.4")
    assert origin.requests[0].all("Forwarded") == ["for=192.0.2.4", "for=127.0.0.1;proto=http"]


async def test_a_request_id_is_kept_and_echoed(proxy: Proxy, origin: Origin) -> None:
    reply = await proxy.get("/", X_Request_Id="mine-1")
    assert (origin.requests[0].one("X-Request-Id"), reply.one("X-Request-Id")) == ("mine-1", "mine-1")


async def test_a_request_without_id_gets_one_of_its_own(proxy: Proxy, origin: Origin) -> None:
    replies = [await proxy.get("/") for _ in range(3)]
    ids = [reply.one("X-Request-Id") for reply in replies]
    assert [request.one("X-Request-Id") for request in origin.requests] == ids
    assert len(set(ids)) == 3


async def test_a_request_id_of_the_upstreams_is_replaced(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def reply(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nX-Request-Id: theirs\r\nContent-Length: 0\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(reply))
    assert (await proxy.get("/", X_Request_Id="mine")).all("X-Request-Id") == ["mine"]


async def test_a_reply_without_date_gets_one_and_one_with_it_keeps_it(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def dated(request: Request) -> None:
        line = b"" if request.target == "/none" else b"date: Tue, 15 Nov 1994 08:12:31 GMT\r\n"
        await request.wire.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: 0\r\n\r\n" % line)

    proxy = await proxies()
    proxy.route("/", await origins(dated))
    assert (await proxy.get("/")).one("Date") == "Tue, 15 Nov 1994 08:12:31 GMT"
    made = (await proxy.get("/none")).one("Date")
    assert made is not None
    assert parsedate_to_datetime(made).year > 1994


async def test_the_via_of_earlier_hops_stays(proxy: Proxy, origin: Origin) -> None:
    reply = await proxy.get("/", Via="1.0 edge")
    assert [value.split("-")[0] for value in origin.requests[0].all("Via")] == ["1.0 edge", "1.1 slb"]
    assert reply.one("Via") == "1.1 slb"


async def test_chunk_extensions_are_not_passed_on(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0;c\r\nX-Trailer: 1\r\n\r\n"
    )
    assert (await wire.reply()).status == 200
    assert origin.requests[0].whole == b"hi"


async def test_an_absolute_target_names_the_host(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(b"GET http://other.test:81/x?y HTTP/1.1\r\nHost: ignored\r\n\r\n")
    assert (await wire.reply()).status == 200
    seen = origin.requests[0]
    assert (seen.line, seen.all("Host")) == ("GET /x?y HTTP/1.1", ["other.test:81"])


async def test_strip_prefix_takes_the_route_off_the_path(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/api", origin, strip_prefix="true")
    for path in ("/api/x?y=1", "/api", "/./api/z", "/api?q"):
        assert (await proxy.get(path)).status == 200
    assert [request.target for request in origin.requests] == ["/x?y=1", "/", "/z", "/?q"]


async def test_the_target_is_forwarded_as_it_was_written(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/api", origin)
    targets = ["/api//x", "/%61pi/x", "/api/x?a=%20b/./", "/api/%E4%B8%AD", "/api/a;b=c"]
    for target in targets:
        assert (await proxy.get(target)).status == 200
    assert [request.target for request in origin.requests] == targets


async def test_both_ways_of_repeating_heads_are_the_same(proxies: MakeProxy, origins: MakeOrigin) -> None:
    """A head is parsed at its first coming and looked up later: what reaches the other side must not differ."""

    async def reply(request: Request) -> None:
        await request.body()
        await request.wire.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n" + chunked(b"hello")
        )

    proxy = await proxies()
    origin = await origins(reply)
    proxy.route("/", origin)
    wire = await proxy.connect()
    seen = []
    for _ in range(5):
        await wire.send(
            b"POST / HTTP/1.1\r\nHost: h\r\nX-Request-Id: r\r\ntraceparent: %b\r\nX-B: 2\r\nContent-Length: 2\r\n\r\nhi"
            % TRACE
        )
        seen.append((await wire.reply()).headers)
    assert all(headers == seen[0] for headers in seen)
    assert all(request.headers == origin.requests[0].headers for request in origin.requests)


async def test_a_trace_is_kept(proxy: Proxy, origin: Origin) -> None:
    await proxy.get("/", traceparent=TRACE.decode(), tracestate="a=b")
    assert (origin.requests[0].all("traceparent"), origin.requests[0].one("tracestate")) == (
        [TRACE.decode()],
        "a=b",
    )


async def test_a_trace_is_begun_where_there_is_none_that_is_valid(proxy: Proxy, origin: Origin) -> None:
    await proxy.get("/")
    await proxy.get("/", traceparent="00-00000000000000000000000000000000-00f067aa0ba902b7-01")
    traces = [request.one("traceparent") or "" for request in origin.requests]
    assert all(re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", trace) for trace in traces)
    assert traces[0] != traces[1]
    assert "0" * 32 not in traces[1]


async def test_the_state_of_a_trace_goes_with_it(proxy: Proxy, origin: Origin) -> None:
    await proxy.get("/", tracestate="a=b", traceparent="nonsense")
    assert origin.requests[0].one("tracestate") is None


async def test_trailers_pass_to_clients_that_ask_for_them(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def reply(request: Request) -> None:
        await request.wire.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\n"
            b"X-Sum: 7\r\nContent-Length: 9\r\nHost: evil\r\nAuthorization: x\r\nX-Forwarded-For: y\r\n\r\n"
        )

    proxy = await proxies()
    origin = await origins(reply)
    proxy.route("/", origin)
    tails = []
    for asked in (b"TE: trailers\r\nConnection: TE\r\n", b""):
        wire = await proxy.connect()
        await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n%b\r\n" % asked)
        await wire.head()
        tails.append(await wire.reader.readuntil(b"\r\n0\r\n") + await wire.reader.readuntil(b"\r\n"))
    assert tails == [b"2\r\nok\r\n0\r\nX-Sum: 7\r\n", b"2\r\nok\r\n0\r\n\r\n"]
    assert [request.one("TE") for request in origin.requests] == ["trailers", None]


async def test_timings_are_sent_to_clients_that_ask(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(client_detail="full")
    proxy.route("/", origin)
    assert (await proxy.get("/")).one("Server-Timing") is None
    timing = (await proxy.get("/", X_Slb_Timing="1")).one("Server-Timing") or ""
    assert re.fullmatch(r'upstream;dur=\d+\.\d{3}, attempts;desc="1"', timing)


@pytest.mark.parametrize("name", ["X_Request_Id", "X_Request_Timeout", "X-Forwarded_For", "Proxy_Authorization"])
async def test_what_upstreams_could_take_for_slbs_own_word_reaches_none(
    proxy: Proxy, origin: Origin, name: str
) -> None:
    wire = await proxy.connect()
    await wire.send(f"GET / HTTP/1.1\r\nHost: h\r\n{name}: forged\r\n\r\n".encode())
    assert (await wire.reply()).reason == "bad_request"
    assert origin.requests == []


@pytest.mark.parametrize("host", ["a%zz", "a%", "[ab..cd::1]", "[::1%25lo]", "[v1.a]", "[1.2.3.4]"])
@pytest.mark.parametrize("start", ["GET / HTTP/1.1\r\nHost: {}", "GET http://{}/ HTTP/1.1\r\nHost: h"])
async def test_a_host_that_is_none_reaches_no_upstream(proxy: Proxy, origin: Origin, host: str, start: str) -> None:
    wire = await proxy.connect()
    await wire.send(f"{start.format(host)}\r\n\r\n".encode())
    assert (await wire.reply()).status == 400
    assert origin.requests == []


@pytest.mark.parametrize("host", ["a%20b", "[::1]:80", "[2001:DB8::1]", "[::ffff:10.0.0.1]"])
@pytest.mark.parametrize("start", ["GET / HTTP/1.1\r\nHost: {}", "GET http://{}/ HTTP/1.1\r\nHost: h"])
async def test_a_host_passes_as_it_is_written(proxy: Proxy, origin: Origin, host: str, start: str) -> None:
    wire = await proxy.connect()
    await wire.send(f"{start.format(host)}\r\n\r\n".encode())
    assert (await wire.reply()).status == 200
    assert origin.requests[0].all("Host") == [host]


async def test_either_side_gets_a_length_in_the_one_form_that_all_read_alike(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def reply(request: Request) -> None:
        assert await request.body() == b"ten bytes!"
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 010\r\n\r\nten bytes!")

    proxy = await proxies()
    origin = await origins(reply)
    proxy.route("/", origin)
    wire = await proxy.connect()
    for _ in range(3):
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 010\r\n\r\nten bytes!")
        got = await wire.reply()
        assert (got.body, got.all("Content-Length")) == (b"ten bytes!", ["10"])
    assert [request.all("Content-Length") for request in origin.requests] == [["10"]] * 3
