"""The one way in which slb instances are started: on a Redis of their own, with the upstreams they need."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.http import get_text, send_json, wait_until_served
from bench.peers import SLB
from bench.pods import start_pods, start_upstreams
from bench.ports import free_ports
from bench.processes import BenchError, Processes, Running, wait_until
from bench.redis import PrivateRedis
from slb.control import keys

READY_SECONDS, GIVE_UP_SECONDS = 60.0, 30.0
LOOK_EVERY_SECONDS = 0.005


@dataclass(frozen=True)
class Instance:
    """One `slb serve`: its process, its data port and its API port; `data`: its data_dir."""

    running: Running
    port: int
    api_port: int
    data: Path = Path()

    def wait_until_ready(self) -> None:
        wait_until_served([self.api_port], "/readyz", self.running, READY_SECONDS, LOOK_EVERY_SECONDS)

    def register(self, path: str, target: str) -> None:
        """Over its API. Raises BenchError where it refuses."""
        send_json("POST", self.api_port, "/register", {"path": path, "target": target})

    def shown(self, path: str) -> Any:
        """The JSON that its API answers a GET with."""
        return json.loads(get_text(self.api_port, path))


class Fleet:
    """Everything lives in `home`, and ends with `processes`. `words`: what each instance is started with besides;
    `redis`: one that does not run yet; `url`: of one that somebody else keeps, and `self.redis` is not there."""

    redis: PrivateRedis

    def __init__(
        self,
        processes: Processes,
        home: Path,
        words: Sequence[str] = (),
        redis: PrivateRedis | None = None,
        url: str = "",
    ) -> None:
        self.processes = processes
        self._home, self._numbers, self._words = home, count(), words
        if not url:
            self.redis = redis or PrivateRedis(processes, home / "redis")
            self.redis.start()
        self._url = url or self.redis.url
        self.instances: list[Instance] = []

    def start_upstreams(self) -> list[str]:
        """Two, as members."""
        ports = free_ports(2)
        start_upstreams(self.processes, self.folder("upstreams"), None, ports)
        return [member(port) for port in ports]

    def start_pods(self, kind: str, number: int, **options: Any) -> list[int]:
        """So many of one kind (`bench.pods`), in one process: their ports."""
        ports = free_ports(number)
        start_pods(self.processes, self.folder(kind), kind, ports, **options)
        return ports

    def write_route(self, path: str, ports: Sequence[int], settings: Mapping[str, str]) -> None:
        """Into Redis, by hand, with these upstreams."""
        redis: Any = self.redis.client  # its stubs know of no mapping of texts
        redis.hset(keys.settings_key(path), mapping=settings)
        redis.sadd(keys.route_key(path), *map(member, ports))

    def start_instances(self, number: int, core: int | None = None) -> list[Instance]:
        """So many more at once; all are ready on return."""
        started = [self._serve(self.folder("slb"), free_ports(2), core) for _ in range(number)]
        self.instances += started
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

    def take_over(self, instance: Instance) -> None:
        """Start another, which takes its listeners; it serves, and the one before has ended well, on return."""
        ports = instance.port, instance.api_port
        new = self._serve(self.folder("slb"), ports, None, instance.data, "--takeover")
        self.instances[self.instances.index(instance)] = new
        before = instance.running
        wait_until(lambda: before.process.poll() is not None, new.running, READY_SECONDS, "a takeover")
        self.stop_well(before)
        new.wait_until_ready()

    def kill_instance(self, instance: Instance) -> Instance:
        """kill -9, and at once start another on its ports: that one, which may not be ready yet."""
        self.processes.kill(instance.running)
        return self._start_in_place(instance)

    def _start_in_place(self, instance: Instance) -> Instance:
        at = self.instances.index(instance)
        self.instances[at] = self._serve(instance.running.home, (instance.port, instance.api_port))
        return self.instances[at]

    def start_stand_in(self, port: int, path: str, slots: int) -> Running:
        """A `slb upstream` that registers itself with the first instance, and serves on return."""
        register = f"http://127.0.0.1:{self.instances[0].api_port}"
        words = ["--listen", member(port), "--register", register, "--path", path, "--slots", str(slots)]
        running = self._slb(self.folder("upstream"), "upstream", *words)
        self.wait_until_shown(path, [port], running)
        return running

    def wait_until_shown(self, path: str, ports: Sequence[int], running: Running) -> None:
        """Until all instances show the route with these upstreams. Raises BenchError where `running` ends."""

        def all_have_them() -> bool:
            shown = [get_text(each.api_port, f"/routes{path}") for each in self.instances]
            return all(member(port) in text for text in shown for port in ports)

        wait_until(all_have_them, running, READY_SECONDS, "registering", LOOK_EVERY_SECONDS)

    def wait_until(
        self,
        holds: Callable[[], bool],
        what: str,
        every: float = LOOK_EVERY_SECONDS,
        seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        """Raises TookTooLong where it does not in time, BenchError where an instance ends."""

        def looked() -> bool:
            self.check_alive()
            return holds()

        wait_until(looked, self.instances[0].running, seconds, what, every)

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

    def start_router(self, port: int, core: int) -> Running:
        """A `slb serve` on one core with nothing but the quota router on; it may not be ready yet."""
        words = ("--roles", "quota", "--api", member(port), "--access-log", "errors", "--redis", self._url)
        return self._slb(self.folder("router"), "serve", *words, core=core)

    def start_discovery(self, words: Sequence[str]) -> Instance:
        """A `slb serve` with nothing but discovery on; it is ready on return."""
        home, (api_port,) = self.folder("discovery"), free_ports(1)
        given = ("--roles", "discovery", "--api", member(api_port), "--redis", self._url)
        instance = Instance(self._slb(home, "serve", *given, "--name", home.name, *words), 0, api_port)
        instance.wait_until_ready()
        return instance

    def start_ext_proc(self, port: int, api: int, core: int | None = None) -> Running:
        """An external processor; it may not be ready yet."""
        words = ("ext-proc", "--listen", member(port), "--api", member(api), "--redis", self._url)
        return self._slb(self.folder("ext-proc"), *words, "--access-log", "errors", core=core)

    def _serve(
        self, home: Path, ports: Sequence[int], core: int | None = None, data: Path | None = None, *words: str
    ) -> Instance:
        port, api_port = ports
        data = data or home / "data"
        listeners = ("--listen", member(port), "--api", member(api_port))
        others = ("--redis", self._url, "--access-log", "errors", "--name", home.name, *self._words, *words)
        argv = ("serve", *listeners, *others, "--data-dir", str(data))
        return Instance(self._slb(home, *argv, core=core), port, api_port, data)

    def _slb(self, home: Path, *words: str, core: int | None = None) -> Running:
        return self.processes.start([SLB.installed(), *words], core, home, {"SLB_DATA_DIR": str(home / "data")})


def queued(cap: int, timeout: str, limit: int = 100_000) -> dict[str, str]:
    """Settings of a route: one queue for the whole fleet, so many requests at a time at each upstream."""
    full = {"max_inflight": str(cap), "when_full": "queue", "queue_limit": str(limit), "queue_timeout": timeout}
    return {"policy": "least_inflight", **full}


def member(port: int) -> str:
    """An upstream of this machine as routes have it."""
    return f"127.0.0.1:{port}"
