"""Those who wait for an answer."""

from collections.abc import Callable

from aiohttp import web


def is_there(request: web.Request) -> Callable[[], bool]:
    """Whether the caller of a request still has its connection, at the time of each call."""

    def is_connected() -> bool:
        transport = request.transport
        return transport is not None and not transport.is_closing()

    return is_connected
