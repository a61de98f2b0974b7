"""What callbacks are sent to."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from aiohttp import web


class Received(NamedTuple):
    """One delivery, as it came."""

    headers: dict[str, str]
    body: bytes

    @property
    def job(self) -> Any:
        return orjson.loads(self.body)


class Receiver:
    """Listens on 127.0.0.1. Answers with `answers`, one after another, and with the last of them for ever;
    None keeps one waiting."""

    def __init__(self, *answers: Callable[[], web.Response] | int | None) -> None:
        self.answers = list(answers) or [200]
        self.received: list[Received] = []
        self.port = 0
        self._kept: list[asyncio.Future[int]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/done?key=kept%20as+it%2fis"

    async def start(self) -> "Receiver":
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._receive)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        self.let_go()
        await self._runner.cleanup()

    def let_go(self, status: int = 200) -> None:
        """Answer those that were kept waiting."""
        for each in self._kept:
            if not each.done():
                each.set_result(status)

    def ids(self) -> list[str]:
        """The jobs that were told of, in order."""
        return [each.job["job_id"] for each in self.received]

    async def _receive(self, request: web.Request) -> web.Response:
        assert request.raw_path == "/done?key=kept%20as+it%2fis"
        self.received.append(Received(dict(request.headers), await request.read()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            self._kept.append(asyncio.get_running_loop().create_future())
            answer = await self._kept[-1]
        return answer() if callable(answer) else web.Response(status=answer)
