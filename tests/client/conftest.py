"""Upstreams of one test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
import pytest_asyncio

from slb.client.feed import Surroundings
from slb.config import Settings
from tests.client.rig import Handler, Upstream, answer_ok
from tests.support.waiting import patience

Upstreams = Callable[..., Awaitable[Upstream]]


@pytest.fixture(autouse=True)
def _patient_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstreams run in this process: where it stands still for a second, none of them was slow to take a
    connection."""
    checked = Surroundings.checked

    def patient(self: Surroundings) -> Settings:
        return checked(replace(self, settings={"connect_timeout": f"{patience(1.0):.1f}s", **self.settings}))

    monkeypatch.setattr(Surroundings, "checked", patient)


@pytest_asyncio.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    """Makes upstreams: `await upstreams(handler)`."""
    made: list[Upstream] = []

    async def make(handle: Handler = answer_ok) -> Upstream:
        made.append(await Upstream(handle).start())
        return made[-1]

    yield make
    for upstream in made:
        await upstream.stop()
