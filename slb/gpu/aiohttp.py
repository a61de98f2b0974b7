"""The slots of a GPU in an aiohttp server."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from aiohttp import web

from .slots import GpuSlots, Place, Refusal

PLACE = web.RequestKey("slb.gpu", Place)
"""`request[PLACE]` is the request's Place."""
_LOOK = 0.2
"""Seconds between two looks at whether a waiting client has left: aiohttp tells a handler of that only where it was
started with `handler_cancellation`."""


def slots_middleware(slots: GpuSlots, paths: Collection[str] = ("/generate",)) -> Any:
    """A middleware for `web.Application(middlewares=[...])`: requests to one of `paths` have a slot of `slots`
    while they are served; all others pass."""
    served = frozenset(paths)

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path not in served:
            response: web.StreamResponse = await handler(request)
            return response
        try:
            place = slots.arrive(request.headers.get("X-Source"))
        except Refusal as refusal:
            return web.json_response({"detail": str(refusal)}, status=503)
        try:
            request[PLACE] = place
            response = await handler(request) if await _has_turn(request, place) else web.Response(status=503)
        except BaseException:
            place.release()
            raise
        if not place.is_kept:
            place.release()
        return response

    return middleware


async def _has_turn(request: web.Request, place: Place) -> bool:
    """Wait for the slot; False where the client has left before."""
    while not place.has_slot:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await place.turn()
        if request.transport is None:
            return False
    return True
