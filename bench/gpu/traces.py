"""Arrivals and lengths of real LLM traffic, from traces in the form TIMESTAMP, ContextTokens, GeneratedTokens."""

import csv
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from random import Random

from bench.errors import BenchError
from bench.gpu.work import Shape, Work, chosen_proxies
from bench.processes import REPOSITORY

Line = tuple[float, int]
"""Seconds since the first line; tokens generated."""

TRACES = {"code": "AzureLLMInferenceTrace_code.csv", "conv": "AzureLLMInferenceTrace_conv.csv"}
TRACES_FOLDER = REPOSITORY.parent / "shared" / "traces"
LEAST_LINES = 2


def read_trace(path: Path) -> list[Line]:
    """All its lines in order. Raises BenchError where the file is of another form."""
    try:
        with path.open(newline="") as file:
            rows = [(datetime.fromisoformat(row["TIMESTAMP"][:26]), row) for row in csv.DictReader(file)]
        lines = [((at - rows[0][0]).total_seconds(), int(row["GeneratedTokens"])) for at, row in rows]
    except (KeyError, ValueError) as error:
        raise BenchError(f"{path.name} is no trace: {error}") from None
    if len(lines) < LEAST_LINES:
        raise BenchError(f"{path.name} has no requests")
    return sorted(lines)


def trace_work(name: str, lines: Sequence[Line], shape: Shape, load: float, mean: float) -> Work:
    """The first requests of a trace, so compressed in time that they keep `load` of the pods busy for
    `shape.seconds`; a request's service time is its tokens times a constant, `mean` seconds on average."""
    taken = lines[: max(LEAST_LINES, round(load * shape.pods / mean * shape.seconds))]
    seconds = min(shape.seconds, len(taken) * mean / (load * shape.pods))
    span = taken[-1][0] or 1.0
    arrivals = [at / span * seconds for at, _ in taken]
    services = scaled((max(1, tokens) for _, tokens in taken), mean)
    title = (
        f"trace `{name}`, time-compressed {span / seconds:.0f} times, {load:.0%} load, "
        f"service {mean * 1e3:.0f} ms on average, {len(taken):,} requests in {seconds:g} s"
    )
    proxies = chosen_proxies(Random(shape.seed), shape, len(taken))
    return Work(name, title, arrivals, services, proxies, mean)


def scaled(values: Iterable[float], mean: float) -> list[float]:
    """The same values times what makes their mean `mean`."""
    all_of_them = list(values)
    factor = mean * len(all_of_them) / sum(all_of_them)
    return [value * factor for value in all_of_them]
