"""How often a healthy upstream is taken for a sick one, and how soon a sick one is found: by the judge itself, of
requests that are drawn. Nothing here depends on the machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.figures.slow_answers import (
    LOAD,
    POLICIES,
    Sizes,
    alarms_alone,
    alarms_in_line,
    log_normal,
    of_trace,
    percentile_98,
    until_found,
)
from bench.gpu.work import read_trace
from bench.table import Outcome, Section
from slb.balance.judge import Judge
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings, Upstream

UPSTREAMS, A_MINUTE = (2, 8, 1000), (1, 100, 10_000)
INSTANCES = (1, 3, 10)
HEALTHY, SICK = (0.001, 0.01, 0.05, 0.1, 0.2), (1.0, 0.5, 0.3, 0.2)
ENOUGH = RouteSettings().eject_after - 0.2
"""What is told by others fades, slowly: so much less is enough (`routing/passive.py`)."""
SLOW = (3.0, 5.0, 20.0)
SPREADS = (0.5, 2.0)
_TRIES, _TRIES_SLOW = 400, 21
_MOST_ANSWERS = 500
_APART = 60 / max(A_MINUTE)
"""Seconds between two requests."""


@dataclass(frozen=True)
class _Route:
    path: str
    upstreams: tuple[LiveUpstream, ...]


class Drawn:
    """The judges of a route of so many upstreams, each in an instance of its own; requests go round the upstreams,
    each through any instance. All is told at once, which is no less than instances tell."""

    def __init__(self, upstreams: int, seed: int, instances: int = 1) -> None:
        self._rng = Random(seed)
        self._now = 0.0
        self._judges = [Judge(lambda: self._now, lambda: instances) for _ in range(instances)]
        self._route = _Route("/", tuple(LiveUpstream(Upstream.of(f"u{each}:80")) for each in range(upstreams)))

    def alarms(self, requests: int, share: float) -> int:
        """How many of `requests` have their upstream taken for sick, where all fail in `share` of theirs."""
        return sum(self._is_alarm(number, share) for number in range(requests))

    def until_found(self, share: float) -> int:
        """Requests of the first upstream until it is found, where it alone fails, in `share` of them."""
        for number in self._turns():
            if number % len(self._route.upstreams):
                self._is_alarm(number, 0.0)
            elif self._is_alarm(number, share):
                return number // len(self._route.upstreams) + 1
        raise AssertionError

    def _turns(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    def _is_alarm(self, number: int, share: float) -> bool:
        route = self._route
        judge = self._judges[0] if len(self._judges) == 1 else self._rng.choice(self._judges)
        self._now = number * _APART
        upstream = route.upstreams[number % len(route.upstreams)]
        failed = self._rng.random() < share
        if failed:
            judge.failed(route, upstream)
        else:
            judge.answered(route, upstream)
        if failed or judge.has_answers(route, upstream):
            self._tell(judge)
        if not failed or not any(self._is_enough(each, upstream) for each in self._judges):
            return False
        for each in self._judges:
            each.clear(upstream, (route,))
        return True

    def _is_enough(self, judge: Judge, upstream: LiveUpstream) -> bool:
        found = judge.routes[self._route.path].troubled.get(upstream)
        if found is None or found.failing.total(self._now) < ENOUGH:  # whatever the others have
            return False
        return judge.score(upstream, (self._route,)) >= ENOUGH

    def _tell(self, judge: Judge) -> None:
        most, teller = RouteSettings().eject_after, str(id(judge))
        for told in judge.telling():
            for other in self._judges:
                if other is judge:
                    continue
                if told.added:
                    other.heard(self._route, told.upstream, min(told.added, most), told.answers, most)
                else:
                    other.heard_answers(self._route, told.upstream, told.answers, teller, told.left > 0)


def judge(
    bench: Bench,
    requests: Annotated[int, Option(min=1000, help="Requests that are drawn for each line.")] = 1_000_000,
    seed: Annotated[int, Option(help="Of what is drawn.")] = 1,
    trace: Annotated[
        list[Path] | None, Option(help="Times in proportion to the tokens of this trace too.", show_default=False)
    ] = None,
) -> Outcome:
    """How often a healthy upstream is taken for a sick one, and how soon a sick one is found."""
    rows = []
    for share in HEALTHY:
        for upstreams, instances in product(UPSTREAMS, INSTANCES):
            bench.to(f"{upstreams} upstreams, {instances} instances, {100 * share:g} % of the requests fail")
            alarms = Drawn(upstreams, seed, instances).alarms(requests, share)
            an_hour = [60 * rate * max(alarms, 1) / requests for rate in A_MINUTE]
            less = "" if alarms else "< "
            words = f"{100 * share:g} %", str(upstreams), str(instances), str(alarms)
            rows.append([*words, *(f"{less}{each:.2g}" for each in an_hour)])
    found = [
        [f"{100 * share:g} %", f"{median(Drawn(8, seed + each).until_found(share) for each in range(_TRIES)):.0f}"]
        for share in SICK
    ]
    rates = [f"{rate:,} a min: an hour" for rate in A_MINUTE]
    return Outcome(
        [
            Section(
                f"false alarms: all upstreams of a route fail alike, eject_after = {RouteSettings().eject_after:g}",
                columns=("requests that fail", "upstreams", "instances", f"alarms in {requests:,}", *rates),
                rows=rows,
                notes=["Where there was none, the hours have what one would be."],
            ),
            Section(
                f"requests of a sick upstream, of 8, until it is found: median of {_TRIES} tries",
                columns=("of them fail", "requests"),
                rows=found,
            ),
            *_slow(bench, requests // 4, seed, [*map(log_normal, SPREADS), *map(_lengths, trace or ())]),
        ]
    )


def _lengths(trace: Path) -> Sizes:
    return of_trace(trace.stem.rpartition("_")[2], [max(1, line.generated) for line in read_trace(trace)])


def _slow(bench: Bench, requests: int, seed: int, drawn: list[Sizes]) -> Iterator[Section]:
    rows, found = list[list[str]](), list[list[str]]()
    for sizes in drawn:
        bench.to(f"slow answers, {sizes.name}")
        alone = [str(alarms_alone(each, sizes, requests, seed)) for each in UPSTREAMS]
        in_line = [str(alarms_in_line(each, 8, sizes, requests, seed)) for each in POLICIES]
        rows.append([sizes.name, f"{percentile_98(sizes):.1f}", *alone, *in_line])
        tries = [
            [until_found(each, sizes, seed + one, _MOST_ANSWERS) for one in range(_TRIES_SLOW)] for each in SLOW
        ]
        found.append([sizes.name, *map(_middle, tries)])
    yield Section(
        f"false alarms for slow answers in {requests:,}: all upstreams of a route are alike",
        columns=("times", "98 %/median", *(f"of {each:,}" for each in UPSTREAMS), *POLICIES),
        rows=rows,
        notes=[f"The last two: 8 servers of one slot with a line before each, in use {LOAD:.0%} of the time."],
    )
    yield Section(
        f"answers of a slow upstream, of 8, until it is found: median of {_TRIES_SLOW} tries",
        columns=("times", *(f"{each:g} times slower" for each in SLOW)),
        rows=found,
    )


def _middle(tries: list[int | None]) -> str:
    middle = sorted(_MOST_ANSWERS + 1 if each is None else each for each in tries)[len(tries) // 2]
    return f"> {_MOST_ANSWERS}" if middle > _MOST_ANSWERS else str(middle)
