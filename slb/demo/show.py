"""Sets the stage, has the story told, and strikes the stage whatever happens."""

import asyncio
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console

from slb.demo.fleet import PATH, Fleet
from slb.demo.screen import LiveScreen, PlainScreen, summary
from slb.demo.story import NAMES, Story
from slb.demo.traffic import Traffic
from slb.lifecycle import Stopping
from slb.observe.log import configure_logging

RATE = 100.0
"""Requests a second."""

_INTERRUPTED = 130


def run_demo(keep: bool) -> int:
    """The exit code: 0 only where every claim was true. Raises SlbError where the demo cannot be given."""
    console = Console(highlight=False)
    configure_logging("error")
    with tempfile.TemporaryDirectory(prefix="slb-demo-") as directory:
        return asyncio.run(_demo(Path(directory), console, keep))


async def _demo(directory: Path, console: Console, keep: bool) -> int:
    stopping, told = Stopping(), asyncio.Event()
    stopping.listen()
    show = asyncio.create_task(_show(directory, console, told, stopping.requested if keep else None))
    stop = asyncio.create_task(stopping.requested.wait())
    await asyncio.wait((show, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if show.done() or told.is_set():
        return await show
    console.print("\nstopping everything ...")
    show.cancel()
    await asyncio.wait((show,))
    return _INTERRUPTED


async def _show(directory: Path, console: Console, told: asyncio.Event, keep: asyncio.Event | None) -> int:
    """`keep`: leave everything running until it is set."""
    async with _stage(directory) as (fleet, traffic):
        with (LiveScreen if console.is_terminal else PlainScreen)(console) as screen:
            await fleet.start()
            story = Story(fleet, traffic, screen)
            await story.tell()
        told.set()
        console.print()
        console.print(summary(story.phases, NAMES))
        false = [claim for claim in story.claims if not claim.true]
        console.print(f"{len(story.claims) - len(false)} of {len(story.claims)} claims were true.")
        if keep is not None:
            _print_urls(console, fleet)
            await keep.wait()
        return 1 if false else 0


@asynccontextmanager
async def _stage(directory: Path) -> AsyncIterator[tuple[Fleet, Traffic]]:
    fleet = Fleet(directory)
    traffic = Traffic([instance.address for instance in fleet.instances], PATH, RATE)
    try:
        yield fleet, traffic
    finally:
        await traffic.close()
        await fleet.close()


def _print_urls(console: Console, fleet: Fleet) -> None:
    console.print("\nIt goes on running until Ctrl-C:")
    for instance in fleet.instances:
        console.print(f"  traffic {instance.url}{PATH}    API {instance.api}", soft_wrap=True)
    console.print(f"  curl {fleet.instances[0].url}{PATH}", soft_wrap=True)
    console.print(f"  {_slb()} status --url {fleet.instances[0].api}", soft_wrap=True)


def _slb() -> str:
    """The command as any shell finds it: also one without the environment that this runs in."""
    beside = Path(sys.executable).with_name("slb")
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m slb"
