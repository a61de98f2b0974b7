"""Real routers of a test, on one Valkey."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slb.demo.processes import Process
from tests.process.commands import Commands
from tests.support.valkey import Valkey

_URL = re.compile(r"http://[0-9.]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class Instance:
    """One router process and its API."""

    process: Process
    api: str


class Routers:
    """Instances, each at an address that stays. `lease` in seconds, the default where it is None."""

    def __init__(self, slb: Commands, valkey: Valkey, lease: float | None = None) -> None:
        self._slb = slb
        self._valkey = valkey
        self._env = {"SLB_QUOTA_LEASE": f"{lease:g}s"} if lease else {}
        self.serving: list[Instance] = []

    @property
    def urls(self) -> list[str]:
        return [each.api for each in self.serving]

    async def start(self, count: int) -> None:
        """So many more, each of which answers."""
        for _ in range(count):
            self.serving.append(await self._one("127.0.0.1:0"))

    async def kill(self, number: int) -> None:
        """kill -9, and at once another at its address."""
        gone = self.serving[number]
        await self.end(number)
        self.serving[number] = await self._one(gone.api.removeprefix("http://"))

    async def end(self, number: int) -> None:
        """kill -9."""
        self.serving[number].process.kill()
        await self.serving[number].process.ended()

    async def put(self, model: str, limits: Mapping[str, int]) -> None:
        async with self._slb.session.put(f"{self.urls[0]}/models/{model}", json=limits) as reply:
            assert reply.status == 200, await reply.text()

    async def models(self) -> dict[str, dict[str, Any]]:
        """As the last instance shows them, by id."""
        shown = await self._slb.json(f"{self.urls[-1]}/models")
        return {model["id"]: model for model in shown["models"]}

    async def abandoned(self) -> list[dict[str, Any]]:
        """As the last instance shows them."""
        shown = await self._slb.json(f"{self.urls[-1]}/tasks?state=abandoned")
        tasks: list[dict[str, Any]] = shown["tasks"]
        return tasks

    async def _one(self, api: str) -> Instance:
        flags = ["--roles", "quota", "--api", api, "--redis", self._valkey.url]
        flags += ["--data-dir", str(self._slb.directory / "data")]
        process = await self._slb.start("serve", *flags, env=self._env)
        found = _URL.search(await process.first_line())
        assert found is not None
        await self._slb.until_status(f"{found[0]}/advice", 200)
        return Instance(process, found[0])
