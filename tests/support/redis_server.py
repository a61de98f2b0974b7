"""Debian's redis-server, of one test: with a file of users, and files of its own."""

import shutil
import subprocess
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests.support.waiting import wait_until

BINARY = shutil.which("redis-server")

_START_TIME = 10.0


class RedisServer:
    """Listens on a unix socket in `folder`, with `acl` as its file of users; `user`: as which `admin` logs in."""

    def __init__(self, folder: Path, acl: list[str], user: str, password: str, **options: str) -> None:
        self._folder = folder
        self._socket = folder / "redis.sock"
        self._login = (user, password)
        (folder / "users.acl").write_text("".join(f"{line}\n" for line in acl))
        named = {name.replace("_", "-"): value for name, value in options.items()}
        fixed = {"port": "0", "unixsocket": str(self._socket), "dir": str(folder)}
        files = {"aclfile": str(folder / "users.acl"), "logfile": str(folder / "redis.log")}
        self._options = {**fixed, **files, **named}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """For `redis_url`."""
        return f"unix://{self._login[0]}:{self._login[1]}@{self._socket}"

    def admin(self, user: str, password: str) -> Redis:
        """A blocking client that logs in."""
        return Redis(
            unix_socket_path=str(self._socket), username=user, password=password, decode_responses=True, protocol=2
        )

    def start(self) -> None:
        """Start it with the data it had, and wait until it answers."""
        words = [word for name, value in self._options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([str(BINARY), *words], stdout=subprocess.DEVNULL)
        wait_until(self._answers, _START_TIME, f"an answer; see {self._folder}/redis.log")

    def stop(self) -> None:
        """End it cleanly: it writes its files first."""
        self._end("terminate")

    def kill(self) -> None:
        """End it as a crash would."""
        self._end("kill")

    def _end(self, how: str) -> None:
        if self._process is not None:
            getattr(self._process, how)()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with self.admin(*self._login) as client:
                return bool(client.ping())
        except (RedisError, OSError):
            return False
