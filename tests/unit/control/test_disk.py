"""The table on disk where the disk is in the way; with a Redis behind it, tests/redis/test_fail_open.py."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control.disk import DiskTable
from slb.routing.mirror import Mirror
from tests.support.waiting import eventually


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A folder for the table in whose place there is a file."""
    path = tmp_path / "data"
    path.write_text("not a folder")
    return path


@pytest.fixture
async def table(blocked: Path) -> AsyncIterator[DiskTable]:
    made = DiskTable(blocked / "table.json", Mirror(Settings().route_settings, random.Random(1)), 0.0, again=0.01)
    writing = asyncio.create_task(made.run())
    yield made
    writing.cancel()


async def test_what_could_not_be_written_is_written_once_it_can_be_though_nothing_changes(
    table: DiskTable, blocked: Path
) -> None:
    with capture_logs() as logs:
        table.changed()
        await eventually(lambda: bool(logs))
        await asyncio.to_thread(blocked.unlink)
        await eventually(lambda: len(logs) > 1)
    assert [line["event"] for line in logs] == ["disk_table_not_written", "disk_table_written"]
    assert table.load() is not None


async def test_a_table_that_is_behind_does_not_become_younger(tmp_path: Path) -> None:
    """Its age is how long ago it was known to be true."""
    folder, away = tmp_path / "data", tmp_path / "away"
    table = DiskTable(folder / "table.json", Mirror(Settings().route_settings, random.Random(1)))
    table.changed()
    await table.flush()
    os.utime(folder / "table.json", (1, 1))
    folder.rename(away)
    folder.write_text("not a folder")
    table.changed()
    with capture_logs() as logs:
        await table.flush()
    assert [line["event"] for line in logs] == ["disk_table_not_written"]
    folder.unlink()
    away.rename(folder)
    table.still_true()
    assert (folder / "table.json").stat().st_mtime == 1
