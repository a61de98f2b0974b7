"""/metrics: what was counted, for Prometheus. Under the same rule as the rest of the API: routes and upstreams by
name are not public. Prometheus sends a bearer token where that is configured (`authorization`)."""

from aiohttp import hdrs, web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Names and labels are plain, so that every version of the text format reads the same."""


class MetricsEndpoint:
    """The text comes from outside: with several workers it is their sum."""

    def __init__(self, parts: ApiParts) -> None:
        self._text = parts.metrics_text

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/metrics", self.show, "Counters for Prometheus", content_type="text/plain")]

    async def show(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._text(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})
