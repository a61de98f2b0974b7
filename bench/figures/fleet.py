"""What every figure needs: a private Redis, two upstreams, and slb instances on them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.figures.redis import PrivateRedis
from bench.http import ask, free_ports, get_text, post_json
from bench.peers import SLB
from bench.processes import Processes, Running, wait_until
from bench.upstream import Upstreams

READY_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.005


@dataclass(frozen=True)
class Instance:
    """One `slb serve`: its process, its data port and its API port."""

    running: Running
    port: int
    api_port: int

    def wait_until_ready(self) -> None:
        wait_until(
            lambda: ask(self.api_port, "/readyz")[0] == 200,
            self.running,
            READY_SECONDS,
            "becoming ready",
            LOOK_EVERY_SECONDS,
        )

    def register(self, path: str, target: str) -> None:
        """Over its API. Raises BenchError where it says no."""
        status, text = post_json(self.api_port, "/register", {"path": path, "target": target})
        if status != 200:
            raise BenchError(f"/register answered {status}: {text}")

    def status(self) -> Any:
        """What /status says."""
        return json.loads(get_text(self.api_port, "/status"))


class Fleet:
    """Everything lives in `home`, and ends with `processes`."""

    def __init__(self, processes: Processes, home: Path) -> None:
        self._processes = processes
        self._home = home
        self.redis = PrivateRedis(processes, home / "redis")
        self.redis.start()
        self.instances: list[Instance] = []
        self._numbers = count()

    def start_upstreams(self) -> list[str]:
        """Two, as members."""
        first, second = free_ports(2)
        Upstreams(self._processes, self._home / "upstreams", None, (first, second)).start()
        return [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]

    def start_instance(self, *more: str) -> Instance:
        """Start one more, with these words besides; it may not be ready yet."""
        home = self.folder("slb")
        port, api_port = free_ports(2)
        running = self._slb(home, "serve", *self._serve_flags(home, port, api_port), *more)
        self.instances.append(Instance(running, port, api_port))
        return self.instances[-1]

    def start_pair(self) -> tuple[Instance, Instance]:
        """Two instances, both ready."""
        pair = self.start_instance(), self.start_instance()
        for instance in pair:
            instance.wait_until_ready()
        return pair

    def restart_instance(self, instance: Instance) -> None:
        """Stop it with SIGTERM, and start another on its ports; that one is ready on return."""
        self._end(instance.running)
        self._start_in_place(instance).wait_until_ready()

    def kill_instance(self, instance: Instance) -> Instance:
        """kill -9, and at once start another on its ports: that one, which may not be ready yet."""
        self._processes.kill(instance.running)
        return self._start_in_place(instance)

    def _start_in_place(self, instance: Instance) -> Instance:
        home = instance.running.home
        running = self._slb(home, "serve", *self._serve_flags(home, instance.port, instance.api_port))
        at = self.instances.index(instance)
        self.instances[at] = Instance(running, instance.port, instance.api_port)
        return self.instances[at]

    def start_stand_in(self, port: int, path: str, slots: int) -> Running:
        """A `slb upstream` that registers itself with the first instance, and serves on return."""
        home = self._home / f"upstream-{port}"
        home.mkdir(exist_ok=True)
        with_first = f"http://127.0.0.1:{self.instances[0].api_port}"
        words = ["--listen", f"127.0.0.1:{port}", "--register", with_first, "--path", path, "--slots", str(slots)]
        running = self._slb(home, "upstream", *words)
        wait_until(lambda: self._names(path, port), running, READY_SECONDS, "registering", LOOK_EVERY_SECONDS)
        return running

    def stop_stand_in(self, running: Running) -> None:
        """With SIGTERM. Raises BenchError where it does not end well."""
        self._end(running)

    def _end(self, running: Running) -> None:
        self.stop(running)
        if running.process.returncode:
            raise BenchError(f"ended with {running.process.returncode}: {running.tail()}")

    def _names(self, path: str, port: int) -> bool:
        """Whether every instance has the upstream on `port` in its route."""
        member = f"127.0.0.1:{port}"
        return all(member in get_text(each.api_port, f"/routes{path}") for each in self.instances)

    def stop_instance(self, instance: Instance) -> None:
        self.stop(instance.running)
        self.instances.remove(instance)

    def stop(self, running: Running) -> None:
        self._processes.stop(running)

    def start_module(self, module: str, *arguments: object) -> Running:
        """`python -m MODULE REDIS_URL FOLDER ARGUMENTS...`, in a folder of its own."""
        home = self.folder(module)
        return self._processes.start_module(home, module, self.redis.url, home, *arguments)

    def folder(self, what: str) -> Path:
        """A new one, gone with the fleet."""
        home = self._home / f"{what}-{next(self._numbers)}"
        home.mkdir()
        return home

    @contextmanager
    def resetting(self) -> Iterator[None]:
        """`slb reset`, as its users call it, runs beside the block. Raises BenchError where it fails."""
        home = self._home / "reset"
        home.mkdir()
        running = self._slb(home, "reset", "--yes", "--redis", self.redis.url)
        yield
        if running.process.wait(READY_SECONDS):
            raise BenchError(f"slb reset ended with {running.process.returncode}: {running.tail()}")

    def _slb(self, home: Path, *arguments: str) -> Running:
        program = SLB.program()
        if program is None:
            raise BenchError("slb is not installed")
        return self._processes.start([program, *arguments], None, home, self._environment(home))

    def _environment(self, home: Path) -> Mapping[str, str]:
        return {"SLB_DATA_DIR": str(home / "data")}

    def _serve_flags(self, home: Path, port: int, api_port: int) -> list[str]:
        flags = {
            "--listen": f"127.0.0.1:{port}",
            "--api": f"127.0.0.1:{api_port}",
            "--redis": self.redis.url,
            "--access-log": "errors",
            "--name": home.name,
        }
        return [word for flag in flags.items() for word in flag]
