"""A quota router of a few lines: it has the API, decides as a test sets it, and records its requests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class SmallRouter:
    """`waits`: what is answered to the next asks, milliseconds; after them everything is admitted to `model`."""

    def __init__(self, waits: tuple[int, ...] = (), model: str = "m1") -> None:
        self.waits = list(waits)
        self.model = model
        self.asked: list[dict[str, Any]] = []
        self.beats: list[str] = []
        self.completed: list[dict[str, Any]] = []
        self.running: dict[str, str] = {}
        self.lapsed: set[str] = set()
        self.broken = False
        """Answers 503 to everything."""
        self.refused = 0
        """How many such answers there were."""
        self.stranger = False
        """Answers everything as something else would that speaks JSON."""
        self.lost_answers = 0
        """Of so many admissions the answer never arrives."""
        self.held = asyncio.Event()
        """Admissions wait for it."""
        self.held.set()
        self.lease_ttl_ms: int | None = None
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["SmallRouter"]:
        """While this lasts it listens, on a port of its own."""
        app = web.Application(middlewares=[self._may_be_broken])
        app.router.add_post("/schedule", self._schedule)
        app.router.add_post("/complete", self._complete)
        app.router.add_post("/heartbeat", self._heartbeat)
        app.router.add_get("/advice", self._advice)
        app.router.add_get("/tasks", self._tasks)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        bound = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            await web.SockSite(runner, bound).start()
            yield self
        finally:
            await runner.cleanup()

    @web.middleware
    async def _may_be_broken(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.broken:
            self.refused += 1
            return web.json_response({"error": "redis_down", "detail": ""}, status=503)
        if self.stranger:
            return web.json_response({"hello": "world"})
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _schedule(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        if body["estimated_tokens"] > 100_000:
            return web.json_response({"error": "estimate_exceeds_limit", "detail": "too large"}, status=400)
        if self.waits:
            return web.json_response({"wait_for_ms": self.waits.pop(0)})
        await self.held.wait()
        task_id = next((task for task, key in self.running.items() if key == body["idempotency_key"]), None)
        task_id = task_id or f"tsk_{len(self.running) + len(self.completed)}"
        self.running[task_id] = body["idempotency_key"]
        if self.lost_answers:
            self.lost_answers -= 1
            assert request.transport is not None
            request.transport.close()
        ttl = {"lease_ttl_ms": self.lease_ttl_ms} if self.lease_ttl_ms else {}
        return web.json_response({"model_backend_id": self.model, "task_id": task_id, **ttl})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.completed.append(body)
        known = self.running.pop(body["task_id"], None)
        state = "abandoned" if body["task_id"] in self.lapsed else "completed"
        return web.json_response({"ok": known is not None, "state": state})

    async def _heartbeat(self, request: web.Request) -> web.Response:
        task_id = (await request.json())["task_id"]
        self.beats.append(task_id)
        if task_id in self.lapsed:
            return web.json_response({"ok": False, "reason": "not_found"})
        return web.json_response({"ok": True})

    async def _advice(self, request: web.Request) -> web.Response:
        return web.json_response({"backpressure_score": 0.25, "suggested_parallelism": 14})

    async def _tasks(self, request: web.Request) -> web.Response:
        listed = [{"task_id": task, "state": "abandoned"} for task in sorted(self.lapsed)]
        return web.json_response({"tasks": listed})
