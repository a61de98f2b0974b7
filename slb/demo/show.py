"""Starts the fleet and its traffic, runs the story, and ends all of it, whatever happens."""

import asyncio
import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from slb.demo.fleet import PATH, Fleet
from slb.demo.life import Life
from slb.demo.story import NAMES, LiveScreen, PlainScreen, Story, summary
from slb.demo.traffic import Traffic
from slb.lifecycle import Stopping, unless_set
from slb.observe.log import configure_logging

RATE = 100.0  # requests a second

_INTERRUPTED = 130


def run_demo(keep: bool) -> int:
    """The exit code: 0 only where every claim was true. Raises SlbError where the demo cannot be given."""
    console = Console(highlight=False)
    configure_logging("error")
    with tempfile.TemporaryDirectory(prefix="slb-demo-") as directory:
        return asyncio.run(_demo(Path(directory), console, keep))


async def _demo(directory: Path, console: Console, keep: bool) -> int:
    stopping, fleet = Stopping(), Fleet(directory)
    stopping.listen()
    traffic = Traffic([instance.address for instance in fleet.instances], PATH, RATE)
    try:
        false = await unless_set(stopping.requested, _show(console, fleet, traffic))
        if false is None:
            console.print("\nstopping everything ...")
            return _INTERRUPTED
        if keep:
            life = Life(fleet)
            await life.start()
            _print_urls(console, fleet)
            await unless_set(stopping.requested, life.run())
        return 1 if false else 0
    finally:
        await traffic.close()
        await fleet.close()


async def _show(console: Console, fleet: Fleet, traffic: Traffic) -> int:
    with (LiveScreen if console.is_terminal else PlainScreen)(console) as screen:
        await fleet.start()
        screen.note(f"the dashboard, as long as this runs: {fleet.instances[0].api}/")
        story = Story(fleet, traffic, screen)
        await story.tell()
    true = sum(claim.true for claim in story.claims)
    console.print()
    console.print(summary(story.phases, NAMES))
    console.print(f"{true} of {len(story.claims)} claims were true.")
    return len(story.claims) - true


def _print_urls(console: Console, fleet: Fleet) -> None:
    console.print("\nIt goes on running until Ctrl-C, with traffic, a queue, a slow pod and jobs:")
    console.print(f"  dashboard {fleet.instances[0].api}/", soft_wrap=True)
    for instance in fleet.instances:
        console.print(f"  traffic {instance.url}{PATH}    API {instance.api}", soft_wrap=True)
    console.print(f"  curl {fleet.instances[0].url}{PATH}", soft_wrap=True)
    console.print(f"  {_slb()} status --url {fleet.instances[0].api}", soft_wrap=True)


def _slb() -> str:
    """The command as any shell finds it: also one without the environment that this runs in."""
    beside = Path(sys.executable).with_name("slb")
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m slb"
