"""The last hour of each route and upstream at one process, what it costs, and what several add up to."""

import gc
import tracemalloc
from random import Random
from typing import Any

import orjson
import pytest

from slb.config import Settings
from slb.fleet import hours as hours_module
from slb.fleet.counts import Totals
from slb.fleet.hours import (
    LOOK,
    POINTS,
    ROUTE,
    STEP,
    UPSTREAM,
    Failures,
    Hour,
    Hours,
    read_failures,
    read_hour,
    together,
    written_hour,
)
from slb.model import RouteRecord
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

BEGAN = 1000 * STEP


class One:
    """A process with upstreams of the routes `/p0`, `/p1` and so on, each in all of them."""

    def __init__(self, upstreams: int = 1, routes: int = 1) -> None:
        self.now = float(BEGAN)
        self.waits: list[tuple[str, str, str, int, float]] = []
        self.metrics = Metrics()
        self.mirror = Mirror(Settings().route_settings, Random(1))
        self.members = [f"u{number}:80" for number in range(upstreams)]
        self.route({f"/p{number}": self.members for number in range(routes)})
        self.hours = Hours(self.mirror, self.metrics.traffic, lambda: self.waits, lambda: self.now)

    def route(self, routes: dict[str, list[str]]) -> None:
        for _ in self.mirror.replace({path: RouteRecord(frozenset(each), {}) for path, each in routes.items()}, {}):
            pass
        self.metrics.follow_routes(self.mirror.table.routes)

    def requests(self, count: int, status: int = 200, member: str = "u0:80", path: str = "/p0") -> None:
        """Each takes 0.5 s, and 0.2 s to the first byte."""
        counts, at = self.metrics.traffic._found(path, member)
        at.outcomes[status, ""] += count
        at.seconds += 0.5 * count
        at.first_bytes += 0.2 * count
        counts.durations.counts[8] += count

    async def point(self) -> None:
        for _ in range(int(STEP / LOOK)):
            self.now += LOOK
            await self.hours.look()

    def of(self, name: str) -> Hour:
        found = self.hours.of(name)
        assert found is not None
        return found


async def test_a_point_has_what_has_happened_since_the_one_before() -> None:
    one = One()
    assert one.hours.of("/p0") is one.hours.of("u0:80") is None
    one.mirror.upstreams["u0:80"].inflight = 2
    one.waits = [("/p0", "/p0", "high", 3, 1.0), ("/p0", "/p0", "", 1, 1.0)]
    one.requests(6)
    one.requests(3, status=502)
    await one.point()
    one.waits = []
    one.mirror.upstreams["u0:80"].inflight = 0
    await one.point()
    route, upstream = one.of("/p0"), one.of("u0:80")
    assert route.until == upstream.until == BEGAN // STEP + 2
    assert route.figures == {
        "requests": [0.3, 0.0],
        "errors": [0.1, 0.0],
        "inflight": [2.0, 0.0],
        "waiting": [4.0, 0.0],
        "first_byte": [0.2, None],
        "p50": [pytest.approx(0.375, abs=0.1), None],
        "p99": [pytest.approx(0.5, abs=0.1), None],
    }
    assert upstream.figures == {
        "requests": [0.3, 0.0],
        "errors": [0.1, 0.0],
        "inflight": [2.0, 0.0],
        "first_byte": [0.2, None],
        "latency": [0.5, None],
    }


async def test_what_is_in_flight_is_the_mean_of_a_point_even_where_nothing_ends() -> None:
    one = One()
    one.mirror.upstreams["u0:80"].inflight = 6
    for _ in range(3):
        one.now += LOOK
        await one.hours.look()
    one.mirror.upstreams["u0:80"].inflight = 0
    for _ in range(3):
        one.now += LOOK
        await one.hours.look()
    assert one.of("u0:80").figures["inflight"] == one.of("/p0").figures["inflight"] == [3.0]


async def test_an_upstream_of_two_routes_has_what_both_send_it() -> None:
    one = One(routes=2)
    one.requests(30)
    one.requests(60, path="/p1")
    await one.point()
    assert one.of("u0:80").figures["requests"] == [3.0]
    assert (one.of("/p0").figures["requests"], one.of("/p1").figures["requests"]) == ([1.0], [2.0])


async def test_it_begins_with_the_first_request_and_holds_an_hour() -> None:
    one = One()
    await one.point()
    one.requests(30)
    for _ in range(3):
        await one.point()
    assert one.of("u0:80").figures["requests"] == [1.0, 0.0, 0.0]
    for _ in range(POINTS):
        await one.point()
    assert {len(each) for each in one.of("/p0").figures.values()} == {POINTS}
    assert set(one.of("/p0").figures["requests"]) == {0.0}


async def test_of_the_time_that_the_process_stood_still_nothing_is_known() -> None:
    one = One()
    one.requests(30)
    await one.point()
    one.now += 3 * STEP
    one.requests(30 * 4)
    await one.point()
    assert one.of("u0:80").figures["requests"] == [1.0, None, None, pytest.approx(1.0, abs=0.4), pytest.approx(0.0)]
    one.now += 10 * POINTS * STEP
    await one.point()
    assert [each for each in one.of("u0:80").figures["requests"] if each is not None] == [0.0, 0.0]


async def test_a_clock_that_is_set_back_makes_no_harm() -> None:
    one = One()
    one.requests(30)
    await one.point()
    one.now -= 3600
    one.requests(30)
    await one.hours.look()
    assert one.of("u0:80").figures["requests"] == [1.0, 1.0]
    assert one.of("u0:80").until == (BEGAN + STEP - 3600) // STEP


async def test_what_has_left_is_forgotten_and_makes_no_peak() -> None:
    one = One(upstreams=2, routes=2)
    for path in ("/p0", "/p1"):
        one.requests(300, path=path)
    await one.point()
    one.route({"/p1": ["u0:80"]})
    one.requests(30, path="/p1")
    await one.point()
    assert one.hours.of("/p0") is one.hours.of("u1:80") is None
    assert one.of("/p1").figures["requests"] == [10.0, 1.0]
    assert one.of("u0:80").figures["requests"] == [20.0, 0.0]
    one.route({})
    await one.point()
    assert one.hours.of("u0:80") is None


async def kept(one: One) -> int:
    """Bytes that an hour of all its upstreams takes."""
    for member in one.members:
        one.requests(1, member=member)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2):
            await one.point()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("upstreams", "most"), [(1, 16), (100, 320), (1000, 3000)])
async def test_it_takes_three_kilobytes_an_upstream(upstreams: int, most: int) -> None:
    assert await kept(One(upstreams)) < most * 1024


async def test_the_number_of_those_with_points_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours_module, "MOST_UPSTREAMS", 3)
    monkeypatch.setattr(hours_module, "MOST_ROUTES", 1)
    one = One(upstreams=5, routes=2)
    for path in ("/p0", "/p1"):
        for member in one.members:
            one.requests(1, member=member, path=path)
        await one.point()
    assert sum(one.hours.of(each) is not None for each in one.members) == 3
    assert [one.hours.of(path) is not None for path in ("/p0", "/p1")] == [True, False]


async def test_requests_that_failed_are_counted_by_point_and_since_the_last_one() -> None:
    one = One(upstreams=2)
    assert one.hours.failures("/p0") is None
    one.requests(7)
    one.requests(3, status=502)
    assert one.hours.failures("/p0") == one.hours.failures("u0:80") == Failures(BEGAN // STEP, [10], [3])
    await one.point()
    one.requests(4, status=500)
    one.now += LOOK  # the next point is of 35 s
    await one.point()
    one.requests(2)
    one.requests(1, status=500, member="u1:80")
    of_both, of_one = one.hours.failures("/p0"), one.hours.failures("u0:80")
    assert of_both == Failures(BEGAN // STEP + 2, [10, 4, 3], [3, 4, 1])
    assert of_one == Failures(BEGAN // STEP + 2, [10, 4, 2], [3, 4, 0])
    assert one.hours.failures("u1:80") == Failures(BEGAN // STEP + 2, [1], [1])
    assert one.hours.failures("/none") is one.hours.failures("none:80") is None


async def test_a_point_that_was_missed_has_no_failures_and_the_first_one_is_as_short_as_it_was() -> None:
    one = One()
    one.requests(5, status=500)
    one.now += STEP / 3
    one.hours._until -= 1  # it began shortly before the point ended
    await one.hours.look()
    one.now += 4 * STEP
    one.requests(2, status=500)
    await one.hours.look()
    found = one.hours.failures("/p0")
    assert found is not None
    assert found.failed == [5, 0, 0, 0, 2, 0]


async def test_what_has_failed_of_late_is_known_by_name() -> None:
    one = One(upstreams=3, routes=2)

    def failing() -> list[str]:
        totals = Totals()
        for _ in totals.add_up(one.metrics.traffic, one.mirror.upstreams):
            pass
        return one.hours.failing(totals)

    one.requests(5)
    one.requests(1, status=500, member="u2:80", path="/p1")
    assert failing() == ["/p1", "u2:80"], "at once"
    await one.point()
    one.requests(1, status=500)
    assert failing() == ["/p0", "/p1", "u0:80", "u2:80"]
    await one.point()
    assert failing() == ["/p0", "u0:80"]
    await one.point()
    assert failing() == []


def test_failures_that_were_written_are_read_again() -> None:
    made = Failures(10, [5, 6], [1, 2])
    assert read_failures(orjson.loads(orjson.dumps(made._asdict()))) == made
    assert read_failures({"until": 10, "asked": [-5], "failed": [1.5]}) == Failures(10, [0], [1])
    for wrong in ({"asked": [1]}, {"asked": ["1", 2]}, {"failed": None}, {"until": "x"}, {"asked": [1] * 200}):
        with pytest.raises((ValueError, TypeError, KeyError)):
            read_failures({**made._asdict(), "asked": [5, 6], "failed": [1, 2], **wrong})


def hour(until: int, name: str = "u0:80", **figures: list[float | None]) -> Hour:
    names, length = ROUTE if name.startswith("/") else UPSTREAM, max(map(len, figures.values()), default=0)
    return Hour(name, until, {each: figures.get(each, [None] * length) for each in names})


def test_processes_add_up_by_the_time_of_each_point() -> None:
    one = hour(10, requests=[1.0, 3.0], inflight=[1.0, 2.0], first_byte=[0.4, 0.1], latency=[None, None])
    other = hour(10, requests=[1.0], inflight=[4.0], first_byte=[0.5])
    found = together("u0:80", [one, other], 10.5 * STEP)
    assert found.until == 10
    assert found.figures == {
        "requests": [1.0, 4.0],
        "errors": [None, None],
        "inflight": [1.0, 6.0],
        "first_byte": [0.4, 0.2],
        "latency": [None, None],
    }
    slow = together("/p", [hour(10, "/p", p99=[1.0], p50=[1.0], requests=[1.0])] * 2, 10 * STEP)
    assert (slow.figures["p99"], slow.figures["p50"], slow.figures["requests"]) == ([1.0], [1.0], [2.0])
    slower = together("/p", [hour(10, "/p", p99=[each], requests=[9 - each]) for each in (1.0, 7.0)], 10 * STEP)
    assert slower.figures["p99"] == [7.0]


def test_it_ends_where_all_have_a_point_but_waits_for_none_that_is_late() -> None:
    late, ready = hour(9, requests=[1.0, 1.0]), hour(10, requests=[2.0, 2.0, 2.0])
    found = together("u0:80", [late, ready], 10 * STEP)
    assert (found.until, found.figures["requests"]) == (9, [3.0, 3.0])
    found = together("u0:80", [hour(2, requests=[1.0]), ready, hour(99, requests=[5.0])], 10 * STEP)
    assert (found.until, found.figures["requests"]) == (10, [1.0, *[None] * 5, 2.0, 2.0, 2.0])
    assert together("u0:80", [], 10 * STEP) == hour(10)
    assert together("u0:80", [hour(-(10**9), requests=[1.0])], 10 * STEP) == hour(10)


def test_what_is_written_is_read_again() -> None:
    made = hour(10, "/p", requests=[1.0, None], p99=[None, 0.3])
    assert read_hour(written_hour(made), "/p") == made


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"until": "now"},
        {"requests": [1.0] * (POINTS + 1)},
        {"requests": ["1"]},
        {"requests": None},
        {"requests": [1.0]},
    ],
)
def test_what_is_no_hour_is_refused(wrong: Any) -> None:
    found = {**written_hour(hour(10)), **wrong} if wrong else wrong
    with pytest.raises((ValueError, TypeError, KeyError)):
        read_hour(found, "u0:80")


def test_no_figure_of_another_is_below_zero() -> None:
    assert read_hour(written_hour(hour(10, requests=[-5.0])), "u0:80").figures["requests"] == [0.0]
