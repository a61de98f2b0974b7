"""GET /fleet and /fleet/events: all instances, routes and upstreams as one state, once or as it changes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import hdrs, web

from slb.answers import dumped
from slb.api.callers import HOLDER
from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Fleet
from slb.api.replies import json_reply, request_id_of, signed
from slb.api.routes import route_path
from slb.api.shapes import History, RouteHour, UpstreamHour, UpstreamInFlight
from slb.api.upstreams import known_member
from slb.errors import BAD_REQUEST, NO_ROUTE, OVERLOADED, Refused
from slb.tokens import API_TOKEN

_OF_ROUTES = "/fleet/history/routes"
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
            Endpoint("GET", "/fleet", self.show, dict[str, dict[str, Any]], None, (OVERLOADED,), ("read",)),
            Endpoint(
                "GET",
                "/fleet/events",
                self.stream,
                None,
                None,
                (OVERLOADED,),
                ("read",),
                content_type="text/event-stream",
            ),
            Endpoint("GET", "/fleet/history", self.history, History, None, (OVERLOADED,), ("read",)),
            Endpoint(
                "GET",
                f"{_OF_ROUTES}/{{path}}",
                self.route_hour,
                RouteHour,
                None,
                (BAD_REQUEST, NO_ROUTE, OVERLOADED),
                ("read",),
            ),
            Endpoint(
                "GET",
                "/fleet/history/upstreams/{member}",
                self.upstream_hour,
                UpstreamHour,
                None,
                (BAD_REQUEST, NO_ROUTE, OVERLOADED),
                ("read",),
            ),
            Endpoint(
                "GET",
                "/fleet/upstreams/{member}",
                self.in_flight,
                UpstreamInFlight,
                None,
                (BAD_REQUEST, NO_ROUTE, OVERLOADED),
                ("read",),
            ),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """The whole fleet: instances, routes, upstreams, queues, jobs, alerts.

        Section -> key -> object. An instance that nobody looks at asks the others first, which takes a second.
        """
        with self._looking():
            await self._fleet.first()
            return web.Response(body=self._whole(request), content_type="application/json")

    async def history(self, _: web.Request) -> web.Response:
        """The last hour of each process.

        A figure for every `step` seconds, the last one at `until` (seconds since 1970): requests and errors per
        second, requests in flight, and the seconds that half (`p50`) and nearly all (`p99`) took, null where none
        ended.
        """
        return json_reply(await self._fleet.history())

    async def route_hour(self, request: web.Request) -> web.Response:
        """The last hour of one route, over all instances.

        A figure for every `step` seconds, the last one for those up to `until` (seconds since 1970), null where
        nothing is known. Every instance is asked, which takes a second where one does not answer. Each knows what
        it has seen since it began, and forgets a route that leaves.
        """
        path = route_path(request, _OF_ROUTES)
        if path not in self._parts.mirror.records:
            raise Refused(NO_ROUTE, f"there is no route {path}")
        return json_reply(await self._fleet.hour(path))

    async def upstream_hour(self, request: web.Request) -> web.Response:
        """The last hour of one upstream, over all its routes and all instances.

        A figure for every `step` seconds, the last one for those up to `until` (seconds since 1970), null where
        nothing is known. Every instance is asked, which takes a second where one does not answer. Each knows what
        it has seen since it began, and forgets an upstream that leaves.
        """
        return json_reply(await self._fleet.hour(known_member(self._parts.mirror, request)))

    async def in_flight(self, request: web.Request) -> web.Response:
        """What all instances have in flight at one upstream.

        Every instance is asked, which takes a second where one does not answer. An upstream that drains may be
        stopped once `empty` is true.
        """
        member = known_member(self._parts.mirror, request)
        found = await self._fleet.in_flight(member)
        live = self._parts.mirror.upstream(member)
        drains = live is not None and live.spec.drain
        shown = {**found, "empty": drains and found["empty"]}
        return json_reply(UpstreamInFlight(member=member, drain=drains, **shown))  # type: ignore[typeddict-item]

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The same, and what changes in it, as server-sent events.

        The first event, `all`, is what `/fleet` answers; each `change` after it has only what is different, and
        null for what has left. A reader that is too slow for all changes gets another `all`. The stream ends with
        the token it was asked for with.
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
        fleet, sent, token = self._fleet, -1, self._token_of(request)
        try:
            while not self._parts.draining() and self._token_of(request) == token:
                version = fleet.version
                if version == sent:
                    event = _KEEP_ALIVE
                elif version == sent + 1:
                    event = b"event: change\ndata: %b\n\n" % self._with_view(request, fleet.change)
                else:
                    event = b"event: all\ndata: %b\n\n" % self._whole(request)
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

    def _whole(self, request: web.Request) -> bytes:
        return self._with_view(request, self._fleet.state())

    def _with_view(self, request: web.Request, sections: bytes) -> bytes:
        """With what this process shows of itself, and what the caller of `request` may do."""
        holder = request[HOLDER]
        rights = sorted(holder.rights) if holder.name else None
        shown = {
            **self._fleet.self_shown(),
            "rights": rights,
            "prefixes": list(holder.prefixes),
            "token": holder.name,
        }
        view = dumped({"view": {"self": shown}})
        return view if sections == b"{}" else view[:-1] + b"," + sections[1:]

    def _token_of(self, request: web.Request) -> object:
        """The caller's token as the settings have it now; where none was asked for, whether any is."""
        settings, name = self._parts.settings, request[HOLDER].name
        if not name:
            return bool(settings.api_token or settings.tokens)
        return settings.api_token if name == API_TOKEN else settings.tokens.get(name)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._fleet.enter()
        try:
            yield
        finally:
            self._fleet.leave()
