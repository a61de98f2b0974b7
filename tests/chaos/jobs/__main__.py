"""`python -m tests.chaos.jobs`: jobs of two models while dispatchers, GPUs and Redis are killed and frozen."""

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from tests.chaos.jobs.judge import judge
from tests.chaos.jobs.run import Run

_MOST_DRAIN = 1.3


def chaos(
    jobs: Annotated[int, typer.Option(min=1)] = 50_000,
    seed: int = 1,
    server: Annotated[str, typer.Option(help="A server program; without it the embedded Valkey.")] = "",
    seconds: Annotated[float, typer.Option(help="That a job takes at its GPU.")] = 0.005,
) -> None:
    """Submit jobs to three dispatchers while everything dies; exit 1 where a promise was broken, or the drain took
    too long."""
    with tempfile.TemporaryDirectory(prefix="slb-jobs-") as name:
        run = Run(Path(name), jobs, seed, server, seconds)
        began = time.monotonic()
        try:
            asyncio.run(run.run())
            submitted = time.monotonic() - began
            asyncio.run(run.settled())
            history, drained = run.history(), run.drain()
        finally:
            run.close()
    verdict = judge(history)
    typer.echo(f"{len(run.acknowledged)} jobs acknowledged, faults for {submitted:.0f} s: {run.faults}")
    typer.echo(f"all ended after {time.monotonic() - began:.0f} s: {dict(verdict.ended)}")
    typer.echo(f"runs at GPUs: {verdict.begun}; beyond a job's first, by what was cut: {dict(verdict.twice)}")
    typer.echo(f"callbacks: {verdict.delivered} of {len(history.calls_back)} jobs; once more: {verdict.again}")
    typer.echo(f"answers of ended jobs before: {len(history.seen)}")
    typer.echo(
        f"drain: {drained.left} jobs in {drained.seconds:.2f} s, bound {drained.bound:.2f} s, ratio"
        f" {drained.ratio:.2f} (at most {_MOST_DRAIN}); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    typer.echo(f"broken promises: {len(verdict.broken)}")
    for sentence in verdict.broken[:20]:
        typer.echo(f"  {sentence}")
    raise typer.Exit(bool(verdict.broken) or drained.ratio > _MOST_DRAIN)


if __name__ == "__main__":
    typer.run(chaos)
