"""`python -m tests.chaos`: real instances on a real Redis, and everything that can happen to both of them."""

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from slb.errors import ConfigError
from tests.chaos.failovers import KINDS
from tests.chaos.long_run import Found, Plan, Run, lab_of
from tests.chaos.watchdog import NOTED_SECONDS, PATIENCE_SECONDS, Watchdog
from tests.support.redis_server import BINARY

INTERRUPTED, USAGE_ERROR = 130, 2
_ALL_FAULTS = list(dict.fromkeys(name for kind in KINDS.values() for name in kind.faults))


def chaos(
    minutes: Annotated[
        float, typer.Option(min=0, help="Rounds begin until then, as long for each kind; one is run at least.")
    ] = 20,
    kinds: Annotated[str, typer.Option(help=f"Of Redis, some of: {', '.join(KINDS)}. All that there are.")] = "",
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Of the order of faults, of what is hit and for how long: 1. Several: one run each."),
    ] = None,
    redis: Annotated[
        Path | None, typer.Option(help="A server program, for the kind `one`; without it the embedded Valkey.")
    ] = None,
    faults: Annotated[str, typer.Option(help=f"Some of: {', '.join(_ALL_FAULTS)}.")] = "",
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
    plans = _plans(minutes * 60, seed or [1], chosen_kinds(kinds), faults, redis, instances, warm_up)
    violations = 0
    for plan in plans:
        found = Found()
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


def chosen_kinds(text: str) -> list[str]:
    """Those that are named; all that can be had here where none is."""
    names = _words(text)
    if unknown := sorted(set(names) - set(KINDS)):
        refuse(f"--kinds: {', '.join(unknown)}: known are {', '.join(KINDS)}")
    if not BINARY and set(names) - {"one"}:
        refuse("--kinds: no redis-server here: apt-get install redis-server")
    return names or (list(KINDS) if BINARY else ["one"])


def _plans(
    seconds: float,
    seeds: list[int],
    kinds: list[str],
    faults: str,
    redis: Path | None,
    instances: int,
    warm_up: float,
) -> list[Plan]:
    """One for each seed and kind that has any of the faults. Refuses faults that none has."""
    names = _words(faults)
    if unknown := sorted(set(names) - {name for kind in kinds for name in KINDS[kind].faults}):
        refuse(f"--faults: {', '.join(unknown)}: known are {', '.join(_ALL_FAULTS)}")
    of = {kind: [name for name in KINDS[kind].faults if name in names or not names] for kind in kinds}
    taken = {kind: found for kind, found in of.items() if found}
    each = seconds / len(taken)
    return [
        Plan(each, seed, found, redis if kind == "one" else None, instances, warm_up, kind)
        for seed in seeds
        for kind, found in taken.items()
    ]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


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
    done = f"{found.rounds} rounds, {sum(found.done.values())} faults, {found.grants:,} grants"
    print(f"seed {plan.seed}, {plan.kind}: {done}")
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
