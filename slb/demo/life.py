"""What the demo leaves when it is kept, for the dashboard and for whoever tries commands on it: traffic that comes
and goes, a queue, a slow pod, jobs of which some fail."""

import asyncio
import itertools
import math
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from slb.demo.fleet import PATH, Fleet
from slb.demo.jobs import MODEL
from slb.demo.processes import DemoFailed

FLUX, CHAT, SLOW_MODEL = "/models/flux", "/models/chat", "video"
_SLOTS = 8
_PODS = {"flux-1": "700ms", "flux-2": "700ms", "flux-3": "750ms", "flux-4": "2500ms"}
"""The last one is slow."""
_CHATS = 5
_QUEUED: dict[str, Any] = {
    "policy": "least_inflight",
    "max_inflight": 1,
    "when_full": "queue",
    "priorities": {"critical": 8, "normal": 3, "batch": 1},
}
_HASHED: dict[str, Any] = {"policy": "consistent_hash", "hash_key": "header:X-Session", "max_inflight": 1}
_TIDE = 60.0
"""Seconds from one high tide of the traffic to the next: at each there are more requests than slots."""
_FLUX, _CHAT, _PLAIN = 38.0, 24.0, 12.0
"""Requests a second; of the first as many on average."""
_JOBS_EVERY, _FAILING_EVERY = 0.25, 15.0
_PATIENCE = ClientTimeout(total=60)
_AT_ONCE = 400
_AWAY = (ClientError, OSError, TimeoutError, DemoFailed)
"""Somebody tries what happens when an instance, or Redis, is gone."""


class Life:
    """`run` lasts until it is cancelled; what fails in it is no failure of the demo."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._random = Random(1)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._ways = itertools.cycle(fleet.instances)

    async def start(self) -> None:
        """Pods start, and routes and models are set up. Raises DemoFailed."""
        front = self._fleet.instances[0]
        for name, seconds in _PODS.items():
            await self._fleet.pod(name, FLUX, _SLOTS, seconds)
        for number in range(_CHATS):
            await self._fleet.pod(f"chat-{number + 1}", CHAT, _SLOTS, "300ms")
        await self._fleet.call(front, "PATCH", f"/routes{FLUX}", _QUEUED)
        await self._fleet.call(front, "PATCH", f"/routes{CHAT}", _HASHED)
        await self._fleet.gpu("video-1", SLOW_MODEL, seconds="3s")
        config = {"max_processing_time": "2s", "max_retries": 0}
        await self._fleet.call(front, "PATCH", f"/admin/model-configs/{SLOW_MODEL}", config)

    async def run(self) -> None:
        async with ClientSession(timeout=_PATIENCE) as session, asyncio.TaskGroup() as group:
            for each in (self._flux(session), self._chat(session), self._plain(session), self._jobs()):
                group.create_task(each)

    async def _flux(self, session: ClientSession) -> None:
        """With the tide; a third is of the class batch, a tenth critical."""
        for number in itertools.count():
            class_ = "critical" if number % 10 == 0 else "batch" if number % 3 == 0 else "normal"
            tide = 1 + 0.35 * math.sin(2 * math.pi * asyncio.get_running_loop().time() / _TIDE)
            await self._after(_FLUX * tide, self._request(session, FLUX, {"X-Priority": class_}))

    async def _chat(self, session: ClientSession) -> None:
        while True:
            session_id = f"user-{self._random.randrange(200)}"
            await self._after(_CHAT, self._request(session, CHAT, {"X-Session": session_id}))

    async def _plain(self, session: ClientSession) -> None:
        while True:
            await self._after(_PLAIN, self._request(session, PATH, {}))

    async def _jobs(self) -> None:
        for number in itertools.count():
            await self._submit(MODEL, f"kept-{number}")
            if number % round(_FAILING_EVERY / _JOBS_EVERY) == 0:
                await self._submit(SLOW_MODEL, f"clip-{number}")
            await asyncio.sleep(_JOBS_EVERY)

    async def _after(self, rate: float, request: Coroutine[Any, Any, None]) -> None:
        """Begin it, and wait until the next one is due. Whoever waits for an answer takes a place."""
        await self._places.acquire()
        task = asyncio.create_task(request)
        task.add_done_callback(lambda _: self._places.release())
        await asyncio.sleep(self._random.expovariate(rate))

    async def _request(self, session: ClientSession, path: str, headers: dict[str, str]) -> None:
        with suppress(*_AWAY):
            async with session.get(f"{next(self._ways).url}{path}", headers=headers) as reply:
                await reply.read()

    async def _submit(self, model: str, id_: str) -> None:
        body = {"model": model, "payload": {"prompt": id_}, "job_id": id_}
        with suppress(*_AWAY):
            await self._fleet.call(self._fleet.instances[0], "POST", "/queue/submit", body)
