"""`python -m tests.chaos.jobs`: jobs of two models while dispatchers, GPUs and Redis are killed and frozen."""

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tests.chaos.jobs.judge import judge
from tests.chaos.jobs.run import Run


def chaos(
    jobs: Annotated[int, typer.Option(min=1)] = 50_000,
    seed: int = 1,
    server: Annotated[str, typer.Option(help="A server program; without it the embedded Valkey.")] = "",
    seconds: Annotated[float, typer.Option(help="That a job takes at its GPU.")] = 0.005,
) -> None:
    """Submit jobs to three dispatchers while everything dies; exit 1 where a promise was broken."""
    with tempfile.TemporaryDirectory(prefix="slb-jobs-") as name:
        run = Run(Path(name), jobs, seed, server, seconds)
        began = time.monotonic()
        try:
            asyncio.run(run.run())
            submitted = time.monotonic() - began
            answers = asyncio.run(run.settled())
            verdict = judge(run.acknowledged, answers, run.book(), run.slots_left())
        finally:
            run.close()
        typer.echo(f"{len(run.acknowledged)} jobs acknowledged in {submitted:.0f} s, faults: {run.faults}")
        typer.echo(f"all ended after {time.monotonic() - began:.0f} s: {dict(verdict.ended)}")
        typer.echo(
            f"attempts: {verdict.begun}; beyond a job's first: {verdict.twice}, after a cut one: {verdict.cut}"
        )
        errors = Counter(str(each["error"]) for each in answers.values() if "error" in each)
        for error, count in errors.most_common(5):
            typer.echo(f"  {count} ended with: {error}")
        typer.echo(f"broken promises: {len(verdict.broken)}")
        for sentence in verdict.broken[:20]:
            typer.echo(f"  {sentence}")
        raise typer.Exit(bool(verdict.broken))


if __name__ == "__main__":
    typer.run(chaos)
