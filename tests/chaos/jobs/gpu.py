"""`python -m tests.chaos.jobs.gpu PORT BOOK SECONDS SLOTS KIND`: a GPU server that writes each begin and end into a
file, so that a kill loses no line. `async` ones answer at once and are asked at /status/ID."""

import asyncio
import sys
from pathlib import Path

from aiohttp import web


class Gpu:
    """Refuses with 503 what it has no slot for."""

    def __init__(self, book: Path, seconds: float, slots: int, is_async: bool) -> None:
        self._book = book.open("a", buffering=1)
        self._seconds, self._slots, self._is_async = seconds, slots, is_async
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()

    async def generate(self, request: web.Request) -> web.Response:
        job, attempt = request.headers["X-Job-Id"], request.headers["X-Job-Attempt"]
        payload = await request.json()
        if len(self._running) >= self._slots:
            return web.json_response({}, status=503)
        key = f"{job}-{attempt}"
        task = self._running[key] = asyncio.create_task(self._run(key))
        if self._is_async:
            return web.json_response({"status": "processing", "job_id": key})
        await asyncio.shield(task)  # what was begun goes on, whoever has left
        return web.json_response({"status": "success", "result": payload})

    async def status(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if key in self._running:
            return web.json_response({"status": "processing"})
        if key not in self._ended:
            return web.json_response({"error": "unknown"}, status=404)
        return web.json_response({"status": "completed", "result": key.rpartition("-")[0]})

    async def _run(self, key: str) -> None:
        self._book.write(f"begin {key}\n")
        await asyncio.sleep(self._seconds)
        self._book.write(f"end {key}\n")
        del self._running[key]
        self._ended.add(key)


def main(port: str, book: str, seconds: str, slots: str, kind: str) -> None:
    """Serve until killed."""
    gpu = Gpu(Path(book), float(seconds), int(slots), kind == "async")
    app = web.Application()
    app.router.add_post("/generate", gpu.generate)
    app.router.add_get("/status/{id}", gpu.status)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, handle_signals=False, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
