"""GET /explain/<request id>: why a request went where it went, or was refused."""

from urllib.parse import quote

from aiohttp import web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Fleet
from slb.api.replies import json_reply
from slb.api.shapes import Found, RequestExplained
from slb.errors import OVERLOADED, UNKNOWN_REQUEST, Refused

_PREFIX = "/explain"


class ExplainEndpoint:
    """What processes remember: see slb/observe/decisions.py."""

    def __init__(self, parts: ApiParts, fleet: Fleet) -> None:
        self._parts = parts
        self._fleet = fleet

    def endpoints(self) -> list[Endpoint]:
        reasons = (UNKNOWN_REQUEST, OVERLOADED)
        return [
            Endpoint("GET", f"{_PREFIX}/{{request_id}}", self.explain, RequestExplained, None, reasons, ("read",))
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
