"""A stand-in upstream (`slb upstream`) that behaves like one GPU, to try a fleet on one machine.

It serves `slots` requests at a time, in order; each takes the service time, or that of its `X-Service-Time` header.
`GET /healthz` is answered at once. To leave without failed requests it deregisters first, and serves until none has
come for `grace`.
"""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aiohttp import web

from slb.addresses import unwrapped
from slb.errors import InvalidName
from slb.lifecycle import Stopping, unless_set
from slb.listening import listening_socket, shown_address
from slb.names import seconds
from slb.registration import Registration, RegistrationRefused
from slb.setting_values import host_port

_CUT_OFF_AFTER = 0.1  # seconds that open requests have at the end, which comes with a second signal only


@dataclass(frozen=True, slots=True)
class Place:
    """Where an upstream listens and where it registers (`urls` empty: nowhere), for how many seconds (`ttl` None:
    for good)."""

    listen: str
    urls: Sequence[str] = ()
    path: str = "/"
    advertise: str | None = None
    token: str | None = None
    ttl: float | None = None

    def check(self) -> None:
        """Raises RegistrationRefused where it would be no slb's to reach."""
        if self.urls and self.advertise is None and _is_on_all_addresses(self.listen):
            raise RegistrationRefused(
                f"--listen {self.listen} is on all addresses: say with --advertise HOST:PORT at which of them slb "
                "reaches this upstream"
            )

    def registration(self, address: str) -> Registration | None:
        """What to register, for an upstream that listens on `address`. Raises ConfigError."""
        if not self.urls:
            return None
        target = self.advertise or address
        return Registration(self.urls, self.path, target, ttl=self.ttl, token=self.token)


@dataclass(frozen=True, slots=True)
class Manner:
    """How an upstream serves; durations are seconds. A leaving one stays until no request has come for `grace`."""

    name: str = ""
    service_time: float = 0.0
    slots: int = 1
    grace: float = 0.5


class StandIn:
    def __init__(self, manner: Manner, clock: Callable[[], float]) -> None:
        self._manner = manner
        self._slots = asyncio.Semaphore(manner.slots)
        self._clock = clock
        self._present = 0
        self._last_seen = clock()

    def make_app(self) -> web.Application:
        """Every method and path is answered in the same way, but for the one that asks whether it lives."""
        app = web.Application(client_max_size=2**40)
        app.router.add_get("/healthz", self._healthy)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def idle(self, known: bool) -> None:
        """Wait until no request is open; where an slb has it `known`, until none has come for the grace, too."""
        grace = self._manner.grace if known else 0
        while (rest := self._last_seen + grace - self._clock()) > 0 or self._present:
            await asyncio.sleep(max(rest, 0.01))

    async def _serve(self, request: web.Request) -> web.Response:
        self._present += 1
        try:
            return await self._answer(request)
        finally:
            self._present -= 1
            self._last_seen = self._clock()

    async def _healthy(self, _: web.Request) -> web.Response:
        """At once and beside the line, as model servers answer it: to be busy is not to be down."""
        answer = {"upstream": self._manner.name, "waiting_or_served": self._present}
        return web.json_response(text=json.dumps(answer) + "\n", headers={"X-Upstream": self._manner.name})

    async def _answer(self, request: web.Request) -> web.Response:
        written = request.headers.get("X-Service-Time")
        try:
            service_time = self._manner.service_time if written is None else seconds(written)
        except InvalidName as error:
            raise web.HTTPBadRequest(text=f"X-Service-Time: {error}\n") from None
        size = sum([len(chunk) async for chunk in request.content.iter_any()])
        arrived = self._clock()
        async with self._slots:
            waited = self._clock() - arrived
            await asyncio.sleep(service_time)
        answer = {
            "upstream": self._manner.name,
            "method": request.method,
            "path": request.raw_path,
            "body_bytes": size,
            "waited_seconds": round(waited, 6),
        }
        text = json.dumps(answer) + "\n"  # or a terminal's prompt follows it on the same line
        return web.json_response(text=text, headers={"X-Upstream": self._manner.name})


def _is_on_all_addresses(listen: str) -> bool:
    """Of what is no address it is found out when it is bound."""
    try:
        return unwrapped(host_port(listen)[0]).is_unspecified
    except ValueError:
        return False


async def serve_stand_in(
    stand_in: StandIn, bound: socket.socket, registration: Registration | None, stopping: Stopping
) -> None:
    """Serve on `bound`, registered by `registration`, until asked to stop; then leave. Raises
    RegistrationRefused."""
    # A client that gives up while it waits leaves the line, as it would leave a real queue.
    app = stand_in.make_app()
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_CUT_OFF_AFTER)
    await runner.setup()
    try:
        await web.SockSite(runner, bound).start()
        if registration is not None:
            await unless_set(stopping.requested, registration.keep())
        await stopping.requested.wait()
        if registration is not None:
            await unless_set(stopping.hurried, registration.deregister())
        await unless_set(stopping.hurried, stand_in.idle(known=registration is not None))
    finally:
        await runner.cleanup()


def run_stand_in(place: Place, manner: Manner, end_with_stdin: bool = False) -> int:
    """`slb upstream`: serve until a signal comes; the exit code. Raises CannotListen, ConfigError,
    RegistrationRefused."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    place.check()
    with listening_socket(place.listen, "listen") as bound:
        asyncio.run(_run(place, bound, manner, end_with_stdin))
    return 0


async def _run(place: Place, bound: socket.socket, manner: Manner, end_with_stdin: bool) -> None:
    stopping = Stopping()
    stopping.listen(end_with_stdin)
    address = shown_address(bound)
    named = replace(manner, name=manner.name or address)
    registration = place.registration(address)  # what it refuses ends this before anything is served
    print(f"upstream {named.name} serves http://{address}", flush=True)
    await serve_stand_in(StandIn(named, asyncio.get_running_loop().time), bound, registration, stopping)
