"""`python -m bench` without a command: slb and its peers in turn, a table for each case, and slb's goals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated

from typer import Option

from bench.command import ALL, Bench, chosen
from bench.measure import CASES, Case, Measurement, Sample
from bench.peers import PEERS, SLB, Peer
from bench.procstat import python
from bench.table import Figure, Outcome, Section, short

NO_FIGURE = "-"
COLUMNS = (
    *("proxy", "req/s", "p50\nms", "p99\nms", "CPU\nµs", "\nrange", "core", "MiB"),
    *("CPU\nvs slb", "slb\nvs it", "err"),
)
KIND_WORDS = {
    "status": "neither 2xx nor 3xx",
    "connect": "socket connect",
    "read": "socket read",
    "write": "socket write",
    "timeout": "timeout",
}
GOALS = {
    ("repeat", "envoy"): 0.3,
    ("repeat", "nginx"): 1.5,
    ("distinct", "envoy"): 0.5,
    ("distinct", "nginx"): 2.2,
    ("post", "envoy"): 0.5,
    ("download", "haproxy"): 1.8,
    ("upload", "haproxy"): 1.8,
}
"""slb's CPU a request in units of a peer's, at most, by case and peer."""


def compare(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="How often each proxy has its turn.")] = 3,
    seconds: Annotated[int, Option(min=1, help="Length of one counted run.")] = 5,
    warmup: Annotated[int, Option(min=1, help="Seconds of load before it, not counted.")] = 1,
    connections: Annotated[int, Option(min=1, help="Connections wrk keeps alive.")] = 64,
    only: Annotated[str, Option(help=f"Of {','.join(peer.name for peer in PEERS)}.")] = ALL,
    cases: Annotated[str, Option(help=f"Of {','.join(case.name for case in CASES)}.")] = ALL,
) -> Outcome:
    """Measure slb and its peers in turn under the same load; with a COMMAND, a figure of slb alone.

    docs/benchmarks.md explains the columns.
    """
    names = chosen("--only", only, [peer.name for peer in PEERS])
    wanted = chosen("--cases", cases, [case.name for case in CASES])
    measurement = Measurement(bench, seconds, warmup)
    peers = [peer for peer in PEERS if peer.name in names]
    measured = [case for case in CASES if case.name in wanted]
    versions = {peer.name: peer.version(program) for peer in peers if (program := peer.program())}
    samples: list[Sample] = []
    interrupted = False
    try:
        for number in range(1, rounds + 1):
            for peer in peers:
                for case in measured if peer.name in versions else ():
                    bench.to(f"round {number}: {peer.name}, {case.name}")
                    samples.append(measurement.take(peer, case, connections))
    except KeyboardInterrupt:
        if not samples:
            raise
        interrupted = True
    sections = [case_section(case, peers, samples) for case in measured]
    notes = [
        f"slb ran under {python()} (why it matters: docs/benchmarks.md)",
        f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        *(["Interrupted: the figures are of the rounds until then."] if interrupted else []),
    ]
    held_to = goals(samples)
    title = "slb's CPU per request, in units of a peer's" if held_to else "no goal has figures in this run"
    failed = any(sample.failure for sample in samples)
    return Outcome([*sections, Section(title, held_to, notes)], interrupted, failed)


def _rounds(samples: Sequence[Sample], peer: str, case: str) -> list[Sample]:
    """Those with figures."""
    return [each for each in samples if (each.peer, each.case) == (peer, case) and not each.failure]


def _cpu_us(samples: Sequence[Sample], peer: str, case: str) -> float | None:
    """The median of CPU a request; None where there are no figures."""
    rounds = _rounds(samples, peer, case)
    return median(each.cpu_us for each in rounds) if rounds else None


def case_section(case: Case, peers: Sequence[Peer], samples: Sequence[Sample]) -> Section:
    """A row for each peer, the medians over its rounds, and what a row cannot say."""
    ours = _cpu_us(samples, SLB.name, case.name)
    rows = [[peer.name, *_cells(_rounds(samples, peer.name, case.name), ours)] for peer in peers]
    notes = [note for peer in peers for note in _notes(peer, case, samples)]
    return Section(f"{case.name}: {case.title}", (), notes, COLUMNS, rows)


def _cells(rounds: Sequence[Sample], ours: float | None) -> list[str]:
    """`ours`: slb's CPU a request in µs."""
    if not rounds:
        return [NO_FIGURE] * (len(COLUMNS) - 1)
    cpu, loads = [each.cpu_us for each in rounds], [each.load for each in rounds]
    its = median(cpu)
    return [
        f"{median(each.requests / each.seconds for each in loads):,.0f}",
        short(median(each.p50_us for each in loads) / 1000),
        short(median(each.p99_us for each in loads) / 1000),
        short(its),
        f"{short(min(cpu))}-{short(max(cpu))}",
        f"{median(each.cpu_seconds / each.load.seconds for each in rounds):.0%}",
        short(median(each.resident_mib for each in rounds)),
        f"{its / ours:.2f}x" if ours else NO_FIGURE,
        f"{ours / its:.2f}x" if ours else NO_FIGURE,
        f"{sum(_errors(rounds).values()):,}",
    ]


def _errors(rounds: Sequence[Sample]) -> Mapping[str, int]:
    """By kind, added up."""
    return sum((Counter(each.load.errors) for each in rounds), Counter[str]())


def _notes(peer: Peer, case: Case, samples: Sequence[Sample]) -> list[str]:
    """The errors by kind, and the last line of the last failure."""
    tried = [each for each in samples if (each.peer, each.case) == (peer.name, case.name)]
    if not tried:
        return [f"{peer.name}: {'not measured' if peer.program() else f'not installed: {peer.install}'}"]
    notes = []
    if errors := _errors(tried):
        kinds = ", ".join(f"{KIND_WORDS[kind]} {count:,}" for kind, count in errors.items())
        notes.append(f"{peer.name}: errors: {kinds}")
    if failures := [each.failure for each in tried if each.failure]:
        last = failures[-1].strip().splitlines()[-1]
        notes.append(f"{peer.name}: failed in {len(failures)} of {len(tried)} rounds: {last}")
    return notes


def goals(samples: Sequence[Sample]) -> list[Figure]:
    """Each goal that these samples have figures for."""
    return [
        Figure(f"{case}: of {peer}'s", ours / its, at_most=most)
        for (case, peer), most in GOALS.items()
        if (ours := _cpu_us(samples, SLB.name, case)) and (its := _cpu_us(samples, peer, case))
    ]
