"""What a supervisor sends a worker: one line of JSON on its stdin, for settings hold secrets, which arguments and
the environment would show. The pipe ends when the supervisor ends, however that happens, and so does the worker."""

import socket
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, SecretStr

from slb.config import Settings
from slb.listening import Sockets, listening_unix_socket

LISTENING = b"listening\n"
"""A worker's first line on stdout, once clients can connect: with a table, or after it has waited long for one."""

READY = b"ready\n"
"""Its second and last, once it has a table."""


class Job(BaseModel):
    """`data_fds`: inherited listening sockets; `api_path`: the unix socket of the worker's API; `api_addresses`:
    the supervisor's API, which is no upstream either; `worker`: its number, for the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Settings
    data_fds: list[int]
    api_path: Path
    api_addresses: list[tuple[str, int]]
    worker: str

    def to_line(self) -> bytes:
        """With the secrets in it: for the pipe only."""
        body = self.model_dump(mode="json", exclude={"settings"})
        return orjson.dumps({"settings": _revealed(self.settings), **body}) + b"\n"

    def sockets(self) -> Sockets:
        """The worker's listeners, of which traffic's are shared with all other workers."""
        data = [socket.socket(fileno=fd) for fd in self.data_fds]
        for each in data:
            each.setblocking(False)
        return Sockets(data, listening_unix_socket(self.api_path), self.api_addresses)


def _revealed(settings: Settings) -> dict[str, object]:
    values = settings.model_dump(mode="json", exclude_none=True)
    for name in values:
        secret = getattr(settings, name)
        if isinstance(secret, SecretStr):
            values[name] = secret.get_secret_value()
    return values
