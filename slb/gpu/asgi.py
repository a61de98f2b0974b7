"""The slots of a GPU in an ASGI application, such as FastAPI or Starlette."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from .slots import GpuSlots, Place, Refusal

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PLACE = "slb.gpu"
"""Where a call's scope has its Place."""
MOST_KEPT = 8 << 20
"""Bytes of a waiting call's body that are read ahead. A client that sends more, and leaves, is noticed at its
turn."""


class SlotsMiddleware:
    """Calls to one of `paths` have a slot of `slots` while the application serves them; all others pass."""

    def __init__(self, app: App, slots: GpuSlots, paths: Collection[str] = ("/generate",)) -> None:
        self._app = app
        self._slots = slots
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        try:
            place = self._slots.arrive(_source(scope))
        except Refusal as refusal:
            await _refuse(send, refusal)
            return
        try:
            ahead = _Ahead(receive)
            if place.has_slot or await ahead.until_turn(place):
                await self._app({**scope, PLACE: place}, ahead.receive, send)
        except BaseException:
            place.release()
            raise
        if not place.is_kept:
            place.release()


class _Ahead:
    """What has come of a call while it waited; the application is given that first."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()

    async def receive(self) -> Message:
        return self._messages.popleft() if self._messages else await self._receive()

    async def until_turn(self, place: Place) -> bool:
        """Wait for the slot; False where the client has left before."""
        turn = asyncio.ensure_future(place.turn())
        reading = asyncio.ensure_future(self._until_left())
        try:
            await asyncio.wait((turn, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            return not reading.done()
        finally:
            for each in (turn, reading):
                each.cancel()
            await asyncio.wait((turn, reading))

    async def _until_left(self) -> None:
        """Only a call that is read from shows that its client has left."""
        size = 0
        while size < MOST_KEPT:
            message = await self._receive()
            self._messages.append(message)
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
        await asyncio.get_running_loop().create_future()  # for ever: the rest is read by the application


def _source(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-source"), None)


async def _refuse(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"detail": str(refusal)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
