"""`python -m tests.chaos.jobs.gpu PORT BOOK SECONDS SLOTS KIND`: a GPU server that writes each begin, end and
answer into a file, so that a kill loses no line. `async` ones answer at once and are asked at /status/ID. A result
names the attempt that it is of."""

import asyncio
import sys
import time
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
        job, attempt = await request.json(), request.headers["X-Job-Attempt"]
        if len(self._running) >= self._slots:
            return web.json_response({}, status=503)
        key = f"{job}-{attempt}"
        task = self._running[key] = asyncio.create_task(self._run(key))
        if self._is_async:
            return web.json_response({"status": "processing", "job_id": key})
        await asyncio.shield(task)  # what was begun goes on, whoever has left
        self._write("answer", key)
        return web.json_response({"status": "success", "result": key})

    async def status(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if key in self._running:
            return web.json_response({"status": "processing"})
        if key not in self._ended:
            return web.json_response({"error": "unknown"}, status=404)
        self._write("answer", key)
        return web.json_response({"status": "completed", "result": key})

    async def _run(self, key: str) -> None:
        self._write("begin", key)
        await asyncio.sleep(self._seconds)
        self._write("end", key)
        del self._running[key]
        self._ended.add(key)

    def _write(self, word: str, key: str) -> None:
        self._book.write(f"{word} {key} {time.monotonic():.6f}\n")


def main(port: str, book: str, seconds: str, slots: str, kind: str) -> None:
    """Serve until killed."""
    gpu = Gpu(Path(book), float(seconds), int(slots), kind == "async")
    app = web.Application()
    app.router.add_post("/generate", gpu.generate)
    app.router.add_get("/status/{id}", gpu.status)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, handle_signals=False, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
