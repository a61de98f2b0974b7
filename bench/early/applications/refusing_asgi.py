"""An ASGI application that refuses by the head."""

from collections.abc import Awaitable, Callable
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: object, send: Send) -> None:
    """413 to all, with nothing of the body read."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])  # how an application says that it has no lifespan
    headers = [(b"content-length", b"8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"too much"})
