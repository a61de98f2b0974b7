"""Refuses new work of a server whose own calls do not get through: what is let in would only wait."""

from collections.abc import Container

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slb.client.session import Session
from slb.errors import OVERLOADED, ConfigError


def shed_when_full(session: Session, exempt: Container[str] = ()) -> Middleware:
    """A middleware for the aiohttp application that calls through `session`: once `max_outbound` of its calls are
    out or waiting, new requests get 503 with Retry-After, except for the paths in `exempt`, such as a health
    check's. Raises ConfigError where the session has no `max_outbound`."""
    if not session.max_outbound:
        raise ConfigError("shed_when_full: the session has no max_outbound, so nothing would ever be shed")

    @web.middleware
    async def shed(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not session.overloaded or request.path in exempt:
            return await handler(request)
        session.metrics.shed += 1
        return web.json_response(
            {"error": OVERLOADED.name, "detail": "too many calls of this server are out or waiting"},
            status=OVERLOADED.status,
            headers={"Retry-After": str(OVERLOADED.retry_after)},
        )

    return shed
