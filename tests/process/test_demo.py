"""`slb demo`, whole and broken off."""

import os
import signal
from pathlib import Path

import pytest

from slb.demo.processes import Process
from tests.process.commands import Commands
from tests.support.waiting import eventually


async def test_the_demo_shows_its_story_and_leaves_a_fleet_to_look_at(slb: Commands) -> None:
    meant_for_another = {"SLB_API_TOKEN": "x", "SLB_WORKERS": "2", "SLB_CONFIG": "/nowhere", "SLB_REDIS_URL": "x"}
    demo = await slb.start("demo", "--keep", env=meant_for_another)
    told = await told_until(demo, "  dashboard ")
    text = "\n".join(told)
    assert " NO " not in text
    assert "claims were true" in text
    assert "all 200 jobs have their results: g1=" in text
    dashboard = told[-1].split()[1]
    assert "<title>slb</title>" in (await slb.get(dashboard, Accept="text/html"))[1]
    fleet = f"{dashboard}fleet"
    await slb.until_json(fleet, lambda shown: shown["queues"], timeout=90.0)
    await slb.until_json(fleet, lambda shown: shown["jobs"].get("video", {}).get("dead"), timeout=60.0)
    os.kill(demo.pid, signal.SIGINT)
    assert await demo.ended() == 0


async def told_until(demo: Process, beginning: str) -> list[str]:
    """What it prints, up to the line that begins so."""
    told: list[str] = []
    while not told or not told[-1].startswith(beginning.strip()):
        told.append(await demo.first_line())
    return told


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
