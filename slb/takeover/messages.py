"""What the two processes say to each other: one line of JSON at a time."""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field

from slb.errors import SlbError
from slb.given_sockets import Place

MOST_SOCKETS = 250
"""What one message may carry: the kernel's limit is 253."""
LONGEST = 64 * 1024
"""Bytes of a line."""
READY, LEFT = b"ready\n", b"left\n"
UNDER_WAY = "takeover_under_way"
NAME = "takeover-{}.sock"

_CREDENTIALS = struct.Struct("iII")


class TakeoverRefused(SlbError):
    """The sockets of another process cannot be taken; the message begins with a name."""


class StoppedEarly(SlbError):
    """This process was asked to stop before it served."""


class Stranger(SlbError):
    """The process at the other end is another user's, or says what no slb says."""


class Message(BaseModel):
    """Unknown fields are passed over: the other process may be of a later version."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_line(self) -> bytes:
        return orjson.dumps(self.model_dump()) + b"\n"


class Hello(Message):
    """`network`: the boot and the namespace in which `places` are, as `slb.control.processes` has them."""

    name: str
    network: str
    places: list[Place] = Field(max_length=MOST_SOCKETS)


class Take(Message):
    """Numbers in `places`."""

    take: list[int] = Field(max_length=MOST_SOCKETS)


class Answer(Message):
    """With the sockets, or the reason why there are none; `by`: the process that was first."""

    refused: str = ""
    by: int = 0


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """What a unix socket at `path` may be called meanwhile: its own name may be longer than an address holds.
    Raises OSError."""
    if sys.platform != "linux":
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def remove_if_dead(path: Path) -> None:
    """Remove the socket of a process that was killed: nobody listens there. One that begins to has its name only
    then. So each start removes what the crashes before it have left."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.setblocking(False)
        try:
            with short_name(path) as name:
                connection.connect(name)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)


def process_at(peer: socket.socket) -> int:
    """The process id at the other end of a unix socket. Raises Stranger where it is not of this user. Where the
    system does not tell (0), the mode of the directory has kept others out."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    pid, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    if user != os.geteuid():
        raise Stranger(f"process {pid} belongs to the user {user}")
    return int(pid)
