"""`slb serve` under a service manager: what it tells, and the sockets that it is passed."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.process.commands import Commands
from tests.process.takeovers import take_over
from tests.support.systemd import as_systemd
from tests.support.valkey import Valkey
from tests.support.waiting import soon, until_found, within


class Manager:
    """Hears what services tell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard.bind(str(path))
        self._heard.setblocking(False)

    async def told(self) -> dict[str, str]:
        """The next message."""
        text = await soon(asyncio.get_running_loop().sock_recv(self._heard, 10_000))
        return dict(line.split("=", 1) for line in text.decode().splitlines())

    def is_silent(self) -> bool:
        try:
            return not self._heard.recv(1)
        except BlockingIOError:
            return True

    def close(self) -> None:
        self._heard.close()
        self.path.unlink()


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    place = Path("/tmp") / f"slb-manager-{os.getpid()}"  # a path under pytest's is too long for an address
    made = Manager(place)
    yield made
    made.close()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_it_tells_when_it_is_ready_reloads_and_stops(
    slb: Commands, valkey: Valkey, manager: Manager, workers: str
) -> None:
    serving = await slb.serve("--workers", workers, redis=valkey.url, env={"NOTIFY_SOCKET": str(manager.path)})
    ready = await manager.told()
    assert (ready["READY"], ready["MAINPID"]) == ("1", str(serving.process.pid))
    assert ready["STATUS"] == serving.line
    os.kill(serving.process.pid, signal.SIGHUP)
    reloading = await manager.told()
    assert (reloading["RELOADING"], reloading["MONOTONIC_USEC"].isdecimal()) == ("1", True)
    assert await manager.told() == {"READY": "1"}
    assert await serving.process.stop() == 0
    assert await manager.told() == {"STOPPING": "1"}
    assert manager.is_silent()


async def test_a_takeover_makes_the_new_process_the_main_one_and_nothing_stops(
    slb: Commands, valkey: Valkey, manager: Manager
) -> None:
    env = {"NOTIFY_SOCKET": str(manager.path)}
    old = await slb.serve(redis=valkey.url, env=env)
    assert (await manager.told())["MAINPID"] == str(old.process.pid)
    new = await take_over(slb, valkey, old, env=env)
    ready = await manager.told()
    assert (ready["READY"], ready["MAINPID"]) == ("1", str(new.process.pid))
    assert await manager.told() == {"MAINPID": str(new.process.pid)}, "by the old one, which is believed too"
    assert await old.process.ended() == 0
    assert manager.is_silent()


@asynccontextmanager
async def activated(
    slb: Commands, valkey: Valkey, names: str, *sockets: socket.socket
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`slb serve` with these sockets; it serves."""
    env = {**os.environ, "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
    api = f"127.0.0.1:{sockets[-1].getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        *(*as_systemd(*sockets), "-m", "slb", "serve", "--listen", "127.0.0.1:1", "--api", api),
        *("--redis", valkey.url, "--data-dir", str(slb.directory / "data")),
        env=env,
        pass_fds=[each.fileno() for each in sockets],
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with within(30):
            await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_passed_sockets_are_served_by_name_and_by_address_and_their_queues_outlive_the_process(
    slb: Commands, valkey: Valkey
) -> None:
    _, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    with socket.create_server(("127.0.0.1", 0)) as data, socket.create_server(("127.0.0.1", 0)) as api:
        host, port = data.getsockname()
        async with activated(slb, valkey, "data:any", data, api) as first:
            api_url = f"http://127.0.0.1:{api.getsockname()[1]}"
            await slb.until_status(f"{api_url}/readyz", 200)
            assert (await slb.get(f"http://{host}:{port}/p"))[0] == 200
            first.terminate()
            assert await soon(first.wait(), 30) == 0
        waits = asyncio.create_task(slb.get(f"http://{host}:{port}/p"))  # between two lives: nobody accepts

        async def is_queued() -> bool:
            return not waits.done()

        await until_found(is_queued)
        async with activated(slb, valkey, "data:any", data, api):
            assert (await soon(waits))[0] == 200
