"""What every figure needs: a private Redis, two upstreams, and slb instances on them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.http import ask, free_ports, get_text, post_json
from bench.peers import SLB
from bench.pods import start_upstreams
from bench.processes import Processes, Running, wait_until
from bench.redis import PrivateRedis

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
        """Over its API. Raises BenchError where it refuses."""
        status, text = post_json(self.api_port, "/register", {"path": path, "target": target})
        if status != 200:
            raise BenchError(f"/register answered {status}: {text}")

    def status(self) -> Any:
        """What /status says."""
        return json.loads(get_text(self.api_port, "/status"))


class Fleet:
    """Everything lives in `home`, and ends with `processes`."""

    def __init__(self, processes: Processes, home: Path) -> None:
        self.processes = processes
        self._home = home
        self.redis = PrivateRedis(processes, home / "redis")
        self.redis.start()
        self.instances: list[Instance] = []
        self._numbers = count()

    def start_upstreams(self) -> list[str]:
        """Two, as members."""
        ports = free_ports(2)
        start_upstreams(self.processes, self.folder("upstreams"), None, ports)
        return [f"127.0.0.1:{port}" for port in ports]

    def start_instance(self, *more: str) -> Instance:
        """Start one more, with these words besides; it may not be ready yet."""
        port, api_port = free_ports(2)
        self.instances.append(self._serve(self.folder("slb"), port, api_port, *more))
        return self.instances[-1]

    def start_ready(self, member: str, paths: Sequence[str] = ("/",)) -> Instance:
        """Start one more, and register an upstream under these paths once it is ready."""
        instance = self.start_instance()
        instance.wait_until_ready()
        for path in paths:
            instance.register(path, member)
        return instance

    def start_pair(self) -> tuple[Instance, Instance]:
        """Two instances, both ready."""
        pair = self.start_instance(), self.start_instance()
        for instance in pair:
            instance.wait_until_ready()
        return pair

    def restart_instance(self, instance: Instance) -> None:
        """Stop it with SIGTERM, and start another on its ports; that one is ready on return."""
        self.stop_well(instance.running)
        self._start_in_place(instance).wait_until_ready()

    def kill_instance(self, instance: Instance) -> Instance:
        """kill -9, and at once start another on its ports: that one, which may not be ready yet."""
        self.processes.kill(instance.running)
        return self._start_in_place(instance)

    def _start_in_place(self, instance: Instance) -> Instance:
        at = self.instances.index(instance)
        self.instances[at] = self._serve(instance.running.home, instance.port, instance.api_port)
        return self.instances[at]

    def start_stand_in(self, port: int, path: str, slots: int) -> Running:
        """A `slb upstream` that registers itself with the first instance, and serves on return."""
        register = f"http://127.0.0.1:{self.instances[0].api_port}"
        words = ["--listen", f"127.0.0.1:{port}", "--register", register, "--path", path, "--slots", str(slots)]
        running = self._slb(self.folder("upstream"), "upstream", *words)

        def all_have_it() -> bool:
            member = f"127.0.0.1:{port}"
            return all(member in get_text(each.api_port, f"/routes{path}") for each in self.instances)

        wait_until(all_have_it, running, READY_SECONDS, "registering", LOOK_EVERY_SECONDS)
        return running

    def stop_instance(self, instance: Instance) -> None:
        self.processes.stop(instance.running)
        self.instances.remove(instance)

    def stop_well(self, running: Running) -> None:
        """With SIGTERM. Raises BenchError where it does not end well."""
        self.processes.stop(running)
        if running.process.returncode:
            raise BenchError(f"ended with {running.process.returncode}: {running.tail()}")

    def check_alive(self) -> None:
        """Raises BenchError where an instance has ended."""
        for instance in self.instances:
            instance.running.check_alive()

    def start_module(self, module: str, *arguments: object) -> Running:
        """`python -m MODULE ARGUMENTS...`, in a folder of its own."""
        return self.processes.start_module(self.folder(module), module, *arguments)

    def folder(self, what: str) -> Path:
        """A new one, gone with the fleet."""
        home = self._home / f"{what}-{next(self._numbers)}"
        home.mkdir()
        return home

    @contextmanager
    def resetting(self) -> Iterator[None]:
        """`slb reset`, as its users call it, runs beside the block. Raises BenchError where it fails."""
        running = self._slb(self.folder("reset"), "reset", "--yes", "--redis", self.redis.url)
        yield
        if running.process.wait(READY_SECONDS):
            raise BenchError(f"slb reset ended with {running.process.returncode}: {running.tail()}")

    def _serve(self, home: Path, port: int, api_port: int, *more: str) -> Instance:
        words = [
            *("--listen", f"127.0.0.1:{port}", "--api", f"127.0.0.1:{api_port}"),
            *("--redis", self.redis.url, "--access-log", "errors", "--name", home.name),
        ]
        return Instance(self._slb(home, "serve", *words, *more), port, api_port)

    def _slb(self, home: Path, *arguments: str) -> Running:
        argv = [SLB.installed(), *arguments]
        return self.processes.start(argv, None, home, {"SLB_DATA_DIR": str(home / "data")})
