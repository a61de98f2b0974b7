"""How long a connection is used, and where a name leads by then."""

import socket

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from slb.client import Session
from slb.client.connections import Connector
from tests.client.conftest import Upstreams


class Names(AbstractResolver):
    """Every name leads to the port of `member`, which the test sets."""

    member = ""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address, _, found = self.member.rpartition(":")
        return [{"hostname": host, "host": address, "port": int(found), "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("age", "moves"), [(1e-6, True), (3600.0, False)])
async def test_a_call_by_a_name_goes_where_that_leads_once_its_connection_is_old(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, age: float, moves: bool
) -> None:
    monkeypatch.setattr("slb.client.session.DefaultResolver", Names)
    before, after = await upstreams(), await upstreams()
    monkeypatch.setattr(Names, "member", before.member)
    async with Session(upstreams=["pods.test:80"], max_connection_age=age) as session:
        await (await session.get("/x")).read()
        monkeypatch.setattr(Names, "member", after.member)
        await (await session.get("/x")).read()
    assert (len(before.seen), len(after.seen)) == ((1, 1) if moves else (2, 0))


async def test_a_connection_is_used_again_until_it_is_old(upstreams: Upstreams) -> None:
    peers: list[object] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response(text="x" * 100_000)

    upstream = await upstreams(note)
    for age, connections in ((3600.0, 1), (1e-6, 5)):
        peers.clear()
        async with Session(upstreams=[upstream.member], max_connection_age=age) as session:
            for _ in range(5):
                await (await session.get("/x")).read()
        assert len(set(peers)) == connections


async def test_connections_that_were_made_together_do_not_all_end_together() -> None:
    async with Session(upstreams=["10.0.0.1:80"], max_connection_age=100.0) as session:
        assert session._http is not None
        connector = session._http.connector
        assert isinstance(connector, Connector)
        ends = [connector._factory()._old_at - connector._loop.time() for _ in range(100)]  # type: ignore[attr-defined]
    assert 79.0 < min(ends) < 85.0
    assert 95.0 < max(ends) <= 100.0
