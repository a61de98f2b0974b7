"""`slb demo`, whole and broken off."""

import os
import signal
from pathlib import Path

import pytest

from tests.process.commands import Commands
from tests.support.waiting import eventually


async def test_the_demo_shows_its_story_and_all_of_it_is_true(slb: Commands) -> None:
    meant_for_another = {"SLB_API_TOKEN": "x", "SLB_WORKERS": "2", "SLB_CONFIG": "/nowhere", "SLB_REDIS_URL": "x"}
    result = await slb.run("demo", env=meant_for_another, timeout=100.0)
    assert result.code == 0, result.out + result.err
    assert " NO " not in result.out
    assert "claims were true" in result.out
    assert "all 200 jobs have their results: g1=" in result.out


def processes_of(directory: Path) -> list[bytes]:
    """The command lines that name `directory`."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes())
        except OSError:  # it has ended meanwhile
            continue
    return [line for line in lines if os.fsencode(directory) in line]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
async def test_a_demo_that_is_interrupted_leaves_nothing_behind(slb: Commands) -> None:
    demo = await slb.start("demo", env={"TMPDIR": str(slb.directory)})
    await eventually(lambda: len(processes_of(slb.directory)) >= 3, timeout=30.0, what="Valkey and two instances")
    os.kill(demo.pid, signal.SIGINT)
    assert await demo.ended() == 130
    assert not processes_of(slb.directory)
    assert not list(slb.directory.glob("slb-demo-*"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
async def test_a_demo_that_is_interrupted_while_its_valkey_starts_leaves_nothing_behind(slb: Commands) -> None:
    demo = await slb.start("demo", env={"TMPDIR": str(slb.directory)})
    begun = "slb-demo-*/valkey/start.lock"
    await eventually(lambda: bool(list(slb.directory.glob(begun))), timeout=30.0, what=begun)
    os.kill(demo.pid, signal.SIGINT)
    assert await demo.ended() == 130
    assert not processes_of(slb.directory)
    assert not list(slb.directory.glob("slb-demo-*"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
async def test_everything_ends_with_a_demo_that_is_killed(slb: Commands) -> None:
    demo = await slb.start("demo", env={"TMPDIR": str(slb.directory)})
    await eventually(lambda: len(processes_of(slb.directory)) >= 3, timeout=30.0, what="Valkey and two instances")
    demo.kill()
    await eventually(lambda: not processes_of(slb.directory), timeout=30.0)
