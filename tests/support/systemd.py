"""What systemd does for a service, without systemd."""

import socket
import sys
from collections.abc import Sequence

_PASSES_ON = """
import os, sys
found = [os.fdopen(os.dup(int(each)), "rb", closefd=False) for each in sys.argv[1].split(",")]
moved = [os.dup(each.fileno()) for each in found]
while min(moved) < 3 + len(moved):
    moved = [os.dup(each) for each in moved]
for number, descriptor in enumerate(moved):
    os.dup2(descriptor, 3 + number)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def as_systemd(*sockets: socket.socket) -> Sequence[str]:
    """The command `python`, to be run with `sockets` inherited, which it has as its descriptors from 3 on; set
    LISTEN_FDS and LISTEN_FDNAMES besides."""
    return [sys.executable, "-c", _PASSES_ON, ",".join(str(each.fileno()) for each in sockets)]
