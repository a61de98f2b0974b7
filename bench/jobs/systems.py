"""Job systems, each as its users start it: jobs go in, and each is one POST of 250 bytes to the same pod."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import orjson

from bench.command import Bench
from bench.fleet import Fleet, Instance, member
from bench.http import get_text, send_json
from bench.pods import NOTED, start_pods
from bench.ports import free_ports
from bench.processes import REPOSITORY, BenchError, Processes, Running, TookTooLong
from bench.redis import PrivateRedis

MODEL = "bench"
PAYLOAD = {"prompt": "x" * (250 - len('{"prompt":""}'))}
PEERS = REPOSITORY / ".venv-peers"
HERE = Path(__file__).parent
MOST_AT_ONCE = 1000  # jobs of one submit-many
GIVE_UP_SECONDS, LOOK_SECONDS, TAIL_CHARACTERS = 120.0, 0.02, 400


class Pod:
    """The GPU that all jobs of one system go to. `begun`: job and when (`time.monotonic`), run by run."""

    def __init__(self, processes: Processes, home: Path, service: float) -> None:
        (self.port,) = free_ports(1)
        home.mkdir()
        start_pods(processes, home, "gpu", [self.port], service=service)
        self.begun: list[tuple[str, float]] = []

    def look(self) -> int:
        """How many runs there were."""
        self.begun += json.loads(get_text(self.port, NOTED))
        return len(self.begun)

    def wait(self, runs: int, seconds: float = GIVE_UP_SECONDS) -> None:
        """Until there were so many. Raises TookTooLong."""
        until = time.monotonic() + seconds
        while self.look() < runs:
            if time.monotonic() > until:
                raise TookTooLong(f"{self.look()} of {runs} jobs began within {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)


class System(Protocol):
    """`redis` and `pod` are its own, and nobody else's."""

    redis: PrivateRedis
    pod: Pod

    def start(self, core: int | None = None) -> Running:
        """A worker, which takes jobs from now on, or a moment later."""

    def submit(self, name: str, count: int) -> None:
        """Jobs `<name>1`, `<name>2` and so on: all are kept on return."""

    def hold(self, worker: Running) -> None:
        """Let it begin nothing more, while jobs come."""

    def let_go(self, worker: Running) -> None:
        """After `hold`."""

    def results(self, jobs: Sequence[str]) -> dict[str, int]:
        """What is kept of those that have ended."""


class Slb:
    """`slb serve` with the role jobs."""

    def __init__(self, processes: Processes, home: Path, at_once: int, service: float) -> None:
        self._home, self._at_once = home, at_once
        self.redis = _redis(processes, home)
        self.pod = Pod(processes, home / "pod", service)
        self.fleet = Fleet(processes, home, ("--roles", "proxy,jobs"), self.redis)

    @property
    def instance(self) -> Instance:
        """The first."""
        return self.fleet.instances[0]

    def start(self, core: int | None = None) -> Running:
        (instance,) = self.fleet.start_instances(1, core)
        if len(self.fleet.instances) == 1:
            url = f"http://{member(self.pod.port)}/generate"
            gpu = {"model": MODEL, "endpoint": url, "slots": self._at_once}
            send_json("POST", instance.api_port, "/admin/register", gpu)
        return instance.running

    def submit(self, name: str, count: int) -> None:
        for first in range(1, count + 1, MOST_AT_ONCE):
            numbers = range(first, min(first + MOST_AT_ONCE, count + 1))
            jobs = [{"model": MODEL, "payload": PAYLOAD, "job_id": f"{name}{number}"} for number in numbers]
            send_json("POST", self.instance.api_port, "/queue/submit-many", jobs)

    def hold(self, worker: Running) -> None:
        self._configure({"paused": True})

    def let_go(self, worker: Running) -> None:
        self._configure({"paused": False})

    def _configure(self, config: dict[str, object]) -> None:
        send_json("PUT", self.instance.api_port, f"/admin/model-configs/{MODEL}", config)

    def results(self, jobs: Sequence[str]) -> dict[str, int]:
        shown = {job: self.fleet.instances[-1].shown(f"/queue/jobs/{job}") for job in jobs}
        return {job: each["result"] for job, each in shown.items() if "result" in each}


class Peer:
    """One whose worker is a script of ours, run by the interpreter of the peers' own environment, or by node."""

    def __init__(self, name: str, processes: Processes, home: Path, at_once: int, service: float) -> None:
        self._processes, self._home = processes, home
        self.redis = _redis(processes, home)
        self.redis.start()
        self.pod = Pod(processes, home / "pod", service)
        program = ["node", HERE / "bullmq.cjs"] if name == "BullMQ" else [_python(name), HERE / "peers.py"]
        self._words = [*map(str, program), name, self.redis.url, f"http://{member(self.pod.port)}/", str(at_once)]
        self._environment = {"NODE_PATH": str(PEERS / "node_modules"), "PAYLOAD": json.dumps(PAYLOAD)}
        self._started = 0

    def start(self, core: int | None = None) -> Running:
        self._started += 1
        home = self._home / f"worker-{self._started}"
        home.mkdir()
        return self._processes.start([*self._words, "work"], core, home, self._environment)

    def submit(self, name: str, count: int) -> None:
        self._run("submit", name, str(count))

    def hold(self, worker: Running) -> None:
        os.kill(worker.pid, signal.SIGSTOP)

    def let_go(self, worker: Running) -> None:
        os.kill(worker.pid, signal.SIGCONT)

    def results(self, jobs: Sequence[str]) -> dict[str, int]:
        kept: dict[str, str] = json.loads(self._run("results", *jobs).splitlines()[-1])
        return {job: orjson.loads(text)["result"] for job, text in kept.items()}

    def _run(self, *words: str) -> str:
        argv, environment = [*self._words, *words], {**os.environ, **self._environment}
        try:
            ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            raise TookTooLong(f"{words[0]} took more than {GIVE_UP_SECONDS:.0f} s") from None
        if ended.returncode:
            raise BenchError(f"{words[0]} failed: {ended.stderr.strip()[-TAIL_CHARACTERS:]}")
        return ended.stdout


PYTHON_PEERS = {"SAQ": "arq", "arq": "arq", "taskiq": "taskiq", "streaq": "taskiq"}
"""And whose environment each runs in: they need different versions of redis-py."""
NAMES = ("slb", "BullMQ", *PYTHON_PEERS)


def missing(name: str) -> str:
    """Why a system cannot be measured here; empty where it can."""
    if name == "BullMQ" and (shutil.which("node") is None or not (PEERS / "node_modules/bullmq").is_dir()):
        return "BullMQ is left out: it needs node and npm (apt-get install nodejs npm), and `make bench-jobs`"
    if name in PYTHON_PEERS and not _python(name).exists():
        return f"{name} is left out: `make bench-jobs` installs it into {PEERS.name}"
    return ""


def make(name: str, bench: Bench, processes: Processes, at_once: int, service: float = 0.0) -> System:
    """With a Redis and a pod of its own. No worker runs yet."""
    home = bench.home / f"{name}-{len(os.listdir(bench.home))}"
    home.mkdir()
    if name == "slb":
        return Slb(processes, home, at_once, service)
    return Peer(name, processes, home, at_once, service)


def _python(name: str) -> Path:
    return PEERS / PYTHON_PEERS[name] / "bin/python"


def _redis(processes: Processes, home: Path) -> PrivateRedis:
    return PrivateRedis(processes, home / "redis", "always", free_ports(1)[0])
