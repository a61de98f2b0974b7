"""What strangers get of the inside: nothing. The log has all of it."""

import asyncio
import re

import pytest

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request, wait_for_end
from tests.support.ports import closed_port


async def hang_up(request: Request) -> None:
    request.wire.reset()


async def gibberish(request: Request) -> None:
    await request.wire.send(b"SSH-2.0-OpenSSH_9\r\n\r\n")


PLAYS = {"upstream_reset": hang_up, "upstream_protocol": gibberish, "upstream_timeout": wait_for_end}
NO_LISTENER = {"no_such_name": "gpu-17.inside.invalid:80", "never_an_upstream": "169.254.169.254:80"}
CASES = [*PLAYS, *NO_LISTENER, "upstream_connect"]


async def failing(proxy: Proxy, origins: MakeOrigin, case: str) -> tuple[Reply, str]:
    """The reply to a request for which slb answers because of `case`, and the host that failed."""
    member = (await origins(PLAYS[case])).member if case in PLAYS else NO_LISTENER.get(case) or closed_port()
    proxy.route("/inside", member, retries="0", first_byte_timeout="200ms")
    return await proxy.get("/inside/x"), member.partition(":")[0]


def detail(reply: Reply) -> str:
    """The body without the request's id."""
    return reply.body.decode().partition('"request_id"')[0]


@pytest.mark.parametrize("case", CASES)
async def test_a_stranger_gets_no_address_and_the_log_has_it(
    proxies: MakeProxy, origins: MakeOrigin, case: str
) -> None:
    proxy = await proxies()
    reply, host = await failing(proxy, origins, case)
    assert reply.status in (502, 504)
    assert not re.search(r"[0-9/]|inside|invalid|port", detail(reply))
    assert host in proxy.logged()[0]["detail"]


@pytest.mark.parametrize("case", CASES)
async def test_where_that_is_set_clients_get_what_the_log_has(
    proxies: MakeProxy, origins: MakeOrigin, case: str
) -> None:
    proxy = await proxies(client_detail="full")
    reply, host = await failing(proxy, origins, case)
    assert host in detail(reply)


async def test_neither_routes_nor_limits_are_shown_where_there_is_no_room(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    came = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(request: Request) -> None:
        came.set()
        await go_on.wait()
        await request.wire.send(OK)

    proxy = await proxies(max_upstream_connections=1)
    proxy.route("/inside", await origins(slow))
    first = asyncio.create_task(proxy.get("/inside/a"))
    await came.wait()
    replies = [await proxy.get("/inside/b")]
    go_on.set()
    assert (await first).status == 200
    proxy.route("/inside")
    replies.append(await proxy.get("/inside/c"))
    assert [reply.reason for reply in replies] == ["overloaded", "no_upstream"]
    assert not [reply for reply in replies if re.search(r"[0-9/]|inside", detail(reply))]


async def test_timings_show_a_stranger_nothing_but_times(proxy: Proxy, origin: Origin) -> None:
    timing = (await proxy.get("/", X_Slb_Timing="1")).one("Server-Timing") or ""
    assert re.fullmatch(r"upstream;dur=\d+\.\d{3}", timing)


async def test_what_is_wrong_with_the_request_itself_is_shown(proxy: Proxy) -> None:
    assert "encoded" in detail(await proxy.get("/a%2fb"))


async def test_a_change_holds_for_clients_that_are_connected_already(proxies: MakeProxy) -> None:
    proxy = await proxies()
    proxy.route("/inside", closed_port(), retries="0")
    wire = await proxy.connect()
    assert "127.0.0.1" not in detail(await wire.get("/inside"))
    proxy.server.reconfigure(proxy.settings.model_copy(update={"client_detail": "full"}))
    assert "127.0.0.1" in detail(await wire.get("/inside"))
