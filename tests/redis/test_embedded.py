"""`embedded://`: one server for all processes of a data directory."""

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import SimpleNamespace

import pytest
from redis import Redis
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control import embedded
from slb.control.connection import Connection, connect
from slb.control.embedded import EmbeddedServer
from slb.control.valkey_process import ValkeyProcess, write_fault
from slb.errors import ConfigError, RedisRefused
from slb.observe.metrics import Metrics
from tests.support.waiting import eventually

_USER = """
import asyncio, sys
from pathlib import Path
from slb.control.embedded import EmbeddedServer

async def main():
    server = EmbeddedServer(Path(sys.argv[1]), revive=False)
    await server.acquire()
    print(server.process.pid(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.release()

asyncio.run(main())
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A short directory; whatever server a failed test leaves in it is killed."""
    directory = Path(mkdtemp(prefix="slb-embedded-"))
    yield directory
    ValkeyProcess(directory / "valkey").kill()
    rmtree(directory, ignore_errors=True)


def a_user(data_dir: Path) -> subprocess.Popen[str]:
    """Another process that uses the server, until its input ends. Its first line is the server's pid."""
    command = [sys.executable, "-c", _USER, str(data_dir)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def server_pid(user: subprocess.Popen[str]) -> int:
    assert user.stdout is not None
    return int(user.stdout.readline())


def client(server: EmbeddedServer) -> Redis:
    return Redis(unix_socket_path=str(server.process.socket), decode_responses=True, protocol=2)


@pytest.mark.parametrize("open_to_all", ["", "valkey"])
async def test_a_server_where_others_may_write_is_not_adopted(data_dir: Path, open_to_all: str) -> None:
    """Any user could have put it there, and would get every route, and decide where requests go."""
    planted = ValkeyProcess(data_dir / "valkey")
    (data_dir / "valkey").mkdir(mode=0o700)
    planted.start()
    (data_dir / open_to_all).chmod(0o777)
    with pytest.raises(ConfigError, match=r"^data_dir: others may write to .* chmod go-w "):
        await EmbeddedServer(data_dir).acquire()
    assert planted.alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("name", ["", "valkey", "valkey/valkey.sock", "valkey/server.lock"])
async def test_a_file_of_another_user_is_not_adopted(data_dir: Path, name: str) -> None:
    planted = ValkeyProcess(data_dir / "valkey")
    (data_dir / "valkey").mkdir(mode=0o700)
    planted.start()
    os.chown(data_dir / name, 12345, -1)
    with pytest.raises(ConfigError, match=r"^data_dir: "):
        await EmbeddedServer(data_dir).acquire()


async def test_the_data_is_for_its_user_alone(data_dir: Path) -> None:
    below = data_dir / "made"
    server = EmbeddedServer(below)
    await server.acquire()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (below, below / "valkey")] == [0o700, 0o700]
    await server.release()


@pytest.mark.parametrize("besides", [[], ["another-file"]])
async def test_a_servers_directory_that_others_may_read_is_closed_to_them(
    data_dir: Path, besides: list[str]
) -> None:
    """As it was made under a umask of 022, when it was not private yet."""
    server = EmbeddedServer(data_dir, revive=False)
    await server.acquire()
    await server.release()
    for name in besides:
        (data_dir / name).touch()
    server.directory.chmod(0o755)
    with capture_logs() as logs:
        await server.acquire()
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    assert [line["path"] for line in logs if line["event"] == "closed_to_others"] == [str(server.directory)]
    await server.release()


async def test_a_folder_named_valkey_that_holds_what_is_not_the_servers_keeps_its_mode(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, revive=False)
    server.directory.mkdir()
    (server.directory / "README.md").touch()
    server.directory.chmod(0o755)
    await server.acquire()
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o755
    await server.release()


def test_processes_share_one_server_and_the_last_out_stops_it(data_dir: Path) -> None:
    process = ValkeyProcess(data_dir / "valkey")
    with a_user(data_dir) as one, a_user(data_dir) as other:
        assert server_pid(one) == server_pid(other)
        one.communicate()
        assert process.answers()
        other.communicate()
        assert not process.alive()
    assert (one.returncode, other.returncode) == (0, 0)


async def test_an_orphan_of_a_crash_is_adopted_and_stopped_by_the_next(data_dir: Path) -> None:
    with a_user(data_dir) as crashing:
        orphan = server_pid(crashing)
        crashing.send_signal(signal.SIGKILL)
        crashing.wait()
        server = EmbeddedServer(data_dir)
        await server.acquire()
        assert server.process.pid() == orphan
        await server.release()
        assert not server.process.alive()


async def test_data_survives_a_stop_and_a_start(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.acquire()
    with client(server) as redis:
        redis.sadd("slb_a", "10.1.1.1:1")
    await server.release()
    await server.acquire()
    with client(server) as redis:
        assert redis.smembers("slb_a") == {"10.1.1.1:1"}
    await server.release()


async def test_a_killed_server_is_brought_back_with_its_data(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.acquire()
    with client(server) as redis:
        redis.config_set("appendfsync", "always")
        redis.sadd("slb_a", "10.1.1.1:1")
    before = server.process.pid()
    server.process.kill()
    await eventually(lambda: server.process.answers())
    assert server.process.pid() != before
    with client(server) as redis:
        assert redis.smembers("slb_a") == {"10.1.1.1:1"}
    await server.release()


async def test_a_server_that_dies_after_descriptors_had_run_out_is_still_brought_back(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def exhausted(_: ValkeyProcess) -> bool:
        nonlocal looks
        looks += 1
        raise OSError(errno.EMFILE, "Too many open files")

    server = EmbeddedServer(data_dir)
    await server.acquire()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(ValkeyProcess, "alive", exhausted)
            await eventually(lambda: looks >= 2)
        server.process.kill()
        await eventually(server.process.answers)
    finally:
        await server.release()


async def test_a_suspended_server_stays_dead_until_resumed(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.acquire()
    await server.suspend()
    server.process.kill()
    with pytest.raises(AssertionError):
        await eventually(lambda: server.process.alive(), timeout=0.5)
    server.resume()
    await eventually(lambda: server.process.answers())
    await server.release()


class Held:
    """A method that waits in its thread until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        method = getattr(owner, name)

        def late(*arguments: object) -> None:
            self.begun.set()
            self.let_go.wait(20)
            method(*arguments)

        patch.setattr(owner, name, late)


async def test_a_cancelled_start_leaves_no_server(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = Held(monkeypatch, ValkeyProcess, "_spawn")
    server = EmbeddedServer(data_dir, revive=False)
    acquiring = asyncio.create_task(server.acquire())
    await asyncio.to_thread(spawn.begun.wait, 20)
    acquiring.cancel()
    asyncio.get_running_loop().call_later(0.1, spawn.let_go.set)
    await asyncio.wait((acquiring,))
    assert acquiring.cancelled()
    await server.release()
    assert not server.process.alive()


async def test_a_server_that_is_being_brought_back_when_its_last_user_leaves_is_stopped(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedServer(data_dir)
    await server.acquire()
    start = Held(monkeypatch, EmbeddedServer, "_under_start_lock")
    server.process.kill()
    await asyncio.to_thread(start.begun.wait, 20)
    monkeypatch.undo()
    asyncio.get_running_loop().call_later(0.1, start.let_go.set)
    await server.release()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not server.process.alive()


async def test_a_stale_socket_and_pid_file_do_not_hinder_a_start(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, revive=False)
    await server.acquire()
    server.process.kill()
    (data_dir / "valkey" / "valkey.pid").write_text(str(os.getpid()))
    again = EmbeddedServer(data_dir, revive=False)
    await again.acquire()
    assert again.process.answers()
    await server.release()
    assert again.process.answers()
    await again.release()


async def test_a_path_too_long_for_a_socket_gets_a_short_one(data_dir: Path) -> None:
    deep = data_dir / ("d" * 120)
    server = EmbeddedServer(deep, revive=False)
    url = await server.acquire()
    assert len(url) < 100
    assert server.process.answers()
    place = server.process.socket.parent
    again = EmbeddedServer(deep, revive=False)
    await again.acquire()
    await server.release()
    assert place.is_dir()
    await again.release()
    assert not place.exists()
    await server.acquire()
    assert server.process.answers()
    await server.release()
    assert not place.exists()


async def test_a_server_that_cannot_come_back_is_logged_once(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedServer(data_dir, revive=False)
    await server.acquire()
    tries: list[float] = []
    with capture_logs() as logs:

        def fails() -> None:
            tries.append(0)
            raise ConfigError(f"no room {len(tries) // 3}")

        monkeypatch.setattr(embedded, "_REVIVE_INTERVAL", 0.001)
        monkeypatch.setattr(server.process, "start", fails)
        server.process.kill()
        server.resume()
        await eventually(lambda: len(tries) >= 7)  # the sixth is in the log by then
        await server.suspend()
    faults = [line["error"] for line in logs if line["event"] == "embedded_valkey_not_revived"]
    assert faults[:3] == ["no room 0", "no room 1", "no room 2"]
    assert len(faults) == len(set(faults))
    assert [line["event"] for line in logs].count("embedded_valkey_died") == 1
    await server.release()


async def test_a_data_directory_that_cannot_be_used_is_one_clear_error(data_dir: Path) -> None:
    (data_dir / "file").write_text("")
    with pytest.raises(ConfigError, match=r"^data_dir: .*file/valkey"):
        await EmbeddedServer(data_dir / "file").acquire()


async def test_a_damaged_data_file_is_one_clear_error_and_nothing_is_left_running(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, revive=False)
    await server.acquire()
    await server.release()
    for file in (data_dir / "valkey" / "appendonlydir").glob("*.manifest"):
        file.write_text("nonsense\n")
    with pytest.raises(ConfigError, match="does not start: ") as caught:
        await server.acquire()
    assert f"{server.directory}/server.log says more" in str(caught.value)
    assert f"without {server.directory}/appendonlydir it starts empty" in str(caught.value)
    assert not server.process.alive()


async def test_ctrl_c_in_a_terminal_is_not_for_the_server(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, revive=False)
    await server.acquire()
    pid = server.process.pid()
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    await server.release()


async def test_connect_uses_the_data_directory_of_the_settings(data_dir: Path) -> None:
    connection = await connect(Settings(data_dir=data_dir), Metrics())
    assert connection.up
    assert connection.embedded is not None
    assert connection.embedded.directory == data_dir / "valkey"
    await connection.aclose()
    assert not connection.embedded.process.alive()


async def test_a_connection_that_redis_refuses_leaves_the_server(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Connection) -> None:
        assert ValkeyProcess(data_dir / "valkey").alive()
        raise RedisRefused("no")

    monkeypatch.setattr(Connection, "probe", refuse)
    with pytest.raises(RedisRefused):
        await connect(Settings(data_dir=data_dir), Metrics())
    assert not ValkeyProcess(data_dir / "valkey").alive()


async def test_where_nothing_can_be_written_that_is_said_rather_than_what_the_server_said_last(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedServer(data_dir, revive=False)
    await server.acquire()
    await server.release()
    for file in (data_dir / "valkey" / "appendonlydir").glob("*.manifest"):
        file.write_text("nonsense\n")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("slb.control.valkey_process.os.fsync", full)
    with pytest.raises(ConfigError, match=r"does not start: .*/valkey cannot be written: No space"):
        await server.acquire()


def test_a_disk_without_room_is_called_full(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_fault(data_dir) == ""
    monkeypatch.setattr("slb.control.valkey_process.shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    assert write_fault(data_dir) == f"the disk of {data_dir} is full"
