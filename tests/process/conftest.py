"""Real `slb` processes, all of them gone when the test is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.process.commands import Commands


@pytest.fixture
async def slb(tmp_path: Path) -> AsyncIterator[Commands]:
    """Starts and runs `slb` commands."""
    commands = Commands(tmp_path)
    yield commands
    await commands.close()
