"""A real Valkey server of one test: start it, kill it, freeze it, empty it."""

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import cast

from redis import Redis

from slb.control.valkey_process import ValkeyProcess


class Valkey:
    """Listens on a unix socket in a short private directory; `options` are lines of its configuration."""

    def __init__(self, **options: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="slb-valkey-"))
        named = {name.replace("_", "-"): value for name, value in options.items()}
        self.process = self._made(named)
        self._clients: list[Redis] = []
        self.start()

    def _made(self, options: dict[str, str]) -> ValkeyProcess:
        return ValkeyProcess(self.directory, options)

    @property
    def url(self) -> str:
        """For `redis_url`."""
        return f"unix://{self.process.socket}"

    @property
    def admin(self) -> Redis:
        """A blocking client of the tests' own, as redis-cli would be."""
        client = Redis(unix_socket_path=str(self.process.socket), decode_responses=True, protocol=2)
        self._clients.append(client)
        return client

    def admin_of(self, key: str) -> Redis:
        """The same: it has every key."""
        return self.admin

    def listeners(self, channel: str) -> int:
        """How many connections are subscribed to it."""
        [(_, count)] = cast("list[tuple[str, int]]", self.admin.pubsub_numsub(channel))
        return count

    def start(self) -> None:
        """Start it, with the data it had."""
        self.process.start()

    def kill(self) -> None:
        """End it as a crash would; what was written a second ago is in its file, and so is the rest."""
        self.process.kill()

    def lose_data(self) -> None:
        """Remove the file of a server that does not run."""
        shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)

    def freeze(self) -> None:
        """It holds its connections and answers nothing."""
        os.kill(self._pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        os.kill(self._pid(), signal.SIGCONT)

    def close(self) -> None:
        """Stop it and remove everything."""
        for client in self._clients:
            client.close()
        self.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _pid(self) -> int:
        pid = self.process.pid()
        assert pid is not None
        return pid
