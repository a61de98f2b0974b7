"""Those who ask: which token is theirs, and whether they still wait for the answer."""

from collections.abc import Callable

from aiohttp import web

from slb.tokens import Holder

RENEWS = web.RequestKey("slb.renews", bool)
"""Of a registration that changed nothing: an upstream says that it is there yet."""

HOLDER = web.RequestKey("slb.holder", Holder)
"""Of every request that is let in to an endpoint which is not open: whose token it has."""


def named(request: web.Request) -> dict[str, str]:
    """Who asks, as a field of a line of the log: `by`; empty where no token is asked for. (Fields that are called
    after a token are masked there.)"""
    name = request[HOLDER].name
    return {"by": name} if name else {}


def is_there(request: web.Request) -> Callable[[], bool]:
    """Whether the caller of a request still has its connection, at the time of each call."""

    def is_connected() -> bool:
        transport = request.transport
        return transport is not None and not transport.is_closing()

    return is_connected
