"""An upstream that records which requests come to it and which end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from slb.names import join_member
from tests.chaos.history import Granted, History, Observed, Released

ASK, INSTANCE, PRIORITY = "X-Ask", "X-Instance", "X-Priority"
"""What a client sends about its request, so that the upstream need not guess."""


class Leases:
    """What is known of them from outside.

    A client that leaves ends its lease before the upstream notices. What an instance that is frozen has to give
    back, it gives back when it goes on; a dead one never.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._running: set[str] = set()
        self._left: set[str] = set()
        self._stopped: set[str] = set()
        self._kept: dict[str, list[str]] = {}

    def began(self, grant: Granted) -> None:
        """A request has come to its upstream."""
        if grant.ask not in self._left:
            self._running.add(grant.ask)
            self._history.add(grant)

    def ended(self, ask: str, instance: str) -> None:
        """A request has ended at its upstream."""
        if ask not in self._running:
            return
        self._running.remove(ask)
        if instance in self._stopped:
            self._kept.setdefault(instance, []).append(ask)
        else:
            self._history.add(Released(self._history.clock(), ask))

    def left(self, ask: str, instance: str) -> None:
        """A client gives up."""
        self._left.add(ask)
        self.ended(ask, instance)

    def stopped(self, instance: str) -> None:
        """It is frozen or dead."""
        self._stopped.add(instance)

    def goes_on(self, instance: str) -> None:
        """A frozen instance is about to be thawed. From now on it may have given back what ended meanwhile: it may
        do so before Redis has a lease of it again."""
        self._stopped.remove(instance)
        for ask in self._kept.pop(instance, []):
            self._history.add(Released(self._history.clock(), ask))


class Upstream:
    """One member of `/p`; each request takes `service_time` seconds, however many there are."""

    def __init__(self, history: History, leases: Leases, service_time: float) -> None:
        self.member = ""
        self._history = history
        self._leases = leases
        self._service_time = service_time
        self._present = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Upstream"]:
        """While this lasts it listens, on a port of its own."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        bound = socket.create_server(("127.0.0.1", 0))
        self.member = join_member("http", "127.0.0.1", bound.getsockname()[1])
        try:
            await web.SockSite(runner, bound).start()
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        ask, instance, priority = (request.headers[name] for name in (ASK, INSTANCE, PRIORITY))
        now = self._history.clock()
        self._present += 1
        self._leases.began(Granted(now, ask, instance, "/p", self.member, priority))
        self._history.add(Observed(now, self.member, self._present))
        try:
            await asyncio.sleep(self._service_time)
        finally:
            self._present -= 1
            self._leases.ended(ask, instance)
        return web.Response()
