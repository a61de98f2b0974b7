"""The one way in which slb instances are started: on a Redis of their own, with the upstreams they need."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.http import ask, free_ports, get_text, send_json
from bench.peers import SLB
from bench.pods import start_pods, start_upstreams
from bench.processes import Processes, Running, wait_until
from bench.redis import PrivateRedis
from slb.control import keys

READY_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.005


@dataclass(frozen=True)
class Instance:
    """One `slb serve`: its process, its data port and its API port."""

    running: Running
    port: int
    api_port: int

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            return ask(self.api_port, "/readyz")[0] == 200

        wait_until(ready, self.running, READY_SECONDS, "becoming ready", LOOK_EVERY_SECONDS)

    def register(self, path: str, target: str) -> None:
        """Over its API. Raises BenchError where it refuses."""
        send_json("POST", self.api_port, "/register", {"path": path, "target": target})

    def shown(self, path: str) -> Any:
        """The JSON that its API answers a GET with."""
        return json.loads(get_text(self.api_port, path))


@dataclass(frozen=True)
class Pods:
    """Upstreams in one process."""

    running: Running
    ports: Sequence[int]


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
        return [member(port) for port in ports]

    def start_pods(self, kind: str, number: int, **options: Any) -> Pods:
        """So many of one kind (`bench.pods`), in one process."""
        ports = free_ports(number)
        return Pods(start_pods(self.processes, self.folder(kind), kind, ports, **options), ports)

    def write_route(self, path: str, ports: Sequence[int], settings: Mapping[str, str]) -> None:
        """Into Redis, by hand, with these upstreams."""
        redis: Any = self.redis.client  # its stubs know of no mapping of texts
        redis.hset(keys.settings_key(path), mapping=settings)
        redis.sadd(keys.route_key(path), *map(member, ports))

    def start_instance(self, *more: str) -> Instance:
        """Start one more, with these words besides; it may not be ready yet."""
        port, api_port = free_ports(2)
        self.instances.append(self._serve(self.folder("slb"), port, api_port, *more))
        return self.instances[-1]

    def start_instances(self, number: int, *more: str) -> list[Instance]:
        """So many more at once; all are ready on return."""
        started = [self.start_instance(*more) for _ in range(number)]
        for instance in started:
            instance.wait_until_ready()
        return started

    def start_ready(self, target: str, paths: Sequence[str] = ("/",)) -> Instance:
        """Start one more, and register an upstream under these paths once it is ready."""
        (instance,) = self.start_instances(1)
        for path in paths:
            instance.register(path, target)
        return instance

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
        words = ["--listen", member(port), "--register", register, "--path", path, "--slots", str(slots)]
        running = self.slb("upstream", *words)
        self.wait_until_shown(path, [port], running)
        return running

    def wait_until_shown(self, path: str, ports: Sequence[int], running: Running) -> None:
        """Until all instances show the route with these upstreams. Raises BenchError where `running` ends."""

        def all_have_them() -> bool:
            shown = [get_text(each.api_port, f"/routes{path}") for each in self.instances]
            return all(member(port) in text for text in shown for port in ports)

        wait_until(all_have_them, running, READY_SECONDS, "registering", LOOK_EVERY_SECONDS)

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

    def folder(self, what: str) -> Path:
        """A new one, gone with the fleet."""
        home = self._home / f"{what}-{next(self._numbers)}"
        home.mkdir()
        return home

    def slb(self, *arguments: str, home: Path | None = None) -> Running:
        """One command of slb."""
        home = home or self.folder(arguments[0])
        return self.processes.start([SLB.installed(), *arguments], None, home, {"SLB_DATA_DIR": str(home / "data")})

    def _serve(self, home: Path, port: int, api_port: int, *more: str) -> Instance:
        listeners = ("--listen", member(port), "--api", member(api_port))
        others = ("--redis", self.redis.url, "--access-log", "errors", "--name", home.name)
        return Instance(self.slb("serve", *listeners, *others, *more, home=home), port, api_port)


def member(port: int) -> str:
    """An upstream of this machine as routes have it."""
    return f"127.0.0.1:{port}"
