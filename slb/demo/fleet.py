"""What the demo runs: a private Valkey, two instances, and upstreams that come and go."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout

from slb.control.embedded import EmbeddedServer, to_its_end
from slb.demo.processes import DemoFailed, Process, Processes

PATH = "/demo"
GPU_SLOTS, GPU_SECONDS = 4, 0.1
"""How many jobs a GPU runs at once, and for how long."""
_SEEN_WITHIN = 15.0
_POLL = 0.02
_TIMEOUT = ClientTimeout(total=3)
_TWO_ADDRESSES = ("127.0.0.2", "127.0.0.3")
_ONE_ADDRESS = "127.0.0.1"
_TRIES = 20

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Instance:
    name: str
    address: Address
    api: str

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)


class Fleet:
    """Started and changed step by step by the story. `directory` is private and short-lived."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._redis = EmbeddedServer(directory, revive=False)
        self._processes = Processes(directory)
        self._upstreams: dict[str, Process] = {}
        self._serving: dict[str, Process] = {}
        self._session = ClientSession(timeout=_TIMEOUT)
        self.instances = [
            Instance(name, place, "http://{}:{}".format(*free_address(place[0])))
            for name, place in zip("12", two_places(), strict=True)
        ]

    async def start(self) -> None:
        """Redis and both instances; they serve on return. Raises SlbError."""
        await self._redis.acquire()
        started = [await self._serve(instance) for instance in self.instances]
        for process in started:
            await process.first_line()
        await self.until("loads its routes", lambda status: status["mirror"]["ready"], "/status")

    async def close(self) -> None:
        await self._processes.stop_all()
        await self._session.close()
        await self._redis.release()

    async def join(self, *names: str) -> None:
        """Upstreams start, register themselves through the first instance, and are seen by both."""
        started = {name: await self._upstream(name) for name in names}
        self._upstreams.update(started)
        for process in started.values():
            await process.first_line()
        await self._until_members(len(self._upstreams))

    async def leave(self, name: str) -> int:
        """Ask an upstream to stop; its exit code."""
        code = await self._upstreams.pop(name).stop()
        await self._until_members(len(self._upstreams))
        return code

    async def pod(self, name: str, path: str, slots: int, seconds: str) -> None:
        """One more upstream, of another route: with as many slots, at which a request takes `seconds`."""
        flags = ("--name", name, "--slots", str(slots), "--service-time", seconds)
        process = await self._processes.slb(f"pod-{name}", "upstream", "--end-with-stdin", *flags)
        target = (await process.first_line()).rpartition("//")[2]
        body = {"path": path, "target": target, "slots": slots, "node": name}
        await self.call(self.instances[0], "POST", "/register", body)

    async def gpu(self, name: str, model: str, seconds: str = f"{GPU_SECONDS:g}s") -> None:
        """A stand-in for a GPU server starts, and is registered for a model's jobs by way of the first instance."""
        flags = ("--name", name, "--slots", str(GPU_SLOTS), "--service-time", seconds)
        process = await self._processes.slb(f"gpu-{name}", "upstream", "--end-with-stdin", *flags)
        endpoint = (await process.first_line()).rpartition(" ")[2] + "/generate"
        body = {"model": model, "endpoint": endpoint, "slots": GPU_SLOTS}
        await self.call(self.instances[0], "POST", "/admin/register", body)

    async def kill(self, instance: Instance) -> None:
        """kill -9."""
        process = self._serving.pop(instance.name)
        process.kill()
        await process.ended()

    async def serve_again(self, instance: Instance) -> None:
        """Start it where it was; it serves on return."""
        await (await self._serve(instance)).first_line()
        await self.until("loads its routes", lambda status: status["mirror"]["ready"], "/status")

    async def call(self, instance: Instance, method: str, path: str, body: Any = None) -> Any:
        """What its API answers. Raises DemoFailed where it refuses, ClientError where there is no answer."""
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(method, f"{instance.api}{path}", data=data) as reply:
            answer = orjson.loads(await reply.read())
        if reply.status >= 400:
            raise DemoFailed(f"{method} {path} at instance {instance.name}: {reply.status} {answer}")
        return answer

    async def kill_redis(self) -> None:
        """kill -9, and both instances have noticed."""
        await to_its_end(self._redis.process.kill)
        await self.until("notices that Redis is gone", lambda status: not status["redis"]["up"], "/status")

    async def revive_redis(self) -> None:
        """Start it again on the data it has, and both instances have found it."""
        await to_its_end(self._redis.process.start)
        await self.until("finds Redis again", lambda status: status["redis"]["up"], "/status")

    async def requests_of(self, instance: Instance) -> int:
        """How many requests of the route the instance has answered, by its own count."""
        status = await self._ask(instance, "/status")
        return int(status["traffic"]["requests"])

    async def until(self, what: str, holds: Callable[[Any], bool], path: str) -> None:
        """Wait until both instances' answers to `path` are so. Raises DemoFailed."""
        for instance in self.instances:
            try:
                async with asyncio.timeout(_SEEN_WITHIN):
                    while not await self._holds(instance, holds, path):
                        await asyncio.sleep(_POLL)
            except TimeoutError:
                raise DemoFailed(f"after {_SEEN_WITHIN:g} s instance {instance.name} never {what}") from None

    async def _until_members(self, count: int) -> None:
        await self.until(f"shows {count} upstreams", lambda route: len(route["members"]) == count, f"/routes{PATH}")

    async def _holds(self, instance: Instance, holds: Callable[[Any], bool], path: str) -> bool:
        try:
            return holds(await self._ask(instance, path))
        except (ClientError, OSError, TimeoutError):
            return False

    async def _ask(self, instance: Instance, path: str) -> Any:
        async with self._session.get(f"{instance.api}{path}", raise_for_status=True) as reply:
            return orjson.loads(await reply.read())

    async def _serve(self, instance: Instance) -> Process:
        """It shares the server, so that even a demo that is killed leaves none: the last one out stops it."""
        data = self._directory / f"instance-{instance.name}"
        flags = {
            "--listen": "{}:{}".format(*instance.address),
            "--api": instance.api.removeprefix("http://"),
            "--redis": f"embedded://{self._directory}",
            "--data-dir": str(data),
            "--name": f"demo-{instance.name}",
            "--access-log": "errors",
            "--roles": "proxy,jobs",
        }
        words = [word for flag in flags.items() for word in flag]
        words += ["--end-with-stdin", "--no-revive"]
        self._serving[instance.name] = process = await self._processes.slb(
            f"instance-{instance.name}", "serve", *words
        )
        return process

    async def _upstream(self, name: str) -> Process:
        flags = ("--name", name, "--slots", "64", "--register", self.instances[0].api, "--path", PATH)
        return await self._processes.slb(f"upstream-{name}", "upstream", "--end-with-stdin", *flags)


def two_places() -> list[Address]:
    """Free addresses for traffic: one port on two of them, or two ports where a system has one only (macOS)."""
    return _one_port_on(_TWO_ADDRESSES) or [free_address(_ONE_ADDRESS), free_address(_ONE_ADDRESS)]


def free_address(host: str) -> Address:
    with socket.create_server((host, 0)) as probe:
        return host, probe.getsockname()[1]


def _one_port_on(hosts: Sequence[str]) -> list[Address]:
    for _ in range(_TRIES):
        try:
            _, port = free_address(hosts[0])
        except OSError:
            return []
        if all(_is_free(host, port) for host in hosts[1:]):
            return [(host, port) for host in hosts]
    return []


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
