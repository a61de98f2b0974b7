"""What a supervisor asks its workers for, and what it logs of those that do not answer."""

from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from slb.config import Settings
from slb.supervisor.fleet import Fleet
from slb.supervisor.sums import Sums
from slb.supervisor.workers import Worker


class Job:
    settings = Settings()

    def __init__(self, api_path: Path) -> None:
        self.api_path = api_path


class Answering:
    """A worker as the fleet reads it."""

    index, life, ready = 0, 1, True

    def __init__(self, api_path: Path) -> None:
        self.job = Job(api_path)


async def no_metrics(open_metrics: bool) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("status", "found", "logged"),
    [(200, [{"a": 1}], []), (404, [None], []), (500, [None], ["worker_silent"])],
)
async def test_a_worker_that_does_not_know_a_route_yet_is_not_logged_as_silent(
    tmp_path: Path, status: int, found: list[object], logged: list[str]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"a": 1}, status=status)

    application = web.Application()
    application.router.add_get("/routes/new", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(tmp_path / "api.sock")).start()
        worker = cast("Worker", Answering(tmp_path / "api.sock"))
        fleet = Fleet([worker], Sums(), no_metrics, lambda _: None)
        with capture_logs() as logs:
            assert await fleet.answers("/routes/new") == found
        assert [each["event"] for each in logs] == logged
    finally:
        await runner.cleanup()
