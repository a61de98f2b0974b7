"""What requests saw of an upstream that stood still for a while."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.figures.figure import Figure, Section, percentile
from bench.figures.open_loop import Fetched

MEASURED = "effective"
"""The load signal with a goal; the others are there to be compared with."""

SLOW_SECONDS = 1.0
GOAL_SLOW_PERCENT = 2.0
QUIET_SECONDS = 5.0
"""What is looked at before the freeze, and after it."""


@dataclass(frozen=True)
class Freeze:
    """From when to when (`time.monotonic`), and whose port it was."""

    begun: float
    ended: float
    port: int


@dataclass(frozen=True)
class Seen:
    """The requests that were due in a stretch of time. Latencies count from then."""

    requests: int
    by_status: Mapping[int, int]
    slow: int
    p50_ms: float
    p99_ms: float
    hits: int
    by_upstream: Mapping[int, int]

    @classmethod
    def of(cls, fetched: Sequence[Fetched], begin: float, end: float) -> "Seen":
        those = [each for each in fetched if begin <= each.due < end]
        seconds = [each.ended - each.due for each in those]
        return cls(
            len(those),
            dict(Counter(each.status for each in those)),
            sum(each > SLOW_SECONDS for each in seconds),
            percentile(seconds, 0.5) * 1e3,
            percentile(seconds, 0.99) * 1e3,
            sum(each.hit for each in those),
            dict(Counter(each.upstream for each in those)),
        )

    @property
    def failed(self) -> int:
        return self.requests - self.by_status.get(200, 0)

    def percent(self, count: int) -> float:
        return 100 * count / self.requests if self.requests else float("nan")


@dataclass(frozen=True)
class Case:
    """What one signal made of it. `caught`: begun before the freeze, and answered only after it. `share`: percent
    of the requests before that were at the upstream which then froze. `bad`: all that were slow or failed; their
    times are seconds since the freeze began."""

    signal: str
    before: Seen
    during: Seen
    after: Seen
    caught: int
    share: float
    bad: Sequence[Fetched]

    @classmethod
    def of(cls, name: str, fetched: Sequence[Fetched], frozen: Freeze) -> "Case":
        before = Seen.of(fetched, frozen.begun - QUIET_SECONDS, frozen.begun)
        return cls(
            name,
            before,
            Seen.of(fetched, frozen.begun, frozen.ended),
            Seen.of(fetched, frozen.ended, frozen.ended + QUIET_SECONDS),
            sum(each.due < frozen.begun and each.ended >= frozen.ended for each in fetched),
            before.percent(before.by_upstream.get(frozen.port, 0)),
            [
                replace(each, due=each.due - frozen.begun, ended=each.ended - frozen.begun)
                for each in fetched
                if each.status != 200 or each.ended - each.due > SLOW_SECONDS
            ],
        )


def section(case: Case, seconds: float) -> Section:
    """The goals are those of the effective load."""
    measured = case.signal == MEASURED
    before, during, after = case.before, case.during, case.after
    figures = [
        Figure("of all requests, at the one to be frozen before", case.share, "%"),
        Figure("begun during the freeze", during.requests),
        Figure(
            f"slower than {SLOW_SECONDS:g} s",
            during.percent(during.slow),
            "%",
            at_most=GOAL_SLOW_PERCENT if measured else None,
        ),
        Figure("failed", during.failed, at_most=0 if measured else None),
        Figure("latency, p50", during.p50_ms, "ms"),
        Figure("latency, p99", during.p99_ms, "ms"),
        Figure("begun before it and held up by it", case.caught),
        Figure("from a cache, before", before.percent(before.hits), "%"),
        Figure("from a cache, during", during.percent(during.hits), "%"),
        Figure("from a cache, after", after.percent(after.hits), "%"),
        Figure("latency before, p99", before.p99_ms, "ms"),
        Figure("latency after, p99", after.p99_ms, "ms"),
    ]
    return Section(f"load_signal = {case.signal}: one upstream frozen for {seconds:g} s", figures)
