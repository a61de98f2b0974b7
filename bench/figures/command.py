"""What the commands of all figures share: a folder, a bar, the tables, the file, the exit code."""

import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from redis.exceptions import RedisError
from rich.console import Console

from bench.errors import BenchError
from bench.figures.figure import Outcome
from bench.figures.fleet import Fleet
from bench.machine import Shares, Surroundings, described
from bench.outcome import INTERRUPTED, check_folder, end, plain_console
from bench.processes import ENDING, Processes
from bench.progress import Steps, progress_bar

Measure = Callable[[Fleet, Steps], Outcome]
MeasureBare = Callable[[Processes, Path, Steps], Outcome]
"""Nothing is started yet; the folder is empty."""


def run(
    name: str, measure: Measure, total: int, settings: dict[str, object], json: Path | None, check: bool
) -> int:
    """Measure a fleet with a Redis, show, keep. The exit code: 1 where a goal is missed and `check` is set."""

    def with_redis(processes: Processes, home: Path, steps: Steps) -> Outcome:
        steps.to("starting Redis")
        return measure(Fleet(processes, home), steps)

    return run_bare(name, with_redis, total, settings, json, check)


def run_bare(
    name: str, measure: MeasureBare, total: int, settings: dict[str, object], json: Path | None, check: bool
) -> int:
    """The same for a figure that starts all it needs itself."""
    check_folder("--json", json and json.parent)
    for number in ENDING:
        signal.signal(number, end)
    started = datetime.now(UTC)
    try:
        outcome, shares = _measured(measure, total)
    except KeyboardInterrupt:
        print("interrupted: nothing was measured to its end", file=sys.stderr)
        return INTERRUPTED
    except (BenchError, OSError, RedisError) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        return 1
    _show(outcome, shares, plain_console())
    if json is not None:
        json.write_bytes(_as_json(name, started, settings, outcome, shares))
    return INTERRUPTED if outcome.interrupted else int(check and not outcome.met)


def _measured(measure: MeasureBare, total: int) -> tuple[Outcome, Shares]:
    surroundings = Surroundings()
    with (
        TemporaryDirectory(prefix="slb-bench-") as home,
        progress_bar(Console(stderr=True)) as progress,
        Processes() as processes,
    ):
        outcome = measure(processes, Path(home), Steps(progress, total))
    return outcome, surroundings.shares()


def _show(outcome: Outcome, shares: Shares, console: Console) -> None:
    for section in outcome.sections:
        console.print(section.title, style="bold", markup=False, highlight=False)
        console.print(section.table())
        for note in section.notes:
            console.print(note, markup=False, highlight=False)
        console.print()
    console.print(shares.words(), markup=False, highlight=False)


def _as_json(name: str, started: datetime, settings: dict[str, object], outcome: Outcome, shares: Shares) -> bytes:
    whole = {
        "figure": name,
        "started": started.isoformat(timespec="seconds"),
        "machine": described(),
        "shares": shares.as_json(),
        "settings": settings,
        "sections": [section.as_json() for section in outcome.sections],
        "raw": outcome.raw,
    }
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
