"""Fixtures of the tests of single modules."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fake_slb import StartSlb, fake_slbs


@pytest.fixture
async def slb_at() -> AsyncIterator[StartSlb]:
    """Starts APIs that answer registrations: `url = await slb_at(FakeSlb(200))`."""
    async with fake_slbs() as start:
        yield start


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """Where a config file may stand."""
    return tmp_path / "slb.toml"
