"""GPU servers in the tests' own process: they serve when a test lets them, and count their requests."""

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


class Gpu:
    """One server. `holds`: jobs stay there until `go` is set; `is_async`: it answers `processing`, and the result
    at /status/ID, to jobs alone; `done`: ids of what has ended there though `go` is not set; `goes_on`: a job runs
    on when its caller leaves. `begun`: how often each job was begun, `order`: which after which, `begun_at`: when;
    `most`: how many ran at once; `looks`: how often it was asked how many run, `asked`: how a job goes;
    `answers`: to the next jobs, `refused`: to jobs of these ids, with the head `refused_with`;
    `polls`: to the next of those questions; `counts`: whether it says how many run and not 0."""

    def __init__(self, is_async: bool = False, holds: bool = False, goes_on: bool = False) -> None:
        self.begun: Counter[str] = Counter()
        self.headers: dict[str, str] = {}
        self.running = 0
        self.most = 0
        self.dropped = 0
        self.cancelled: list[str] = []
        self.done: set[str] = set()
        self.asked = 0
        self.order: list[str] = []
        self.begun_at: list[float] = []
        self.answers: list[tuple[int, Any]] = []
        self.refused: dict[str, tuple[int, Any]] = {}
        self.refused_with: dict[str, str] = {}
        self.polls: list[tuple[int, Any]] = []
        self.go = asyncio.Event()
        self.looks = 0
        self.counts = True
        self._is_async = is_async
        self._goes_on = goes_on
        if not holds:
            self.go.set()
        app = web.Application()
        app.router.add_post("/generate", self._generate)
        app.router.add_get("/status/{id}", self._status)
        app.router.add_get("/health", self._health)
        app.router.add_post("/cancel/{id}", self._cancel)
        self.server = TestServer(app, shutdown_timeout=0.1)

    @property
    def endpoint(self) -> str:
        """Where jobs are posted to."""
        return str(self.server.make_url("/generate"))

    async def _generate(self, request: web.Request) -> web.Response:
        job, payload = request.headers.get("X-Job-Id", "online"), await request.json()
        self.headers = dict(request.headers)
        self.begun[job] += 1
        self.begun_at.append(asyncio.get_running_loop().time())
        self.order.append(job)
        if job in self.refused:
            answer = _answer(*self.refused[job])
            answer.headers.update(self.refused_with)
            return answer
        if self.answers:
            return _answer(*self.answers.pop(0))
        if self._is_async and job != "online":
            return web.json_response({"status": "processing", "job_id": f"remote-{job}"})
        run = asyncio.ensure_future(self._run())
        await (asyncio.shield(run) if self._goes_on else run)
        return web.json_response({"status": "success", "result": {"of": payload}})

    async def _run(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        finally:
            self.running -= 1

    async def _health(self, _: web.Request) -> web.Response:
        self.looks += 1
        return web.json_response({"active_jobs": self.running if self.counts else 0})

    async def _status(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        self.asked += 1
        if self.polls:
            return _answer(*self.polls.pop(0))
        if not self.go.is_set() and id_ not in self.done:
            return web.json_response({"status": "processing"})
        return web.json_response({"status": "completed", "result": id_})

    async def _cancel(self, request: web.Request) -> web.Response:
        self.cancelled.append(request.match_info["id"])
        return web.json_response({})


def _answer(status: int, answer: Any) -> web.Response:
    if isinstance(answer, bytes):
        return web.Response(body=answer, status=status)
    return web.json_response(answer, status=status)
