"""GET /explain/<request id>: why a request went where it went, or was refused; GET /explain: where one would go."""

from collections.abc import Sequence
from urllib.parse import quote

from aiohttp import web

from slb.admission.shown import RouteNow
from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Fleet
from slb.api.replies import json_reply
from slb.api.shapes import Found, LastChange, PathExplained, RequestExplained
from slb.control.change_log import Entry
from slb.errors import BAD_REQUEST, NO_ROUTE, OVERLOADED, UNKNOWN_REQUEST, RedisUnavailable, Refused
from slb.names import normal_path

_PREFIX = "/explain"
_MOST_CHANGES = 200
_OF_ITS_PLACE: frozenset[str] = frozenset({"registered", "deregistered", "lease_ended", "attributes_changed"})
"""Changes that do not say whether an upstream takes requests; all others may, those that come to be too."""
_DRAINS = frozenset({"drained", "undrained"})


class ExplainEndpoint:
    """What processes remember: see slb/observe/decisions.py. What holds now: see slb/admission/route_now.py."""

    def __init__(self, parts: ApiParts, fleet: Fleet) -> None:
        self._parts = parts
        self._fleet = fleet

    def endpoints(self) -> list[Endpoint]:
        reasons = (UNKNOWN_REQUEST, OVERLOADED)
        missing = (BAD_REQUEST, NO_ROUTE)
        return [
            Endpoint("GET", f"{_PREFIX}/{{request_id}}", self.explain, RequestExplained, None, reasons, ("read",)),
            Endpoint(
                "GET", _PREFIX, self.explain_path, PathExplained, None, missing, ("read",), query=("path", "key")
            ),
        ]

    async def explain(self, request: web.Request) -> web.Response:
        """Why a request went where it went, or was refused.

        By its `X-Request-Id`, of any instance. Each process remembers its last requests: some thousands that went
        straight to an upstream, as many that had something to tell, and the last refusals.
        """
        request_id = request.match_info["request_id"]
        found: list[Found] = [Found(**each) for each in await self._fleet.explain(request_id)]  # type: ignore[typeddict-item]
        if not found:  # as with Redis away, where only this process's workers can be asked
            answers = await self._parts.workers_answers(f"{_PREFIX}/{quote(request_id)}")
            found = [each for answer in answers if answer for each in answer["found"]]
        if not found:
            raise Refused(UNKNOWN_REQUEST, "no instance remembers a request of this id")
        return json_reply(RequestExplained(request_id=request_id, found=found))

    async def explain_path(self, request: web.Request) -> web.Response:
        """Where a request of a path would go now, and why.

        Nothing is sent anywhere. `now.members` are all upstreams of its route, each with what the policy compares,
        or why it takes no requests. It is the view of one process, as things are now: with `--workers` that of one
        of them.
        """
        path, _, _ = request.query.get("path", "").partition("?")
        normal, key = normal_path(path, encoded_controls=True), request.query.get("key", "")
        route = self._parts.mirror.table.match(normal)
        if route is None:
            raise Refused(NO_ROUTE, f"no route takes {normal}")
        if not key and route.settings.hash_key == "path":
            key = normal
        found = self._parts.route_now(normal, key.encode("utf-8", "surrogateescape"))
        if found is None:  # a supervisor's workers have the traffic
            query = f"?path={quote(normal, safe='')}&key={quote(key, safe='', errors='surrogateescape')}"
            answers = await self._parts.workers_answers(f"{_PREFIX}{query}")
            shown: PathExplained | None = next((each for each in answers if each), None)
            if shown is None:
                raise Refused(NO_ROUTE, f"no process that takes traffic has a route for {normal} yet")
            return json_reply(shown)
        return json_reply(
            PathExplained(
                path=normal,
                instance=self._parts.instances.info.name,
                now=found,
                changes=_last_changes(found, await self._entries()),
            )
        )

    async def _entries(self) -> Sequence[Entry]:
        """The end of the log of changes; empty while Redis is away."""
        try:
            return await self._parts.read_changes("", _MOST_CHANGES)
        except RedisUnavailable:
            return ()


def _last_changes(now: RouteNow, entries: Sequence[Entry]) -> dict[str, LastChange]:
    """Of each upstream the last entry that has to do with its verdict: checks go on while it drains."""
    drains = {each["member"]: each["verdict"] == "draining" for each in now["members"]}
    return {
        each.subject: LastChange(time=each.time, what=each.what, name=each.name, detail=each.detail, by=each.by)
        for each in entries
        if each.what not in _OF_ITS_PLACE and drains.get(each.subject) is (each.what in _DRAINS)
    }
