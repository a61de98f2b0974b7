"""The table of one case, and the goals that slb is held to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from bench.cases import Case
from bench.figures.figure import add_columns, empty_table, short
from bench.results import OUR_NAME, Sample, Summary, ratio, summarise

NOTICEABLE = 0.03
NO_FIGURE = "-"
COLUMNS = (
    "req/s",
    "p50\nms",
    "p99\nms",
    "CPU\nµs",
    "\nrange",
    "core",
    "MiB",
    "CPU\nvs slb",
    "slb\nvs it",
    "err",
)
BLANKS = [NO_FIGURE] * len(COLUMNS)
KIND_WORDS = {
    "status": "neither 2xx nor 3xx",
    "connect": "socket connect",
    "read": "socket read",
    "write": "socket write",
    "timeout": "timeout",
}


@dataclass(frozen=True)
class Goal:
    """At most so many times the peer's CPU per request, in one case."""

    case: str
    peer: str
    most: float


GOALS = (
    Goal("repeat", "envoy", 0.3),
    Goal("repeat", "nginx", 1.5),
    Goal("distinct", "envoy", 0.5),
    Goal("distinct", "nginx", 2.2),
    Goal("post", "envoy", 0.5),
    Goal("download", "haproxy", 1.8),
    Goal("upload", "haproxy", 1.8),
)


def case_table(case: Case, samples: Sequence[Sample], names: Sequence[str]) -> Table:
    """One row a peer, in the order of `names`, narrow enough for a terminal of 80 columns."""
    table = empty_table(f"{case.name}: {case.title}")
    table.collapse_padding = True
    add_columns(table, ("proxy", *COLUMNS))
    ours = summarise(samples, OUR_NAME, case.name)
    for name in names:
        table.add_row(name, *_row(summarise(samples, name, case.name), ours))
    return table


def notes(case: Case, samples: Sequence[Sample], missing: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """What the rows cannot say; `missing` maps those not installed to how to install them."""
    lines = []
    for name in names:
        summary = summarise(samples, name, case.name)
        if name in missing:
            lines.append(f"{name}: not installed: {missing[name]}")
        elif summary is None:
            lines.append(f"{name}: not measured")
        else:
            lines += [f"{name}: {trouble}" for trouble in _troubles(summary)]
    return lines


def goal_lines(samples: Sequence[Sample]) -> list[tuple[str, bool]]:
    """Each goal that this run has figures for, in words, and whether it was met."""
    lines = []
    for goal in GOALS:
        peers = summarise(samples, goal.peer, goal.case)
        reached = ratio(summarise(samples, OUR_NAME, goal.case), peers) if peers else None
        if reached is not None:
            met = reached <= goal.most
            words = f"slb's CPU per request is {reached:.2f} of {goal.peer}'s, goal at most {goal.most}"
            lines.append((f"{goal.case}: {words}: {'met' if met else 'MISSED'}", met))
    return lines


def disturbance(samples: Sequence[Sample]) -> str | None:
    """A warning in words where a noticeable share of the proxy's core went elsewhere."""
    good = [sample for sample in samples if not sample.failure]
    shares = {
        "other processes took": [sample.others for sample in good],
        "the hypervisor withheld": [sample.stolen for sample in good],
    }
    found = [
        f"{who} {median(taken):.0%} of the proxy's core ({max(taken):.0%} in the worst run)"
        for who, taken in shares.items()
        if max(taken, default=0.0) > NOTICEABLE
    ]
    return f"not a quiet machine: {'; '.join(found)}. Ratios hold better than figures." if found else None


def _row(summary: Summary | None, ours: Summary | None) -> list[str]:
    if summary is None or not summary.rounds:
        return BLANKS
    return _figures(summary, ratio(ours, summary))


def _figures(summary: Summary, ours_to_its: float | None) -> list[str]:
    return [
        f"{summary.requests_per_second:,.0f}",
        short(summary.p50_us / 1000),
        short(summary.p99_us / 1000),
        short(summary.cpu_us),
        f"{short(summary.cpu_us_least)}-{short(summary.cpu_us_most)}",
        f"{summary.busy:.0%}",
        short(summary.resident_mib),
        f"{1 / ours_to_its:.2f}x" if ours_to_its else NO_FIGURE,
        f"{ours_to_its:.2f}x" if ours_to_its else NO_FIGURE,
        f"{sum(summary.errors.values()):,}",
    ]


def _troubles(summary: Summary) -> list[str]:
    """The errors by kind, and the last line of what the last failed round said; the JSON file has it whole."""
    lines = []
    if summary.errors:
        kinds = ", ".join(f"{KIND_WORDS[kind]} {count:,}" for kind, count in summary.errors.items())
        lines.append(f"errors: {kinds}")
    if summary.failures:
        tried = summary.rounds + len(summary.failures)
        last = summary.failures[-1].strip().splitlines()[-1]
        lines.append(f"failed in {len(summary.failures)} of {tried} rounds: {last}")
    return lines
