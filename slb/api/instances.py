"""/instances: who is alive."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import InstancesShown
from slb.errors import RedisUnavailable


class InstancesEndpoint:
    """Read from Redis; while it is away, the last list that was read."""

    def __init__(self, parts: ApiParts) -> None:
        self._instances = parts.instances
        self._last: Sequence[Any] = ()

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/instances", self.show, "Every living instance", InstancesShown)]

    async def show(self, _: web.Request) -> web.Response:
        stale = False
        try:
            self._last = await self._instances.list()
        except RedisUnavailable:
            stale = True
        return json_reply(InstancesShown(instances=[asdict(each) for each in self._last], stale=stale))
