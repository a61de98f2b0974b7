"""One headless Chromium for all tests of a pytest process, and a page of it that must not complain.

Playwright lives in one event loop, so these tests and their fixtures share one.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ViewportSize, async_playwright

from tests.browser.dashboard import Dashboard, OpenDashboard
from tests.browser.real_fleet import RealFleet
from tests.browser.stand_in import StandIn, StartStandIn, serving
from tests.process.commands import Commands
from tests.support.fork_server import ForkServer
from tests.support.valkey import Valkey
from tools import browsers

_HERE = Path(__file__).parent
CHROMIUM = browsers.installed()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One loop for all tests here; without a browser none runs."""
    for item in items:
        if _HERE not in item.path.parents:
            continue
        if pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="there is no Chromium (Debian: chromium-headless-shell)"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def dashboard(chromium: Browser) -> AsyncIterator[OpenDashboard]:
    """Opens the dashboard at an address: `await dashboard(url)`. At the end no page may have complained, or asked
    another server for anything."""
    opened: list[Dashboard] = []
    async with AsyncExitStack() as stack:

        async def open_(url: str, width: int = 1280, color_scheme: Literal["light", "dark"] = "light") -> Dashboard:
            viewport = ViewportSize(width=width, height=800)
            context = await chromium.new_context(viewport=viewport, color_scheme=color_scheme)
            stack.push_async_callback(context.close)
            opened.append(Dashboard(await context.new_page(), url))
            return opened[-1]

        yield open_
        for each in opened:
            each.check()


@pytest_asyncio.fixture(loop_scope="session")
async def stand_in() -> AsyncIterator[StartStandIn]:
    """Serves made-up fleets: `await stand_in(StandIn(MadeFleet()))` gives the address."""
    async with AsyncExitStack() as stack:

        async def start(served: StandIn) -> str:
            return await stack.enter_async_context(serving(served))

        yield start


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Of all tests of this pytest process."""
    server = ForkServer()
    yield server
    server.close()


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(tmp_path: Path, fork_server: ForkServer, valkey: Valkey) -> AsyncIterator[RealFleet]:
    """Two instances under traffic."""
    valkey.admin.config_set("appendfsync", "always")
    commands = Commands(tmp_path, fork_server)
    started = RealFleet(commands, valkey)
    yield started
    await started.close()
    await commands.close()
