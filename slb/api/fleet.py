"""GET /fleet and /fleet/events: all instances, routes and upstreams as one state, once or as it changes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import hdrs, web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Fleet
from slb.api.replies import json_reply, request_id_of, signed
from slb.api.shapes import History
from slb.errors import OVERLOADED

_SILENCE = 15.0
"""Seconds after which a comment goes where no event does: what is between must not take it for idle."""
_KEEP_ALIVE = b": \n\n"
_SLOWEST = 30.0
"""Seconds that a reader may take to take one event; then it is dropped. Meanwhile it gets no others: what it has
missed it is sent with the whole state."""
_HEAD = {hdrs.CONTENT_TYPE: "text/event-stream", hdrs.CACHE_CONTROL: "no-store", "X-Accel-Buffering": "no"}


class FleetEndpoint:
    """Decides nothing: see slb/fleet/view.py."""

    def __init__(self, parts: ApiParts, fleet: Fleet) -> None:
        self._parts = parts
        self._fleet = fleet

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/fleet", self.show, dict[str, dict[str, Any]], None, (OVERLOADED,)),
            Endpoint(
                "GET", "/fleet/events", self.stream, None, None, (OVERLOADED,), content_type="text/event-stream"
            ),
            Endpoint("GET", "/fleet/history", self.history, History, None, (OVERLOADED,)),
        ]

    async def show(self, _: web.Request) -> web.Response:
        """The whole fleet: instances, routes, upstreams, queues, jobs, alerts.

        Section -> key -> object. An instance that nobody looks at asks the others first, which takes a second.
        """
        with self._looking():
            await self._fleet.first()
            return web.Response(body=self._whole(), content_type="application/json")

    async def history(self, _: web.Request) -> web.Response:
        """The last hour of each process.

        A figure for every `step` seconds, the last one at `until` (seconds since 1970): requests and errors per
        second, requests in flight, and the seconds that half (`p50`) and nearly all (`p99`) took, null where none
        ended.
        """
        return json_reply(await self._fleet.history())

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The same, and what changes in it, as server-sent events.

        The first event, `all`, is what `/fleet` answers; each `change` after it has only what is different, and
        null for what has left. A reader that is too slow for all changes gets another `all`.
        """
        with self._looking():
            await self._fleet.first()
            reply = web.StreamResponse(headers=_HEAD)
            signed(reply, request_id_of(request.headers))
            await reply.prepare(request)
            if request.method != hdrs.METH_HEAD:
                await self._streamed(request, reply)
        return reply

    async def _streamed(self, request: web.Request, reply: web.StreamResponse) -> None:
        fleet, sent, settings = self._fleet, -1, self._parts.settings
        try:
            # After a reload the reader has to come again: its token may not hold any more.
            while not self._parts.draining() and self._parts.settings is settings:
                version = fleet.version
                if version == sent:
                    event = _KEEP_ALIVE
                elif version == sent + 1:
                    event = b"event: change\ndata: %b\n\n" % self._with_view(fleet.change)
                else:
                    event = b"event: all\ndata: %b\n\n" % self._whole()
                async with asyncio.timeout(_SLOWEST):
                    await reply.write(event)
                sent = version
                await fleet.updated(version, _SILENCE)
            await reply.write_eof()
        except ConnectionError:
            pass  # the client has left
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()

    def _whole(self) -> bytes:
        return self._with_view(self._fleet.state())

    def _with_view(self, sections: bytes) -> bytes:
        """With what this process shows of itself, and what its caller may do."""
        shown = {**self._fleet.self_shown(), "rights": None, "token": ""}
        view = orjson.dumps({"view": {"self": shown}})
        return view if sections == b"{}" else view[:-1] + b"," + sections[1:]

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._fleet.enter()
        try:
            yield
        finally:
            self._fleet.leave()
