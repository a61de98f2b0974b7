"""What the demo counts with."""

import asyncio
import shlex
import socket
import subprocess

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from slb.demo import fleet, show
from slb.demo.traffic import NAME, Account, RotatingResolver, Traffic
from tests.support.waiting import eventually


async def test_the_resolver_gives_both_addresses_each_time_another_first() -> None:
    resolver = RotatingResolver([("127.0.0.2", 80), ("127.0.0.3", 81)])
    seen = [[(each["host"], each["port"]) for each in await resolver.resolve(NAME)] for _ in range(3)]
    one, other = ("127.0.0.2", 80), ("127.0.0.3", 81)
    assert seen == [[one, other], [other, one], [one, other]]


async def test_the_resolver_has_no_other_name() -> None:
    with pytest.raises(OSError, match="elsewhere"):
        await RotatingResolver([("127.0.0.2", 80)]).resolve("elsewhere.test")


@pytest.fixture
async def answers(aiohttp_server: AiohttpServer) -> list[tuple[str, int]]:
    """Two servers; the first is upstream x, the second fails."""

    async def first(_: web.Request) -> web.Response:
        return web.Response(headers={"X-Upstream": "x"})

    async def second(_: web.Request) -> web.Response:
        return web.Response(status=503, text="no_upstream")

    servers = []
    for handler in (first, second):
        app = web.Application()
        app.router.add_get("/demo", handler)
        servers.append(await aiohttp_server(app))
    return [("127.0.0.1", server.port or 0) for server in servers]


async def test_every_answer_and_every_failure_is_counted(answers: list[tuple[str, int]]) -> None:
    traffic, account = Traffic(answers, "/demo", rate=1000), Account()
    await traffic.send(account, 20)
    await traffic.close()
    assert account.answers == {"x": 10}
    assert account.failures == ["503 no_upstream"] * 10
    assert account.requests == 20


async def test_a_connection_that_is_refused_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    traffic, account = Traffic([address], "/demo", rate=1000), Account()
    await traffic.send(account, 2)
    await traffic.close()
    assert len(account.failures) == 2


async def test_requests_flow_as_long_as_the_block_runs(answers: list[tuple[str, int]]) -> None:
    traffic, account = Traffic(answers[:1], "/demo", rate=1000), Account()
    async with traffic.flowing(account):
        await eventually(lambda: account.requests >= 5)
    counted = account.requests
    await asyncio.sleep(0.02)
    assert account.requests == counted
    assert not account.failures
    await traffic.close()


def test_what_it_prints_to_type_works_in_a_shell_that_has_not_this_environment() -> None:
    command = shlex.split(f"{show._slb()} --version")
    ended = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("slb ")


def test_two_addresses_share_a_port_where_the_system_has_them() -> None:
    (one, port), (other, same) = fleet.two_places()
    if one == other:
        pytest.skip("this system has one loopback address")
    assert (one, other) == ("127.0.0.2", "127.0.0.3")
    assert port == same


def test_one_address_has_two_ports_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_TWO_ADDRESSES", ("203.0.113.1", "203.0.113.2"))
    (one, port), (other, second) = fleet.two_places()
    assert one == other == "127.0.0.1"
    assert port != second
