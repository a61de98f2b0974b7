"""`python -m tests.chaos`: real instances on a real Redis, and everything that can happen to both of them."""

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from slb.errors import ConfigError
from tests.chaos.faults import FAULTS
from tests.chaos.long_run import Found, Plan, Run, lab_of
from tests.chaos.watchdog import NOTED_SECONDS, PATIENCE_SECONDS, Watchdog

INTERRUPTED, USAGE_ERROR = 130, 2


def chaos(
    minutes: Annotated[float, typer.Option(min=0, help="Rounds begin until then; one is run at least.")] = 20,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Of the order of faults, of what is hit and for how long: 1. Several: one run each."),
    ] = None,
    redis: Annotated[Path | None, typer.Option(help="A server program; without it the embedded Valkey.")] = None,
    faults: Annotated[str, typer.Option(help=f"Some of: {', '.join(FAULTS)}.")] = "",
    instances: Annotated[int, typer.Option(min=2, help="Of `slb serve`.")] = 5,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds that the fleet has before the first fault.")] = 15,
    logs: Annotated[Path | None, typer.Option(help="Keep in this folder what instances log.")] = None,
) -> None:
    """Break connections, instances and Redis under load, and check from outside that slb keeps its promises.

    Five upstreams take one request at a time and count how many run at once. Clients count what is not answered
    with 200. A route is changed, and a lease renewed, all the while, and compared with every table. After each
    round, which has each fault once, all counts in Redis have to be zero. Exit 1 where a promise was broken.
    """
    if logs is not None and not logs.is_dir():
        refuse(f"--logs: there is no folder {logs}")
    if redis is not None and not redis.is_file():
        refuse(f"--redis: there is no {redis}")
    names = [word.strip() for word in faults.split(",") if word.strip()] or list(FAULTS)
    if unknown := sorted(set(names) - set(FAULTS)):
        refuse(f"--faults: {', '.join(unknown)}: known are {', '.join(FAULTS)}")
    violations = 0
    for each in seed or [1]:
        plan, found = Plan(minutes * 60, each, names, redis, instances, warm_up), Found()
        try:
            asyncio.run(run(plan, found, logs))
        except ConfigError as error:
            refuse(str(error))
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("interrupted: what follows is not all that was asked for", file=sys.stderr)
            summarize(plan, found)
            raise typer.Exit(INTERRUPTED) from None
        summarize(plan, found)
        violations += len(found.violations)
    raise typer.Exit(int(bool(violations)))


def refuse(why: str) -> NoReturn:
    print(f"chaos: {why}", file=sys.stderr)
    raise typer.Exit(USAGE_ERROR)


async def run(plan: Plan, found: Found, logs: Path | None) -> None:
    """All rounds. SIGTERM and SIGHUP end it as Ctrl-C does."""
    me = asyncio.current_task()
    assert me is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
    with tempfile.TemporaryDirectory(prefix="slb-chaos-") as home:
        async with lab_of(plan, logs or Path(home)) as lab:
            print(
                f"chaos: seed {plan.seed}, {plan.seconds / 60:g} minutes, {lab.server.version}, "
                f"{plan.instances} instances; {', '.join(plan.faults)}",
                flush=True,
            )
            async with Watchdog().watching(lab.server.address) as watchdog:
                await Run(plan, lab, watchdog, found, lambda line: print(line, flush=True)).rounds()


def summarize(plan: Plan, found: Found) -> None:
    """The end of it, in some lines."""
    print(f"seed {plan.seed}: {found.rounds} rounds, {sum(found.done.values())} faults, {found.grants:,} grants")
    print("done: " + ", ".join(f"{name} {found.done[name]}" for name in plan.faults))
    print(f"served while the cap had to hold: {found.strict:,}; most at once at one upstream else: {found.worst}")
    print(f"one too many just after a thaw: {found.late} times")
    print(
        f"Redis silent {NOTED_SECONDS:g} s or more: {found.silences} times, {found.longest_silence:.1f} s at most. "
        f"{PATIENCE_SECONDS:g} s or more, though no fault was to do that: {found.unmeant} times"
    )
    print(f"{len(found.violations)} violations", flush=True)


if __name__ == "__main__":
    typer.run(chaos)
