"""The Redis of a long run: the embedded Valkey, or any server program; with older data, or another in its place."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Cut
from redis.exceptions import RedisError
from redis.retry import Retry

from bench.ports import free_port
from slb.control.valkey_process import ValkeyProcess
from slb.errors import ConfigError
from tests.support.valkey import Valkey

_DATA, _COPY = "appendonlydir", "copy"
_TRIES = 3
_LOOPBACK = "127.0.0.1"
_REPLICATED_SECONDS = 20.0
_POLL = 0.01


class _Program(ValkeyProcess):
    """A server run by the program at `program`."""

    def __init__(self, program: Path, directory: Path, options: dict[str, str]) -> None:
        super().__init__(directory, options)
        self._program = program

    def _command(self) -> list[str]:
        return [str(self._program), *super()._command()[1:]]


class _Node(Valkey):
    """One server process. It also listens on a TCP port of loopback, by which servers replicate. What it has
    answered is in its file; with `appendfsync everysec` a sync under way may hold that up."""

    def __init__(self, program: Path | None) -> None:
        self._program = program
        self.port = free_port()
        try:
            super().__init__(port=str(self.port), bind=_LOOPBACK, appendfsync="no", repl_diskless_sync_delay="0")
        except ConfigError:
            shutil.rmtree(self.directory)
            raise

    def _made(self, options: dict[str, str]) -> ValkeyProcess:
        if self._program is None:
            return super()._made(options)
        return _Program(self._program, self.directory, options)

    @cached_property
    def commands(self) -> Any:
        """A client for the whole run, that connects again when it is cut."""
        client = Redis(
            unix_socket_path=str(self.process.socket),
            decode_responses=True,
            protocol=2,
            retry=Retry(NoBackoff(), _TRIES, supported_errors=(Cut,)),
        )
        self._clients.append(client)
        return client

    def info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self.commands.info(section)
        return found

    def offset(self) -> int:
        """How far it has come in what a master replicates."""
        return int(self.info("replication")["master_repl_offset"])

    def is_synced(self) -> bool:
        """Whether this replica has all, in its own file too."""
        return self.info("replication").get("master_link_status") == "up" and self.has_rewritten()

    def has_rewritten(self) -> bool:
        """Whether no rewrite of its file is under way."""
        file = self.info("persistence")
        return not (file["aof_rewrite_in_progress"] or file["aof_rewrite_scheduled"])


class Server:
    """What instances use as Redis: one address, and a server behind it. `program`: None for the embedded Valkey.

    The address is a symbolic link to the socket of a server. To fail over is to point it to another: what
    connects then meets that one, and connections to the one before stay, as they do where a name moves.
    """

    def __init__(self, program: Path | None) -> None:
        self._program = program
        self._node = _Node(program)
        self.place = Path(tempfile.mkdtemp(prefix="slb-chaos-redis-"))
        self._standby: _Node | None = None
        self._retired: list[_Node] = []
        self.restore_address()

    @property
    def url(self) -> str:
        """For `redis_url`."""
        return f"unix://{self.address}"

    @property
    def address(self) -> Path:
        """Where instances find it."""
        return self.place / "redis.sock"

    @property
    def socket(self) -> Path:
        """Of the server behind the address."""
        return self._node.process.socket

    @property
    def admin(self) -> Any:
        """A blocking client of the server itself, not through the address; it connects again when it is cut."""
        return self._node.commands

    def admin_of(self, key: str) -> Any:
        """The same: it has every key."""
        return self.admin

    @property
    def version(self) -> str:
        """As the server names itself."""
        found = self._node.info("server")
        name = "valkey" if "valkey_version" in found else "redis"
        return f"{name} {found[f'{name}_version']}"

    @property
    def run_id(self) -> str:
        """Another one where another process has come, be it with the same data."""
        return str(self._node.info("server")["run_id"])

    def point_to(self, there: Path) -> None:
        """Who connects from now on meets what listens there."""
        new = self.place / "new"
        new.symlink_to(there)
        new.rename(self.address)

    def restore_address(self) -> None:
        """Who connects from now on meets the server."""
        self.point_to(self.socket)

    def close(self) -> None:
        """Stop all, and remove everything."""
        for node in filter(None, (self._node, self._standby, *self._retired)):
            node.close()
        shutil.rmtree(self.place, ignore_errors=True)

    # -- one process

    def start(self) -> None:
        """Start it, with the data it had."""
        self._node.start()

    def kill(self) -> None:
        """End it as a crash would."""
        self._node.kill()

    def freeze(self) -> None:
        """It holds its connections and answers nothing."""
        self._node.freeze()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._node.thaw()

    # -- its data

    def lose_data(self) -> None:
        """Of a killed server: it will start empty."""
        self._node.lose_data()

    def keep_copy(self) -> None:
        """Put aside what it has now; its file is whole but for a last entry that is being written."""
        copy = self._node.directory / _COPY
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._node.directory / _DATA, copy)

    def return_to_copy(self) -> None:
        """Of a killed server: it will start with what was put aside."""
        self.lose_data()
        (self._node.directory / _COPY).rename(self._node.directory / _DATA)

    def written(self) -> int:
        """How many bytes the file that it appends to has."""
        return self._appended().stat().st_size

    def cut_file(self, size: int) -> None:
        """Of a killed server: what was written behind so many bytes is lost."""
        os.truncate(self._appended(), size)

    def rewrite_file(self) -> None:
        """Write its file anew. Redis 7.0 leaves the first half of a transaction that was cut in it: the next start
        runs that, or drops all that stands behind (mended in Valkey, valkey#4342)."""
        self._node.commands.bgrewriteaof()
        _until(self._node.has_rewritten)

    def _appended(self) -> Path:
        found = (self._node.directory / _DATA).glob("*.incr.aof")
        return max(found, key=lambda file: int(file.name.split(".")[-3]))

    # -- another server in its place

    def replicate(self) -> None:
        """Start a replica; it has all when this returns."""
        assert self._standby is None
        self._standby = _Node(self._program)
        self._standby.commands.replicaof(_LOOPBACK, self._node.port)
        _until(self._standby.is_synced)

    def stop_replicating(self) -> None:
        """The replica receives nothing from now on, and takes writes, as one that a sentinel has promoted."""
        assert self._standby is not None
        self._standby.commands.replicaof("NO", "ONE")

    def hand_over(self) -> None:
        """The two change their parts, while writes wait until the replica has all. The one that served refuses them
        then. (FAILOVER does the same, but the replica reports only now and then what it has: up to seconds.)"""
        assert self._standby is not None
        old, new = self._node, self._standby
        old.commands.client_pause(round(_REPLICATED_SECONDS * 1000), all=False)
        _until(lambda: new.offset() == old.offset())
        new.commands.replicaof("NO", "ONE")
        old.commands.replicaof(_LOOPBACK, new.port)
        old.commands.client_unpause()

    def fail_over(self) -> None:
        """The address leads to the other server. The one that served runs on, until it is retired."""
        assert self._standby is not None
        self._retired.append(self._node)
        self._node, self._standby = self._standby, None
        self.restore_address()

    def retire(self) -> None:
        """Kill the one that served before."""
        self._retired.pop().close()


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _REPLICATED_SECONDS
    while not _is(is_so):
        if time.monotonic() > end:
            raise TimeoutError("the server has not done it")
        time.sleep(_POLL)


def _is(is_so: Callable[[], bool]) -> bool:
    try:
        return is_so()
    except RedisError:  # it loads what it was sent
        return False
