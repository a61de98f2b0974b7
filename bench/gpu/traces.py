"""Arrivals and lengths of real LLM traffic, from traces in the form TIMESTAMP, ContextTokens, GeneratedTokens."""

import csv
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.errors import BenchError
from bench.gpu.work import Shape, Work, chosen_proxies
from bench.processes import REPOSITORY

TRACES = {"code": "AzureLLMInferenceTrace_code.csv", "conv": "AzureLLMInferenceTrace_conv.csv"}
TRACES_FOLDER = REPOSITORY.parent / "shared" / "traces"
LEAST_LINES = 2


class Line(NamedTuple):
    """One request: seconds since the first one, and tokens of the prompt and of the answer."""

    at: float
    context: int
    generated: int


def read_trace(path: Path) -> list[Line]:
    """All its lines in order of time. Raises BenchError where there is no such file, or it is of another form."""
    try:
        with path.open(newline="") as file:
            rows = [(datetime.fromisoformat(row["TIMESTAMP"][:26]), row) for row in csv.DictReader(file)]
        lines = [
            Line((at - rows[0][0]).total_seconds(), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for at, row in rows
        ]
    except OSError as error:
        raise BenchError(f"the token counts come from real traces: {path}: {error.strerror}") from None
    except (KeyError, ValueError) as error:
        raise BenchError(f"{path.name} is no trace: {error}") from None
    if len(lines) < LEAST_LINES:
        raise BenchError(f"{path.name} has no requests")
    return sorted(lines, key=lambda line: line.at)


def trace_work(name: str, lines: Sequence[Line], shape: Shape, load: float, mean: float) -> Work:
    """The first requests of a trace, so compressed in time that they keep `load` of the pods busy for
    `shape.seconds`; a request's service time is its tokens times a constant, `mean` seconds on average."""
    taken = lines[: max(LEAST_LINES, round(load * shape.pods / mean * shape.seconds))]
    seconds = min(shape.seconds, len(taken) * mean / (load * shape.pods))
    span = taken[-1].at or 1.0
    tokens = [max(1, line.generated) for line in taken]
    services = [each * mean * len(tokens) / sum(tokens) for each in tokens]
    title = (
        f"trace `{name}`, time-compressed {span / seconds:.0f} times, {load:.0%} load, "
        f"service {mean * 1e3:.0f} ms on average, {len(taken):,} requests in {seconds:g} s"
    )
    proxies = chosen_proxies(Random(shape.seed), shape, len(taken))
    return Work(name, title, [line.at / span * seconds for line in taken], services, proxies, mean)
