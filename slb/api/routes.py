"""/routes and /routes/<path>: what is routed where, and the settings of a route."""

from collections.abc import Callable, Collection, Mapping
from itertools import islice, zip_longest
from typing import Any

import orjson
import structlog
from aiohttp import web
from pydantic import ValidationError

from slb.answers import dumped
from slb.api.bodies import MOST_FAULTS, read_json, too_many_faults
from slb.api.callers import named
from slb.api.changes import in_words, note
from slb.api.covered import check_covered
from slb.api.endpoints import Endpoint, change, followed, is_dry_run, not_written
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import RouteExplained, RouteRemoved, RouteShown, RoutesShown
from slb.api.show_route import as_any_sees, latest, leases_by, show_route
from slb.config import Settings, instead_on_a_route
from slb.control.slices import Slices
from slb.errors import BAD_REQUEST, NO_ROUTE, REDIS_DOWN, Refused
from slb.model import OF_A_CHECK, RouteRecord, RouteSettings, setting_fault, usable_settings
from slb.names import normal_path
from slb.setting_types import LONGEST_PATH

_PREFIX = "/routes"
_log = structlog.get_logger("slb.api")


class RoutesEndpoint:
    """`/routes/p1` is the route /p1, `/routes/` the root."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def endpoints(self) -> list[Endpoint]:
        path = "/routes/{path}"
        missing = (BAD_REQUEST, NO_ROUTE)
        written, changes = changes_schema(nullable=False), changes_schema(nullable=True)
        return [
            Endpoint("GET", "/routes", self.show_all, RoutesShown, rights=("read",)),
            Endpoint("GET", path, self.show, RouteExplained, None, missing, ("read",)),
            change("PUT", path, self.put, RouteShown, written, (REDIS_DOWN,), ("register",)),
            change("PATCH", path, self.patch, RouteShown, changes, (REDIS_DOWN,), ("register",)),
            change("DELETE", path, self.delete, RouteRemoved, None, (*missing, REDIS_DOWN), ("register",)),
        ]

    async def show_all(self, _: web.Request) -> web.Response:
        """Every route, its members and its settings.

        With `--workers`, `health`, `failures` and `panic` go by checks alone; a single route shows what any worker
        knows.
        """
        pieces: list[bytes] = []
        slices = Slices()  # ten thousand routes at once would hold up every request for a second
        for path in sorted(self._parts.mirror.records):
            record = self._parts.mirror.records.get(path)
            if record is not None:
                pieces.append(dumped(show_route(self._parts, path, record)))
            await slices.rest()
        return web.Response(body=b'{"routes":[%b]}' % b",".join(pieces), content_type="application/json")

    async def show(self, request: web.Request) -> web.Response:
        """One route, and why its last request went where it went.

        `/routes/p1` is the route `/p1`, `/routes/` is the root. Where requests need no slots, `decision` is what
        the next one goes by.
        """
        path = route_path(request, _PREFIX)
        record = self._parts.mirror.records.get(path)
        if record is None:
            raise _no_route(path)
        members = sorted(record.members)
        leases = await self._parts.registry.leases([(path, member) for member in members])
        elsewhere = await self._elsewhere(path)
        shown = as_any_sees(show_route(self._parts, path, record), elsewhere)
        decision = latest([self._parts.explain(path), *(each["decision"] for each in elsewhere)])
        return json_reply(RouteExplained(**shown, decision=decision, leases=leases_by(members, leases)))

    async def put(self, request: web.Request) -> web.Response:
        """Replace its settings."""
        path = _covered_path(request)
        written = stored_settings(self._parts.settings, path, await self._body(request), {})
        _check_pool(request, written)
        if is_dry_run(request):
            return not_written()
        await self._parts.registry.put_settings(path, written)
        note(self._parts, request, "settings_changed", path, in_words(written) or "all unset")
        return await self._reply(request, path, written, lambda shown: shown == written)

    async def patch(self, request: web.Request) -> web.Response:
        """Change settings, null resets."""
        path = _covered_path(request)
        body = await self._body(request)
        refuse_unknown(set(body))
        resets = {name for name, value in body.items() if value is None}
        values = {name: value for name, value in body.items() if name not in resets}
        old = await self._parts.registry.settings(path)
        kept = {name: value for name, value in old.items() if name not in body}
        changes = stored_settings(self._parts.settings, path, values, kept, resets)
        _check_pool(request, changes)
        if is_dry_run(request):
            return not_written()
        await self._parts.registry.patch_settings(path, {**changes, **dict.fromkeys(resets)})
        note(self._parts, request, "settings_changed", path, in_words({**changes, **dict.fromkeys(resets)}))
        return await self._reply(
            request,
            path,
            {**kept, **changes},
            lambda shown: changes.items() <= shown.items() and resets.isdisjoint(shown),
        )

    async def delete(self, request: web.Request) -> web.Response:
        """Remove its members and its settings."""
        path = _covered_path(request)
        if is_dry_run(request):
            if path not in self._parts.mirror.records:
                raise _no_route(path)
            return not_written()
        if not await self._parts.registry.delete_route(path):
            raise _no_route(path)
        status = await followed(self._parts, lambda mirror: path not in mirror.records)
        _log.info("route_removed", path=path, **named(request))
        note(self._parts, request, "route_removed", path)
        return json_reply(RouteRemoved(path=path, removed=True), status)

    async def _body(self, request: web.Request) -> dict[str, Any]:
        data = await read_json(request, self._parts.settings.head_timeout)
        if not isinstance(data, dict):
            raise Refused(BAD_REQUEST, "body: has to be an object")
        return data

    async def _reply(
        self,
        request: web.Request,
        path: str,
        written: Mapping[str, str],
        shows: Callable[[Mapping[str, str]], bool],
    ) -> web.Response:
        _log.info("route_settings_changed", path=path, settings=dict(written), **named(request))
        none = RouteRecord()
        status = await followed(self._parts, lambda mirror: shows(mirror.records.get(path, none).settings or {}))
        record = self._parts.mirror.records.get(path, none)
        shown = show_route(self._parts, path, RouteRecord(record.members, written))
        return json_reply(as_any_sees(shown, await self._elsewhere(path)), status)

    async def _elsewhere(self, path: str) -> list[RouteExplained]:
        """The route as each worker of a supervisor shows it, without workers that do not answer."""
        return [answer for answer in await self._parts.workers_answers(f"{_PREFIX}{path}") if answer]


def route_path(request: web.Request, prefix: str) -> str:
    """The route's path out of the request's, before aiohttp decodes it. Raises InvalidName, Refused."""
    path = normal_path(request.rel_url.raw_path.removeprefix(prefix))
    if len(path) > LONGEST_PATH:
        raise Refused(BAD_REQUEST, f"path: a route's path has {LONGEST_PATH} characters at most")
    return path


def _covered_path(request: web.Request) -> str:
    """The same, of a route that the caller may change."""
    path = route_path(request, _PREFIX)
    check_covered(request, path)
    return path


def _check_pool(request: web.Request, written: Mapping[str, str]) -> None:
    """Raises Refused where the route would take slots of a pool that the caller does not cover."""
    if "pool" in written:
        check_covered(request, written["pool"], "pool")


def _no_route(path: str) -> Refused:
    return Refused(NO_ROUTE, f"there is no route {path}")


_MOST_LIKENED = 10
"""Names of one body for which one is looked for that may be meant: it takes a millisecond each."""
_NOT_SHOWN = frozenset({"default", "title", "ge", "gt", "le", "lt"})
"""Defaults depend on the instance's config; the bounds are of numbers, where the schema is of their text."""


def stored_settings(
    settings: Settings,
    path: str,
    written: Mapping[str, Any],
    kept: Mapping[str, str],
    resets: Collection[str] = (),
) -> dict[str, str]:
    """`written` as texts of the route's hash; `kept`: what else the hash holds, without `resets`. Raises Refused
    naming every unknown name and unusable value, or where both together make no route settings. What had no effect
    before is no reason to refuse other changes."""
    faults = {name: fault for name, value in written.items() if (fault := setting_fault(name, value))}
    if faults:
        raise _refused(faults)
    usable, _ = usable_settings(kept)
    given = {name: value for name, value in written.items() if value is not None}
    try:
        made = settings.route_settings(path, {**usable, **given})
    except ValidationError as error:
        detail = "; ".join(fault["msg"].removeprefix("Value error, ") for fault in error.errors())
        raise Refused(BAD_REQUEST, f"settings of {path}: {detail}") from None
    if made.unused and not OF_A_CHECK.isdisjoint((*written, *resets)):
        told = "; ".join(made.unused)
        if "health_path" in resets and OF_A_CHECK.isdisjoint(written):
            needing = " and ".join(sorted(name for name in OF_A_CHECK if getattr(made, name) is not None))
            told = f"{needing} needs health_path: unset {needing} with it, or set health_path to none"
        raise Refused(BAD_REQUEST, f"settings of {path}: {told}")
    shown = made.model_dump(mode="json")
    return {name: _text(shown[name]) for name in given}


def refuse_unknown(names: set[str]) -> None:
    unknown = sorted(names - RouteSettings.model_fields.keys())
    if unknown:
        raise _refused({name: f"{name}: there is no route setting of this name" for name in unknown})


def _refused(faults: Mapping[str, str]) -> Refused:
    """`faults`: a sentence for each name."""
    if len(faults) > MOST_FAULTS:
        return Refused(BAD_REQUEST, too_many_faults(len(faults)))
    instead = map(instead_on_a_route, islice(faults, _MOST_LIKENED))
    told = [fault + then for fault, then in zip_longest(faults.values(), instead, fillvalue="")]
    return Refused(BAD_REQUEST, "; ".join(told))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def changes_schema(nullable: bool) -> dict[str, Any]:
    """The JSON schema of a body of settings, durations as text; with `nullable`, null resets one."""
    schema = RouteSettings.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    properties = {name: _property(each, nullable) for name, each in schema["properties"].items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(schema: Mapping[str, Any], nullable: bool) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key not in _NOT_SHOWN}
    return {"anyOf": [plain, {"type": "null"}]} if nullable else plain
