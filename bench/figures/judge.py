"""How often a healthy upstream is taken for a sick one, and how soon a sick one is found: by the judge itself, of
requests that are drawn. Nothing here depends on the machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.table import Outcome, Section
from slb.balance.judge import Judge
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings, Upstream

UPSTREAMS, A_MINUTE = (2, 8, 1000), (1, 100, 10_000)
HEALTHY, SICK = (0.001, 0.01, 0.05, 0.1, 0.2), (1.0, 0.5, 0.3, 0.2)
ENOUGH = RouteSettings().eject_after
_TRIES = 400
_APART = 60 / max(A_MINUTE)
"""Seconds between two requests."""


@dataclass(frozen=True)
class _Route:
    path: str
    upstreams: tuple[LiveUpstream, ...]


class _Drawn:
    """The judge of a route of so many upstreams; requests go round."""

    def __init__(self, upstreams: int, seed: int) -> None:
        self._rng = Random(seed)
        self._now = 0.0
        self._judge = Judge(lambda: self._now)
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
        judge, route = self._judge, self._route
        self._now = number * _APART
        upstream = route.upstreams[number % len(route.upstreams)]
        if self._rng.random() >= share:
            judge.answered(route, upstream)
            return False
        judge.failed(route, upstream)
        if judge.score(upstream, (route,)) < ENOUGH:
            return False
        judge.clear(upstream, (route,))
        return True


def judge(
    bench: Bench,
    requests: Annotated[int, Option(min=1000, help="Requests that are drawn for each line.")] = 1_000_000,
    seed: Annotated[int, Option(help="Of what is drawn.")] = 1,
) -> Outcome:
    """How often a healthy upstream is taken for a sick one, and how soon a sick one is found."""
    rows = []
    for share in HEALTHY:
        for upstreams in UPSTREAMS:
            bench.to(f"{upstreams} upstreams, {100 * share:g} % of the requests fail")
            alarms = _Drawn(upstreams, seed).alarms(requests, share)
            an_hour = [60 * rate * max(alarms, 1) / requests for rate in A_MINUTE]
            less = "" if alarms else "< "
            rows.append(
                [f"{100 * share:g} %", str(upstreams), str(alarms), *(f"{less}{each:.2g}" for each in an_hour)]
            )
    found = [
        [f"{100 * share:g} %", f"{median(_Drawn(8, seed + each).until_found(share) for each in range(_TRIES)):.0f}"]
        for share in SICK
    ]
    rates = [f"{rate:,} a min: an hour" for rate in A_MINUTE]
    return Outcome(
        [
            Section(
                f"false alarms: all upstreams of a route fail alike, eject_after = {ENOUGH:g}",
                columns=("requests that fail", "upstreams", f"alarms in {requests:,}", *rates),
                rows=rows,
                notes=["Where there was none, the hours have what one would be."],
            ),
            Section(
                f"requests of a sick upstream, of 8, until it is found: median of {_TRIES} tries",
                columns=("of them fail", "requests"),
                rows=found,
            ),
        ]
    )
