"""Checks of instances, against listeners of many kinds."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest

from slb.dns import checks
from slb.dns.checks import PASSED, REFUSED, SILENT, UNREADY, Checks, check
from slb.dns.fleet import Member, Place
from tests.support.certificates import Authority
from tests.support.waiting import eventually


class Instance:
    """A listener that answers `reply` to whatever it reads; None: it reads and says nothing."""

    def __init__(self, reply: bytes | None = b"HTTP/1.1 200 OK\r\n\r\n") -> None:
        self.reply = reply
        self.asked = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.place = Place(ip_address("127.0.0.1"), 1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        await reader.read(4096)
        self.asked += 1
        if self.reply is not None:
            writer.write(self.reply)
        else:
            await reader.read()
        writer.close()


@asynccontextmanager
async def listening(
    reply: bytes | None = b"HTTP/1.1 200 OK\r\n\r\n", tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Instance]:
    instance = Instance(reply)
    server = await asyncio.start_server(instance.serve, "127.0.0.1", port, ssl=tls)
    instance.place = Place(ip_address("127.0.0.1"), server.sockets[0].getsockname()[1])
    try:
        yield instance
    finally:
        server.close()
        for writer in instance.writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "INTERVAL", 0.05)


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", PASSED),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", UNREADY),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", UNREADY),
        (b"SSH-2.0-OpenSSH\r\n", UNREADY),
        (b"", SILENT),
        (None, SILENT),
    ],
)
async def test_only_a_200_passes(reply: bytes | None, result: str) -> None:
    async with listening(reply) as instance:
        assert await check(instance.place, "http") == result


async def test_a_port_where_nobody_listens_refuses() -> None:
    async with listening() as instance:
        pass
    assert await check(instance.place, "http") == REFUSED


async def test_a_certificate_of_anybody_is_good_enough_and_no_tls_is_not(tmp_path: Path) -> None:
    async with listening(tls=Authority(tmp_path).server("localhost")) as instance:
        assert await check(instance.place, "https") == PASSED
    async with listening() as instance:
        assert await check(instance.place, "https") == SILENT


async def test_of_a_listener_that_wants_a_proxy_header_a_connection_is_enough() -> None:
    async with listening(b"") as instance:
        assert await check(instance.place, "tcp") == PASSED


def followed(made: Checks, *instances: Instance, is_ready: bool = True) -> None:
    made.follow({each.place: Member(each.place, "http", "", 1, is_ready) for each in instances})


@asynccontextmanager
async def checking() -> AsyncIterator[tuple[Checks, list[str], asyncio.Event]]:
    changed, results = asyncio.Event(), list[str]()
    made = Checks(changed.set, results.append, Random(1))
    try:
        yield made, results, changed
    finally:
        await made.stop()


async def test_one_that_refuses_is_noticed_with_the_next_check_and_so_is_its_return() -> None:
    async with checking() as (made, results, changed):
        async with listening() as instance:
            followed(made, instance)
            await eventually(lambda: made.passes(instance.place))
        changed.clear()
        await eventually(lambda: made.results[instance.place] == REFUSED)
        assert changed.is_set()
        assert results.count(REFUSED) <= 2
        async with listening(port=instance.place.port):
            await eventually(lambda: made.passes(instance.place))


async def test_one_that_answers_late_once_stays_and_twice_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TIMEOUT", 0.3)
    async with checking() as (made, results, _), listening() as instance:
        followed(made, instance)
        await eventually(lambda: made.passes(instance.place))
        instance.reply = None
        await eventually(lambda: SILENT in results)
        assert made.passes(instance.place)
        await eventually(lambda: made.results[instance.place] == SILENT)
        assert results.count(SILENT) >= 2


async def test_those_that_drain_and_those_that_are_gone_are_not_asked() -> None:
    async with checking() as (made, _, _), listening() as one, listening() as other:
        followed(made, one, other)
        await eventually(lambda: made.passes(one.place) and made.passes(other.place))
        followed(made, one)
        assert not made.passes(other.place)
        asked, before = other.asked, one.asked
        await eventually(lambda: one.asked > before + 3)
        assert other.asked <= asked + 1
        followed(made, one, is_ready=False)
        assert made.results == {}
