"""A stand-in upstream (`slb upstream`) that behaves like one GPU, to try a fleet on one machine.

It serves `slots` requests at a time, in order; each takes the service time, or that of its `X-Service-Time` header.
`GET /healthz` is answered at once. To leave without failed requests it deregisters first, and serves until none has
come for `grace`.

As a GPU server of the job dispatcher it lets a few direct calls wait, refuses the dispatcher's while it is busy
(`slb.gpu`), and answers `/generate`, `/status/<id>` and `/health`.
"""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import web

from slb.addresses import unwrapped
from slb.errors import InvalidName
from slb.gpu import GpuSlots, Refusal
from slb.gpu import Place as GpuPlace
from slb.lifecycle import Stopping, unless_set
from slb.listening import listening_socket, shown_address
from slb.names import seconds
from slb.registration import Registration, RegistrationRefused
from slb.setting_values import host_port

_CUT_OFF_AFTER = 0.1  # seconds that open requests have at the end, which comes with a second signal only
_MOST_JOBS = 10_000  # that can be asked for

Answer = dict[str, Any]
"""As JSON has it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an upstream listens and where it registers (`urls` empty: nowhere), for how many seconds (`ttl` None:
    for good)."""

    listen: str
    urls: Sequence[str] = ()
    path: str = "/"
    advertise: str | None = None
    token: str | None = None
    ca: Path | None = None
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
        return Registration(self.urls, self.path, target, ttl=self.ttl, token=self.token, ca=self.ca)


@dataclass(frozen=True, slots=True)
class Manner:
    """How an upstream serves; durations are seconds. A leaving one stays until no request has come for `grace`.
    `direct_queue`: it is a GPU server, at which so many direct calls may wait. `is_async`: that answers `/generate`
    before it is done."""

    name: str = ""
    service_time: float = 0.0
    slots: int = 1
    grace: float = 0.5
    direct_queue: int | None = None
    is_async: bool = False


class StandIn:
    def __init__(self, manner: Manner, clock: Callable[[], float]) -> None:
        self._manner = manner
        self._is_gpu = manner.direct_queue is not None
        self._slots = GpuSlots(manner.slots, sys.maxsize if manner.direct_queue is None else manner.direct_queue)
        self._clock = clock
        self._present = 0
        self._last_seen = clock()
        self._jobs: dict[str, asyncio.Task[Answer]] = {}

    def make_app(self) -> web.Application:
        """Every method and path is answered in the same way, but for the one that asks whether it lives, and those
        of a GPU server."""
        app = web.Application(client_max_size=2**40)
        app.router.add_get("/healthz", self._healthy)
        if self._is_gpu:
            app.router.add_get("/health", self._health)
            app.router.add_get("/status/{id}", self._status)
            app.router.add_post("/generate", self._generate)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def idle(self, known: bool) -> None:
        """Wait until no request is open; where an slb has it `known`, until none has come for the grace, too."""
        grace = self._manner.grace if known else 0
        while (rest := self._last_seen + grace - self._clock()) > 0 or self._present:
            await asyncio.sleep(max(rest, 0.01))

    async def _serve(self, request: web.Request) -> web.Response:
        with self._seen():
            answer, service_time = await self._read(request)
            return self._answered(await self._work(self._arrive(request), answer, service_time))

    async def _healthy(self, _: web.Request) -> web.Response:
        """At once and beside the line, as model servers answer it: to be busy is not to be down."""
        return self._answered({"upstream": self._manner.name, "waiting_or_served": self._present})

    async def _read(self, request: web.Request) -> tuple[Answer, float]:
        """What is said of a request in its answer, once all of it has come; and how long it takes."""
        written = request.headers.get("X-Service-Time")
        try:
            service_time = self._manner.service_time if written is None else seconds(written)
        except InvalidName as error:
            raise web.HTTPBadRequest(text=f"X-Service-Time: {error}\n") from None
        size = sum([len(chunk) async for chunk in request.content.iter_any()])
        facts = {"method": request.method, "path": request.raw_path, "body_bytes": size}
        return {"upstream": self._manner.name, **facts}, service_time

    def _arrive(self, request: web.Request) -> GpuPlace:
        try:
            return self._slots.arrive(request.headers.get("X-Source") if self._is_gpu else None)
        except Refusal as refusal:
            answer = json.dumps({"detail": str(refusal)}) + "\n"
            raise web.HTTPServiceUnavailable(text=answer, content_type="application/json") from None

    async def _work(self, place: GpuPlace, answer: Answer, service_time: float) -> Answer:
        arrived = self._clock()
        try:
            await place.turn()
            waited = self._clock() - arrived
            await asyncio.sleep(service_time)
        finally:
            place.release()
        return {**answer, "waited_seconds": round(waited, 6)}

    def _answered(self, answer: Answer, status: int = 200) -> web.Response:
        text = json.dumps(answer) + "\n"  # or a terminal's prompt follows it on the same line
        return web.json_response(text=text, status=status, headers={"X-Upstream": self._manner.name})

    @contextmanager
    def _seen(self) -> Iterator[None]:
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1
            self._last_seen = self._clock()

    # -- as a GPU server

    async def _generate(self, request: web.Request) -> web.Response:
        with self._seen():
            answer, service_time = await self._read(request)
            place = self._arrive(request)
            if self._manner.is_async:
                position = self._slots.waiting  # of a direct call; the dispatcher's never wait
                id_, _ = self._begun(place, answer, service_time)
                state = {"status": "processing"} if place.has_slot else {"status": "queued", "position": position}
                return self._answered({**state, "job_id": id_})
            try:
                await place.turn()
            except asyncio.CancelledError:  # the client has left
                place.release()
                raise
            _, job = self._begun(place, answer, service_time)
            return self._answered({"status": "success", "result": await asyncio.shield(job)})

    def _begun(self, place: GpuPlace, answer: Answer, service_time: float) -> tuple[str, "asyncio.Task[Answer]"]:
        """A job goes on when its client leaves, as on a GPU."""

        async def run() -> Answer:
            with self._seen():
                return await self._work(place, answer, service_time)

        id_ = uuid4().hex
        self._jobs[id_] = asyncio.create_task(run())
        for old in list(self._jobs)[:-_MOST_JOBS]:
            del self._jobs[old]
        return id_, self._jobs[id_]

    async def _status(self, request: web.Request) -> web.Response:
        job = self._jobs.get(request.match_info["id"])
        if job is None:
            return self._answered({"detail": "no such job"}, status=404)
        return self._answered(
            {"status": "completed", "result": job.result()} if job.done() else {"status": "processing"}
        )

    async def _health(self, _: web.Request) -> web.Response:
        return self._answered({"upstream": self._manner.name, "status": "healthy", **self._slots.health()})


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
