"""/written: what stands in Redis of routes, as opposed to what is in effect: for copies of it."""

from typing import Any

from aiohttp import web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import AllWritten, RouteWritten
from slb.control.slices import Slices
from slb.errors import NOT_READY, REDIS_DOWN, Refused
from slb.model import RouteSettings, UpstreamAttributes, stored_attributes, usable_settings


class WrittenEndpoint:
    """Members and settings are those this process serves by; where a member is from, Redis says."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/written", self.show, AllWritten, None, (NOT_READY, REDIS_DOWN), ("read",))]

    async def show(self, _: web.Request) -> web.Response:
        """What is written in Redis: the settings of each route, its members and their attributes.

        Without what the configuration file or a default adds. `slb export` prints it as a document.
        """
        mirror = self._parts.mirror
        if not mirror.ready:  # an empty answer would be taken for an empty fleet
            raise Refused(NOT_READY, "no routes have been loaded yet")
        records = dict(sorted(mirror.records.items()))
        members = {path: sorted(record.members) for path, record in records.items()}
        origins = await self._parts.registry.origins(members)
        slices = Slices()
        routes: dict[str, RouteWritten] = {}
        for path, record in records.items():
            usable, faults = usable_settings(record.settings or {})
            routes[path] = RouteWritten(settings=_as_json(usable), faults=faults, members=origins[path])
            await slices.rest()
        upstreams: dict[str, dict[str, Any]] = {}
        for member in sorted({each for some in members.values() for each in some}):
            stored = stored_attributes(mirror.attributes.get(member, {}))
            if kept := {name: value for name, value in stored.items() if name in UpstreamAttributes.model_fields}:
                upstreams[member] = kept
            await slices.rest()
        return json_reply(AllWritten(routes=routes, upstreams=upstreams))


def _as_json(usable: dict[str, Any]) -> dict[str, Any]:
    """In the form in which a setting is typed."""
    made = RouteSettings.model_validate(usable).model_dump(mode="json")
    return {name: "none" if made[name] is None else made[name] for name in sorted(usable)}
