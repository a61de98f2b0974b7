"""How a process lives and ends, with parts that do nothing."""

import asyncio
from types import SimpleNamespace
from typing import cast

from slb.app import App
from slb.lifecycle import Stopping, Tasks
from slb.running import serve_app
from slb.takeover import StoppedEarly
from tests.support.waiting import soon


class FakeApp:
    """Starts and stops; `core.tasks` are real."""

    def __init__(self) -> None:
        self.core = SimpleNamespace(
            tasks=Tasks(), replace_predecessor=self._replace_predecessor, stop=self._stop_core
        )
        self.happened: list[str] = []
        self.is_early = False

    async def _replace_predecessor(self) -> None:
        self.happened.append("replaced")

    async def _stop_core(self) -> None:
        self.happened.append("core stopped")

    async def start(self) -> None:
        self.happened.append("start")
        if self.is_early:
            raise StoppedEarly

    async def stop(self, hurried: asyncio.Event) -> bool:
        self.happened.append("stop")
        return hurried.is_set()


async def served(app: FakeApp, stopping: Stopping) -> int:
    return await serve_app(cast("App", app), stopping, lambda: app.happened.append("started"))


async def test_stopped_it_ends_in_order_with_exit_code_0() -> None:
    app, stopping = FakeApp(), Stopping()
    serving = asyncio.create_task(served(app, stopping))
    await asyncio.sleep(0)
    stopping.request()
    assert await serving == 0
    assert app.happened == ["start", "started", "replaced", "stop"]


async def test_one_that_is_asked_to_stop_before_it_serves_leaves_the_process_before_it_alone() -> None:
    app = FakeApp()
    app.is_early = True
    assert await soon(served(app, Stopping()), 5) == 0
    assert app.happened == ["start", "core stopped"]


async def test_a_background_task_that_dies_brings_the_process_down_with_exit_code_1() -> None:
    app = FakeApp()
    app.core.tasks.start("watcher", asyncio.sleep(0))
    assert await soon(served(app, Stopping()), 5) == 1
    assert app.happened[-1] == "stop"


async def test_an_end_that_cut_requests_off_is_exit_code_1() -> None:
    stopping = Stopping()
    stopping.request()
    stopping.request()
    assert await served(FakeApp(), stopping) == 1
