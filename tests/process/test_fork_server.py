"""A forked `slb` is what `python -m slb` is."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.process.commands import Commands


@pytest.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Commands]:
    """Starts commands without the fork server."""
    commands = Commands(tmp_path / "fresh")
    yield commands
    await commands.close()


@pytest.mark.parametrize(
    "line",
    ["--version", "check-config", "routes --url http://127.0.0.1:1", "nonsense", "reset --redis unix:///none"],
)
async def test_it_writes_and_ends_as_one_that_was_not_forked(slb: Commands, fresh: Commands, line: str) -> None:
    env = {"SLB_WORKERS": "3", "SLB_WORKRES": "2"}
    assert await slb.run(*line.split(), env=env) == await fresh.run(*line.split(), env=env)


async def test_a_signal_that_ends_it_is_its_exit_code(slb: Commands) -> None:
    process, _ = await slb.upstream("a")
    process.kill()
    assert await process.ended() == -signal.SIGKILL


async def test_settings_of_the_tests_are_not_its_own(slb: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLB_WORKERS", "nonsense")
    process = await slb.start("check-config")
    assert await process.ended() == 0
