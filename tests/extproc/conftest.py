"""External processors for one test. gRPC has one queue for all loops of a process, which dies with the first of
them: so all tests here share one loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio

from tests.extproc.rig import Envoy, Picker

MakePicker = Callable[..., Awaitable[Picker]]


@pytest_asyncio.fixture(loop_scope="session")
async def pickers() -> AsyncIterator[MakePicker]:
    """Makes external processors: `await pickers(redis=valkey.url, name="a")`."""
    made: list[Picker] = []

    async def make(**options: Any) -> Picker:
        made.append(await Picker(**options).start())
        return made[-1]

    yield make
    for picker in made:
        await picker.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def picker(pickers: MakePicker) -> Picker:
    return await pickers()


@pytest_asyncio.fixture(loop_scope="session")
async def envoy(picker: Picker) -> Envoy:
    """An Envoy that asks `picker`."""
    return picker.envoy()
