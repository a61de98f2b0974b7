"""An API that shows a made-up fleet, for what takes too long, or cannot be had, with real instances. With a port as
its argument it runs by itself: `python -m tests.browser.stand_in 9000`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import hdrs, web

from slb.api.dashboard import page_first
from tests.browser.made_fleet import MadeFleet

_EVENTS = {hdrs.CONTENT_TYPE: "text/event-stream", hdrs.CACHE_CONTROL: "no-store"}


class StandIn:
    """`asked`: method and path of each request for data; `streams`: how many are open. The fleet changes every
    `cadence` seconds, or, with None, when `send` is called."""

    def __init__(self, fleet: MadeFleet, cadence: float | None = 1.0) -> None:
        self.fleet = fleet
        self.asked: list[tuple[str, str]] = []
        self.streams = 0
        self._cadence = cadence
        self._readers: list[asyncio.Queue[bytes]] = []

    def application(self) -> web.Application:
        app = web.Application(middlewares=[page_first])
        app.router.add_get("/fleet/events", self._stream)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        return app

    def send(self, change: Mapping[str, Any]) -> None:
        """To all that follow; the state is not touched."""
        for reader in self._readers:
            reader.put_nowait(_event("change", change))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers=_EVENTS)
        await reply.prepare(request)
        mine: asyncio.Queue[bytes] = asyncio.Queue()
        self._readers.append(mine)
        self.streams += 1
        try:
            await reply.write(_event("all", self.fleet.state))
            while True:
                try:
                    await reply.write(await asyncio.wait_for(mine.get(), self._cadence))
                except TimeoutError:
                    await reply.write(_event("change", self.fleet.change()))
        except ConnectionError:
            pass  # the page has closed it
        finally:
            self.streams -= 1
            self._readers.remove(mine)
        return reply

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.asked.append((request.method, path))
        known = {
            "/fleet/history": self.fleet.history(),
            "/fleet/changes": {"changes": []},
            "/admin/dlq": {"jobs": _DEAD, "cursor": None},
        }
        if path in known:
            return _json(known[path])
        if path.startswith("/routes/") and request.method == "GET":
            return _json({"decision": _DECISION})
        return _json({"error": "no_route", "detail": f"there is no endpoint {path}"}, 404)


StartStandIn = Callable[[StandIn], Awaitable[str]]


@asynccontextmanager
async def serving(stand_in: StandIn) -> AsyncIterator[str]:
    """Its address while it serves."""
    runner = web.AppRunner(stand_in.application(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


def _json(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")


_DEAD: Sequence[Mapping[str, Any]] = [
    {
        "job_id": f"order-{number}",
        "model": "flux",
        "status": "dead_lettered",
        "attempts": 4,
        "failures": 4,
        "submitted_at": 1.7e9,
        "completed_at": 1.7e9 + 60,
        "error": "GPU answered 500: out of memory",
    }
    for number in (17, 18, 40)
]
_DECISION: Mapping[str, Any] = {
    "decided_by": "redis",
    "outcome": "granted",
    "chosen": "10.1.0.11:8000",
    "reason": None,
    "waited": 0.02,
    "members": [{"member": "10.1.0.11:8000", "score": 3, "capacity": 8, "verdict": "chosen"}],
}


if __name__ == "__main__":
    routes, upstreams = (int(each) for each in sys.argv[2:4]) if len(sys.argv) > 3 else (6, 60)
    web.run_app(StandIn(MadeFleet(routes, upstreams)).application(), host="127.0.0.1", port=int(sys.argv[1]))
