"""The listeners of a responder, as resolvers that behave, and others that do not, meet them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import cast

import dns.message
import pytest

from slb.dns import tcp
from tests.dns.rig import Rig, datagram_socket, responding
from tests.support.dns import ZONE, addresses, fleet
from tests.support.waiting import eventually, settled, soon

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[Streams]:
    """A client's connection, which is gone with the context."""
    reader, writer = await asyncio.open_connection(*rig.address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


def framed(name: str = ZONE, kind: str = "A") -> bytes:
    packet = dns.message.make_query(name, kind).to_wire()
    return len(packet).to_bytes(2, "big") + packet


async def answer(reader: asyncio.StreamReader) -> dns.message.Message:
    length = int.from_bytes(await soon(reader.readexactly(2)), "big")
    return dns.message.from_wire(await soon(reader.readexactly(length)))


async def test_udp_and_tcp_share_a_port() -> None:
    async with responding(fleet(300)) as rig:
        assert len(addresses(await rig.over_udp())) == 13
        assert len(addresses(await rig.over_tcp())) == 300


async def test_malformed_packets_change_nothing_for_those_behind_them() -> None:
    async with responding() as rig:
        client = datagram_socket()
        loop = asyncio.get_running_loop()
        for packet in (b"", b"x", b"\0" * 12, b"\xff" * 4000, b"\0" * 60_000):
            await loop.sock_sendto(client, packet, rig.address)
        assert len(addresses(await rig.over_udp())) == 3
        client.close()
        await eventually(lambda: sum(rig.asked.counts.dropped.values()) == 5)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
async def test_an_answer_comes_from_the_address_that_was_asked(listen: str) -> None:
    """A listener on all addresses would answer from the one that the route back prefers."""
    try:
        async with responding(listen=listen) as rig:
            for host in ("127.0.0.1", "127.0.0.2", "127.3.2.1"):
                assert len(addresses(await rig.over_udp(host=host))) == 3
    except OSError as error:
        pytest.skip(str(error))


async def test_queries_of_one_connection_are_answered_in_their_order() -> None:
    async with responding() as rig, connected(rig) as (reader, writer):
        names = [f"{number}.{ZONE}" for number in range(200)]
        writer.write(b"".join(framed(name) for name in names))
        found = [str((await answer(reader)).question[0].name).rstrip(".") for _ in names]
        assert found == names


async def test_a_query_may_come_byte_by_byte_and_with_the_end_of_the_connection() -> None:
    async with responding() as rig, connected(rig) as (reader, writer):
        for byte in framed():
            writer.write(bytes((byte,)))
            await writer.drain()
        assert len(addresses(await answer(reader))) == 3
        writer.write(framed() * 100)
        writer.write_eof()
        for _ in range(100):
            await answer(reader)
        assert await soon(reader.read()) == b""


async def test_a_client_that_does_not_read_its_answers_is_not_read_from() -> None:
    """10,000 answers of 14 KB would wait for it."""
    async with responding(fleet(900)) as rig, connected(rig) as (_, writer):
        cast("asyncio.Transport", writer.transport).pause_reading()
        writer.write(framed() * 10_000)
        answered = await settled(lambda: sum(rig.asked.counts.answers.values()))
        assert 0 < answered < 2000, "what the kernel's buffers hold"
        assert len(addresses(await rig.over_udp())) == 13
        writer.transport.abort()
        await eventually(lambda: rig.tcp.connections == 0)


async def test_malformed_queries_end_a_connection() -> None:
    async with responding() as rig, connected(rig) as (reader, writer):
        writer.write(b"\0\3abc" + framed())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(reader)
        await eventually(lambda: rig.tcp.connections == 0)


async def test_connections_are_limited_in_all_and_from_one_address() -> None:
    async with responding(limit=16) as rig, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(rig)) for _ in range(4)]
        for reader, writer in held:
            writer.write(framed())
            await answer(reader)
        async with connected(rig) as (reader, writer):
            writer.write(framed())
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await answer(reader)
        held[0][1].close()
        await eventually(lambda: rig.tcp.connections == 3)
        assert len(addresses(await rig.over_tcp())) == 3


async def test_a_connection_on_which_nothing_whole_comes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "IDLE", 0.2)
    async with responding() as rig, connected(rig) as (reader, writer):
        writer.write(framed()[:-1])
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(reader)
