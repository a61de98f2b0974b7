"""`slb` processes that need not import slb first, which takes most of a second of CPU each: a server that has
imported it forks. Such a process differs from `python -m slb` in what Python does before slb's first line, and in
its hash seed, which is that of its server.

As a program this file is that server. It takes orders from the socket whose descriptor is its argument.
"""

import asyncio
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from slb.demo.processes import Process

_IMPORTED = ("slb.cli", "slb.running", "slb.router", "slb.standin", "slb.supervisor")
_LENGTH = struct.Struct("!I")


class ForkedProcess:
    """One process, used as an asyncio.subprocess.Process is."""

    def __init__(
        self,
        pid: int,
        status: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        stdin: asyncio.WriteTransport,
        outputs: Sequence[tuple[asyncio.StreamReader, asyncio.BaseTransport]],
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout, *self._stderr = (reader for reader, _ in outputs)
        self._transports = [stdin, *(transport for _, transport in outputs)]
        self._code = asyncio.ensure_future(_number(*status))

    @property
    def returncode(self) -> int | None:
        """As subprocess has it, once the process has ended."""
        return self._code.result() if self._code.done() else None

    def send_signal(self, number: int) -> None:
        if not self._code.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.shield(self._code)

    async def communicate(self) -> tuple[bytes, bytes]:
        """All that it writes, once it has ended; there is nothing on its stdin."""
        self.stdin.close()
        out, err, _ = await asyncio.gather(self.stdout.read(), self._stderr[0].read(), self.wait())
        return out, err

    def close(self) -> None:
        """Close what is left of its pipes."""
        for transport in self._transports:
            transport.close()


class ForkServer:
    """Starts `slb` processes. Its own process ends with this one."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """End the server; what it has started goes on."""
        self._orders.close()
        self._process.wait()

    async def start(
        self, *arguments: str, env: Mapping[str, str], stderr: IO[bytes] | None = None
    ) -> ForkedProcess:
        """`slb ARGUMENTS...`, in a session of its own. Its stdin and stdout are pipes, and its stderr is one where
        no file is given for it."""
        stdin, to_stdin = os.pipe()
        outputs, theirs = [], [stdin]
        for file in (None, stderr):
            ours, other = (None, os.dup(file.fileno())) if file else os.pipe()
            theirs.append(other)
            if ours is not None:
                outputs.append(await _reader(ours))
        status, handler = socket.socketpair()
        with handler:
            self._send(arguments, env, [*theirs, handler.fileno()])
        for descriptor in theirs:
            os.close(descriptor)
        writing, _ = await asyncio.get_running_loop().connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(to_stdin, "wb", buffering=0)
        )
        reader, writer = await asyncio.open_connection(sock=status)
        return ForkedProcess(int(await reader.readline()), (reader, writer), writing, outputs)

    def _send(self, arguments: Sequence[str], env: Mapping[str, str], descriptors: list[int]) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        order = json.dumps([arguments, dict(env), str(Path.cwd()), limits]).encode()
        socket.send_fds(self._orders, [_LENGTH.pack(len(order))], descriptors)
        self._orders.sendall(order)


class ForkedProcesses:
    """`slb.demo.processes.Processes` by a fork server."""

    def __init__(self, directory: Path, slowness: float, server: ForkServer) -> None:
        self._directory = directory
        self._slowness = slowness
        self._server = server
        self._started: list[tuple[Process, ForkedProcess]] = []

    async def slb(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """`slb ARGUMENTS...`, without this process's SLB_ settings and with `env`."""
        log = self._directory / f"{name}.log"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SLB_")}
        with log.open("ab") as stderr:
            forked = await self._server.start(*arguments, env={**inherited, **(env or {})}, stderr=stderr)
        process = Process(name, cast("asyncio.subprocess.Process", forked), log, self._slowness)
        self._started.append((process, forked))
        return process

    async def stop_all(self) -> None:
        """All at once; returns when all have ended."""
        await asyncio.gather(*(process.stop() for process, _ in self._started))
        for _, forked in self._started:
            forked.close()
        self._started.clear()


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _number(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """The last line printed there."""
    number = int(await reader.readline())
    writer.close()
    return number


def _serve(orders: socket.socket) -> None:
    """Start what is ordered, until the other end is closed. Raises SystemExit in a process that was started, at its
    end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the processes that wait for others are not waited for
    while (received := socket.recv_fds(orders, _LENGTH.size, 4))[0]:
        length, descriptors = _LENGTH.unpack(received[0])[0], received[1]
        order = b""
        while len(order) < length:
            order += orders.recv(length - len(order))
        if os.fork() == 0:
            orders.close()
            _attend(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _attend(order: bytes, descriptors: list[int]) -> None:
    """Start one process, report its pid and its exit code, a line each, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, status = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(standard, *json.loads(order))
    for descriptor in standard:
        os.close(descriptor)
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    with suppress(OSError):  # the tests are gone
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _become(
    standard: list[int], arguments: list[str], env: dict[str, str], directory: str, limits: list[int]
) -> None:
    """Be `slb ARGUMENTS...`. Raises SystemExit."""
    os.setsid()
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0], limits[1]))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["slb", *arguments]
    runpy.run_module("slb", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in each process would copy all of this one's memory
    _serve(socket.socket(fileno=int(sys.argv[1])))
