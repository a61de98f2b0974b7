"""Processes of Debian's redis-server that know of each other: one node of a trio or of a cluster."""

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.support.certificates import Authority
from tests.support.redis_server import BINARY
from tests.support.waiting import wait_until

HOST = "127.0.0.1"

_ANSWER_SECONDS = 1.0


class RedisServer(Protocol):
    """Where instances find Redis, and clients of the tests' own: of some server, and of the one that has a key."""

    @property
    def url(self) -> str: ...

    @property
    def admin(self) -> Any: ...

    def admin_of(self, key: str) -> Any: ...


class NoMaster(Exception):
    """None takes writes at the moment."""


class RedisNode:
    """One process, with `words` as its options; its files are in `folder`. It runs until `close`. With an
    `authority` it speaks TLS alone, to other nodes too."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *words: str,
        password: str = "",
        config: Path | None = None,
        authority: Authority | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.port = port
        self.bus = 0
        self._log = folder / f"{port}.log"
        listens = ("--port", str(port)) if authority is None else tls_words(authority, port)
        where = (*listens, "--bind", HOST, "--dir", str(folder), "--logfile", str(self._log))
        self._command = [str(BINARY), *([str(config)] if config else ()), *where, *words]
        self._admin: Any = Redis(
            host=HOST,
            port=port,
            password=password or None,
            decode_responses=True,
            protocol=2,
            socket_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 1),
            ssl=authority is not None,
            ssl_ca_certs=None if authority is None else str(authority.file),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._is_frozen = False
        self.start()

    @property
    def admin(self) -> Any:
        """A blocking client. Raises RedisError at once while it is frozen: waiting for that would stop the event
        loop of the test, and all that is served there, for seconds."""
        if self._is_frozen:
            raise RedisError(f"{self.address} is frozen")
        return self._admin

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def runs(self) -> bool:
        """Whether there is a process that answers, or would if it were thawed."""
        return self._process is not None

    def start(self) -> None:
        """Start it with the data it had, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers, 10.0, f"an answer; see {self._log}")

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._is_frozen = False

    def freeze(self) -> None:
        """It holds its connections and answers nothing."""
        assert self._process is not None
        self._is_frozen = True
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._is_frozen = False

    def mend(self) -> None:
        """Whatever was done to it: it runs."""
        if self._process is None:
            self.start()
        elif self._is_frozen:
            self.thaw()

    def close(self) -> None:
        """End it, and the tests' own connections."""
        self._admin.close()
        self.kill()

    def answers(self) -> bool:
        try:
            return bool(self.admin.ping())
        except (RedisError, OSError):
            return False

    def info(self, section: str) -> dict[str, Any]:
        """INFO; empty where it does not answer."""
        try:
            found: dict[str, Any] = self.admin.info(section)
        except (RedisError, OSError):
            return {}
        return found


def tls_words(authority: Authority, port: int) -> tuple[str, ...]:
    """Options of a server or a Sentinel that listens with a certificate of its own, and trusts those alike."""
    certificate, _, key = authority.issue(f"node-{port}", HOST).partition(":")
    files = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", str(authority.file))
    manner = ("--tls-replication", "yes", "--tls-cluster", "yes", "--tls-auth-clients", "no")
    return ("--port", "0", "--tls-port", str(port), *files, *manner)


def closing(stack: ExitStack, node: RedisNode) -> RedisNode:
    """The node, which ends with the stack."""
    stack.callback(node.close)
    return node
