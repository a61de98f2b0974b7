"""Another program at Redis's address, that answers in Redis's protocol what no Redis would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from slb.control import keys
from tests.process.commands import Commands, Serving
from tests.support.relay import Relay
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until

_NOT_FINITE = b'{"granted":[],"answers":[],"epoch":"1","late":0,"now":1e400}'
REPLIES = {
    "texts": b"+OK\r\n",
    "numbers": b":1\r\n",
    "nothing": b"$-1\r\n",
    "empty lists": b"*0\r\n",
    "nested lists": b"*2\r\n*1\r\n:1\r\n*2\r\n$-1\r\n+x\r\n",
    "JSON of a number that is not finite": b"$%d\r\n%s\r\n" % (len(_NOT_FINITE), _NOT_FINITE),
    "JSON of another form": b'$14\r\n{"granted": 1}\r\n',
    "messages": b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n+message\r\n:1\r\n*0\r\n*1\r\n+pong\r\n",
    "more replies than commands": b"+OK\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n" * 20,
    "types of RESP3": b">3\r\n+message\r\n+a\r\n+b\r\n_\r\n,nan\r\n#t\r\n(99999999999999999\r\n%1\r\n:1\r\n:2\r\n",
    "errors of an odd form": b"-MOVED\r\n-\r\n-NOSCRIPT\r\n-\xff\xfe\r\n-ASK 1 x\r\n",
    "a list of a billion": b"*1000000000\r\n",
    "a list of a billion in a list": b"*2\r\n+OK\r\n*1000000000\r\n",
}


class NotRedis:
    """Answers `reply` to each command; listens at `path`."""

    def __init__(self, path: Path, reply: bytes) -> None:
        self.path = path
        self._answered = 0
        self._reply = reply

    def has_answered(self, commands: int) -> bool:
        """Whether it has met so many."""
        return self._answered >= commands

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                commands = max(1, (b"\r\n" + data).count(b"\r\n*"))
                writer.write(self._reply * commands)
                await writer.drain()
                self._answered += commands
        writer.close()


@pytest.fixture(params=REPLIES)
async def other(request: pytest.FixtureRequest) -> AsyncIterator[NotRedis]:
    with TemporaryDirectory(prefix="slb-other-") as directory:
        server = NotRedis(Path(directory) / "s", REPLIES[request.param])
        listening = await asyncio.start_unix_server(server.connected, server.path)
        yield server
        listening.close()


async def test_traffic_goes_on_beside_a_program_that_is_no_redis_and_is_shared_again_behind_it(
    slb: Commands, valkey: Valkey, other: NotRedis
) -> None:
    _, member = await slb.upstream("a")
    async with Relay(valkey.process.socket) as relay:
        serving = await slb.until_ready(await slb.serve(redis=relay.url))
        valkey.admin.sadd(keys.route_key("/p"), member)
        valkey.admin.hset(keys.settings_key("/p"), mapping={"max_inflight": "2", "when_full": "queue"})
        await until_shared(slb, serving)
        relay.point_to(other.path)
        for enough in (40, 80):
            await eventually(partial(other.has_answered, enough), timeout=30, what=f"{enough} replies")
            assert (await slb.get(f"{serving.url}/p"))[0] == 200
        relay.point_to(valkey.process.socket)
        await until_shared(slb, serving)
        log = serving.process.log.read_text()
        assert log.count('"redis_down"') <= 2
        assert "Traceback" not in log


async def until_shared(slb: Commands, serving: Serving) -> None:
    """Wait until Redis is followed, and the route's slots are counted there."""

    async def look() -> tuple[bool, list[str]]:
        status, _ = await slb.get(f"{serving.url}/p")
        assert status in (200, 404), status
        found = await slb.json(f"{serving.api}/status")
        return found["redis"]["up"], [pool["mode"] for pool in found["ledger"]["pools"].values()]

    await until(look, lambda found: found == (True, ["shared"]))
