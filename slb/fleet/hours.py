"""The last hour of each route and of each upstream at this process, and what several processes' hours add up to.

A point every 30 s, taken whether anybody looks or not, since the operator who opens the page in the middle of an
incident wants what was before. A figure of a point takes 4 bytes: with what is kept besides it is 3 KB for each
upstream and 4 KB for each route that has had requests here, and nothing for the others.
"""

import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, dropwhile
from struct import Struct
from typing import Any, NamedTuple

from slb.control.slices import Slices
from slb.fleet.counts import RouteTotal, Totals, UpstreamTotal, counted
from slb.fleet.frame_values import listed, number
from slb.fleet.rates import quantile
from slb.observe.traffic import Traffic
from slb.routing.mirror import Mirror

STEP = 30
POINTS = 120
LOOK = 5.0
"""Seconds between two looks at what is in flight and waits, of which a point has the mean."""
MOST_ROUTES = 500
MOST_UPSTREAMS = 5000
"""Of which there are points: those that had requests first."""

ROUTE = ("requests", "errors", "inflight", "waiting", "first_byte", "p50", "p99")
UPSTREAM = ("requests", "errors", "inflight", "first_byte", "latency")
_SUMS = frozenset({"requests", "errors", "inflight", "waiting"})
_WORST = "p99"
_PLACES = POINTS + 1  # one of them is written while the others are shown
_REST = 20
_NO_ROUTE, _NO_COUNTS = RouteTotal(), UpstreamTotal(0, 0, 0, 0.0, 0.0)

Figure = float | None
Queued = Iterable[tuple[str, str, str, int, float]]


class Hour(NamedTuple):
    """Of one route or upstream. `figures`: by name, of one length, None where nothing is known; the last of each is
    of the point that ended `until`, in points since 1970."""

    name: str
    until: int
    figures: Mapping[str, Sequence[Figure]]


class Failures(NamedTuple):
    """Of one route or upstream at one process. `asked`, `failed`: its requests, and those of them that failed, in
    each point, the last of which ended `until`, in points since 1970; then those since."""

    until: int
    asked: Sequence[int]
    failed: Sequence[int]


def figures_of(name: str) -> Sequence[str]:
    """Those of a route (its name begins with a slash) or of an upstream."""
    return ROUTE if name.startswith("/") else UPSTREAM


class Rings:
    """By name the last points, each a row of `width` figures, NaN where nothing is known; `most` names at
    most."""

    def __init__(self, width: int, most: int) -> None:
        self._row = Struct(f"{width}f")
        self._nothing = (math.nan,) * width
        self._most = most
        self._rings: dict[str, array[float]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._rings

    def put(self, name: str, place: int, row: Sequence[float]) -> None:
        ring = self._rings.get(name)
        if ring is None:
            if len(self._rings) >= self._most:
                return
            ring = self._rings[name] = array("f", self._nothing) * _PLACES
        self._row.pack_into(ring, place % _PLACES * self._row.size, *row)

    def pass_over(self, places: Collection[int]) -> Iterator[None]:
        """Of these nothing is known."""
        for name in list(self._rings) if places else ():
            for place in places:
                self.put(name, place, self._nothing)
            yield

    def keep(self, names: Container[str]) -> None:
        for name in [name for name in self._rings if name not in names]:
            del self._rings[name]

    def columns(self, name: str, last: int) -> list[list[Figure]] | None:
        """Each figure of the points up to the place `last`; None of a name without any."""
        ring = self._rings.get(name)
        if ring is None:
            return None
        rows = [
            self._row.unpack_from(ring, place % _PLACES * self._row.size)
            for place in range(last - POINTS + 1, last + 1)
        ]
        return [[_shown(each) for each in column] for column in zip(*rows, strict=True)]

    def rates(self, name: str, last: int) -> list[tuple[int, float, float]]:
        """The first two figures of the points up to the place `last`, each with its place in the ring; empty for a
        name without any."""
        ring = self._rings.get(name)
        if ring is None:
            return []
        places = [place % _PLACES for place in range(last - POINTS + 1, last + 1)]
        return [(place, *self._row.unpack_from(ring, place * self._row.size)[:2]) for place in places]


class Hours:
    """`look` every `LOOK` seconds. That costs 0.1 us for each upstream, and every 30 s some 10 us for each that has
    had requests, in slices. `queued`: what waits here now (`Gates.queued`)."""

    def __init__(
        self,
        mirror: Mirror,
        traffic: Traffic,
        queued: Callable[[], Queued],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mirror = mirror
        self._traffic = traffic
        self._queued = queued
        self._clock = clock
        self._routes, self._upstreams = Rings(len(ROUTE), MOST_ROUTES), Rings(len(UPSTREAM), MOST_UPSTREAMS)
        self._inflight, self._waiting = Counter[str](), Counter[str]()
        self._looks = 0
        self._before = Totals()
        self._since = clock()
        self._until = int(self._since // STEP)
        self._place = 0
        self._seconds = array("f", [STEP]) * _PLACES
        self._failed: Set[str] = frozenset()

    def failing(self, totals: Totals) -> list[str]:
        """The routes and upstreams of which requests have failed in the last point or since, as far as `totals` has
        them now."""
        return sorted((self._failed | _grown_errors(self._before, totals)) - {""})

    def failures(self, name: str) -> Failures | None:
        """Of a route or an upstream; None where it has had no requests here."""
        is_route = name.startswith("/")
        requests, errors, *_ = counted(self._traffic, name)
        rates = (self._routes if is_route else self._upstreams).rates(name, self._place)
        if not rates and not requests:
            return None
        before = (self._before.routes if is_route else self._before.upstreams).get(name, _NO_COUNTS)
        points = list(dropwhile(lambda point: not point[1] > 0, rates))  # of nan as well
        counts = [
            (round(asked * self._seconds[place]), round(failed * self._seconds[place])) if asked > 0 else (0, 0)
            for place, asked, failed in points
        ]
        return Failures(
            self._until,
            [*(asked for asked, _ in counts), max(0, requests - before[0])],
            [*(failed for _, failed in counts), max(0, errors - before[1])],
        )

    def of(self, name: str) -> Hour | None:
        """Of a route or an upstream; None where it has had no requests here."""
        rings = self._routes if name.startswith("/") else self._upstreams
        columns = rings.columns(name, self._place)
        return None if columns is None else Hour(name, self._until, _trimmed(figures_of(name), columns))

    async def look(self) -> None:
        slices, now = Slices(), self._clock()
        for count, live in enumerate(list(self._mirror.upstreams.values())):
            if live.inflight:
                self._inflight[live.member] += live.inflight
            if count % 500 == 0:
                await slices.rest()
        for _, route, _, depth, _ in self._queued():
            self._waiting[route] += depth
        self._looks += 1
        if (until := int(now // STEP)) != self._until:
            await self._end_point(until, now, slices)

    async def _end_point(self, until: int, now: float, slices: Slices) -> None:
        totals = Totals()
        for _ in totals.add_up(self._traffic, self._mirror.upstreams):
            await slices.rest()
        missed = min(max(0, until - self._until - 1), POINTS - 1)  # this process stood still
        place = self._place + missed + 1
        seconds = now - self._since if now > self._since else float(STEP)  # a clock may be set back
        for _ in chain(
            *(each.pass_over(range(self._place + 1, place)) for each in (self._routes, self._upstreams))
        ):
            await slices.rest()
        self._seconds[place % _PLACES] = seconds
        for _ in self._put_all(totals, place, seconds):
            await slices.rest()
        self._failed = _grown_errors(self._before, totals)
        self._before, self._since, self._until, self._place = totals, now, until, place
        self._inflight, self._waiting, self._looks = Counter(), Counter(), 0

    def _put_all(self, totals: Totals, place: int, seconds: float) -> Iterator[None]:
        rows, looks, grown = self._upstreams, self._looks, dict[str, Sequence[float]]()
        for count, member in enumerate(list(self._mirror.upstreams)):
            inflight = self._inflight[member] / looks
            if inflight or member in totals.upstreams or member in rows:
                after = totals.upstreams.get(member, _NO_COUNTS)
                grown[member] = _growth(self._before.upstreams.get(member, _NO_COUNTS), after)
                requests, errors, sent, took, waited = grown[member]
                rates = requests / seconds, errors / seconds
                rows.put(member, place, (*rates, inflight, _each(waited, sent), _each(took, sent)))
            if count % _REST == 0:
                yield
        rows.keep(self._mirror.upstreams)
        yield from self._put_routes(totals, grown, place, seconds)

    def _put_routes(
        self, totals: Totals, grown: Mapping[str, Sequence[float]], place: int, seconds: float
    ) -> Iterator[None]:
        rows, looks = self._routes, self._looks
        for path, route in list(self._mirror.table.routes.items()):
            before, after = self._before.routes.get(path, _NO_ROUTE), totals.routes.get(path, _NO_ROUTE)
            inflight = waited = sent = 0.0
            for count, live in enumerate(route.members):
                inflight += self._inflight[live.member] / looks
                _, _, sent_there, _, waited_there = grown.get(live.member, _NO_COUNTS)
                sent, waited = sent + sent_there, waited + waited_there
                if count % _REST == 0:
                    yield
            waiting = self._waiting[path] / looks
            if inflight or waiting or after.requests or path in rows:
                requests, errors, *times = _growth((*before[:2], *before.times), (*after[:2], *after.times))
                rates = requests / seconds, errors / seconds
                half, nearly_all = (quantile(times, share) or math.nan for share in (0.5, 0.99))
                row = (*rates, inflight, waiting, _each(waited, sent), half, nearly_all)
                rows.put(path, place, row)
            yield
        rows.keep(self._mirror.table.routes)


def _growth(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Counts shrink where a route or an upstream leaves, or is back: then some of a point is missing."""
    return [max(0, late - early) for early, late in zip(before, after, strict=True)]


def _grown_errors(before: Totals, after: Totals) -> set[str]:
    """The routes and upstreams of which more requests have failed."""
    routes = {path for path, now in after.routes.items() if now.errors > before.routes.get(path, _NO_ROUTE).errors}
    return routes | {
        name for name, now in after.upstreams.items() if now.errors > before.upstreams.get(name, _NO_COUNTS)[1]
    }


def _each(total: float, count: float) -> float:
    return total / count if count > 0 else math.nan


def _shown(value: float) -> Figure:
    return None if math.isnan(value) else round(value, 4 if value < 10 else 2)


def _trimmed(names: Sequence[str], columns: Sequence[list[Figure]]) -> dict[str, list[Figure]]:
    """From the first point on of which anything is known."""
    rows = enumerate(zip(*columns, strict=True))
    first = next((place for place, row in rows if any(each is not None for each in row)), len(columns[0]))
    return {name: column[first:] for name, column in zip(names, columns, strict=True)}


def read_hour(found: Any, name: str) -> Hour:
    """What another process has sent of this route or upstream. Raises ValueError, TypeError and KeyError for what
    is none."""
    figures = {each: [_read(value) for value in listed(found[each], POINTS)] for each in figures_of(name)}
    if len({len(each) for each in figures.values()}) > 1:
        raise ValueError("lengths differ")
    return Hour(name, int(number(found["until"])) // STEP, figures)


def read_failures(found: Any) -> Failures:
    """What another process has sent. Raises ValueError, TypeError and KeyError for what is none."""
    asked, failed = (
        [max(0, int(number(each))) for each in listed(found[name], POINTS + 1)] for name in ("asked", "failed")
    )
    if len(asked) != len(failed):
        raise ValueError("lengths differ")
    return Failures(int(number(found["until"])), asked, failed)


def _read(value: Any) -> Figure:
    return None if value is None else max(0.0, number(value))


def written_hour(hour: Hour) -> dict[str, Any]:
    return {"name": hour.name, "step": STEP, "until": hour.until * STEP, **hour.figures}


def together(name: str, hours: Collection[Hour], now: float) -> Hour:
    """What processes' hours of one route or upstream are together. Means are weighed by requests, and of p99 the
    slowest process counts. It ends with the last point that all have which are not late by more than one: else it
    would seem that traffic falls."""
    last = int(now // STEP)
    until = min((each.until for each in hours if last - 1 <= each.until <= last), default=last)
    columns = [
        [_together(figure, hours, at) for at in range(until - POINTS + 1, until + 1)] for figure in figures_of(name)
    ]
    return Hour(name, until, _trimmed(figures_of(name), columns))


def _together(figure: str, hours: Iterable[Hour], at: int) -> Figure:
    known: list[tuple[float, float]] = []  # the figure, and requests
    for hour in hours:
        place = len(hour.figures[figure]) - 1 - (hour.until - at)
        if 0 <= place < len(hour.figures[figure]) and (value := hour.figures[figure][place]) is not None:
            known.append((value, hour.figures["requests"][place] or 0.0))
    if not known:
        return None
    if figure in _SUMS:
        return round(sum(value for value, _ in known), 4)
    if figure == _WORST:
        return max(value for value, _ in known)
    weight = sum(requests for _, requests in known)
    return round(sum(value * requests for value, requests in known) / weight, 4) if weight else None
