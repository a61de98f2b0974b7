"""`slb` as a user runs it, and what it answered."""

import asyncio
import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout

from slb.demo.processes import Process, Processes
from tests.support.fork_server import ForkedProcess, ForkedProcesses, ForkServer
from tests.support.waiting import patience, soon, until

_RUN_TIMEOUT = 30.0
_URL = re.compile(r"https?://([0-9.]+:[0-9]+)")


@dataclass(frozen=True, slots=True)
class Result:
    """A command that has ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Serving:
    """A `slb serve` that serves: its two listeners, what its one line states, its process."""

    url: str
    api: str
    line: str
    process: Process


class Commands:
    """Starts commands with private directories, by `server` where there is one; `session` is for asking what they
    serve."""

    def __init__(self, directory: Path, server: ForkServer | None = None) -> None:
        self.directory = directory
        self.session = ClientSession(timeout=ClientTimeout(total=patience(20)))
        self._server = server
        self._processes = (
            ForkedProcesses(directory, patience(1), server) if server else Processes(directory, patience(1))
        )
        self._names = 0

    async def close(self) -> None:
        await self.session.close()
        await self._processes.stop_all()

    async def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = _RUN_TIMEOUT
    ) -> Result:
        """Run a command to its end."""
        process = await self._command(arguments, {**os.environ, **(env or {})})
        try:
            out, err = await soon(process.communicate(), timeout)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Result(process.returncode, out.decode(), err.decode())

    async def _command(
        self, arguments: Sequence[str], env: Mapping[str, str]
    ) -> asyncio.subprocess.Process | ForkedProcess:
        if self._server:
            return await self._server.start(*arguments, env=env)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slb", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )

    async def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a command that stays."""
        return await self._processes.slb(arguments[0], *arguments, env=env)

    async def serve(
        self, *arguments: str, redis: str | None = None, env: Mapping[str, str] | None = None
    ) -> Serving:
        """`slb serve` on free ports; it serves on return, but may have no table yet (see `until_ready`)."""
        self._names += 1
        flags = ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--data-dir", str(self.directory / "data")]
        flags += ["--redis", redis] if redis else []
        process = await self._processes.slb(f"serve-{self._names}", "serve", *flags, *arguments, env=env)
        line = orjson.loads(await process.first_line())
        url, api = (found[0] for found in itertools.islice(_URL.finditer(line["message"]), 2))
        return Serving(url, api, line["message"], process)

    async def upstream(self, name: str, *arguments: str) -> tuple[Process, str]:
        """`slb upstream` on a free port; its process and HOST:PORT."""
        process = await self._processes.slb(f"upstream-{name}", "upstream", "--name", name, *arguments)
        found = _URL.search(await process.first_line())
        assert found is not None
        return process, found[1]

    async def get(self, url: str, **headers: str) -> tuple[int, str]:
        """Status and body; status 0 where the connection failed."""
        try:
            async with self.session.get(url, headers=headers) as reply:
                return reply.status, await reply.text()
        except (ClientError, OSError) as error:
            return 0, str(error)

    async def json(self, url: str) -> Any:
        """The JSON at `url`, which has to be there."""
        status, text = await self.get(url)
        assert status == 200, f"{url}: {status} {text}"
        return orjson.loads(text)

    async def until_json(self, url: str, holds: Callable[[Any], bool], timeout: float = 20.0) -> Any:
        """The JSON at `url` once it is there and `holds(it)`."""
        _, text = await until(
            lambda: self.get(url), lambda found: found[0] == 200 and holds(orjson.loads(found[1])), timeout, url
        )
        return orjson.loads(text)

    async def until_status(self, url: str, wanted: int, timeout: float = 20.0) -> None:
        """Wait until `url` answers so."""
        await until(lambda: self.get(url), lambda found: found[0] == wanted, timeout, f"{url} answers {wanted}")

    async def until_ready(self, serving: Serving) -> Serving:
        """Wait until it has a table."""
        await self.until_status(f"{serving.api}/readyz", 200)
        return serving
