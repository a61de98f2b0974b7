"""The frames of one process: what is in them, and that they stay small."""

from random import Random
from typing import Any

import pytest

from slb.config import Settings
from slb.control.connection import Connection
from slb.control.instances import InstanceInfo, Instances
from slb.control.slices import Slices
from slb.fleet.frame import MOST_UPSTREAMS, Frame
from slb.fleet.own import OwnFrames
from slb.fleet.pace import PERIOD, Pace
from slb.fleet.service import sources_of
from slb.model import RouteRecord
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class One:
    """A process with `count` upstreams of the route /p."""

    def __init__(self, count: int) -> None:
        self.metrics, self.clock = Metrics(), Clock()
        self.mirror = Mirror(Settings().route_settings, Random(1))
        self.members = [f"u{number}:80" for number in range(count)]
        self.mirror.update({"/p": RouteRecord(frozenset(self.members), {})}, {})
        self.metrics.follow_routes(self.mirror.table.routes)
        connection = Connection("redis://127.0.0.1:1", self.metrics)
        instances = Instances(connection, InstanceInfo("id-1", name="one/0", started="5.0"))
        self.frames = OwnFrames(sources_of(instances, self.mirror, self.metrics, is_worker=True), self.clock)

    async def make(self) -> Frame:
        self.clock.now += 1.0
        return await self.frames.make(Slices())

    def live(self, number: int) -> Any:
        return self.mirror.upstreams[f"u{number}:80"]

    def requests(self, number: int, count: int, status: int = 200, reason: str = "") -> None:
        counts, at = self.metrics.traffic._found("/p", f"u{number}:80")
        at.outcomes[status, reason] += count
        at.seconds += 0.5 * count
        at.first_bytes += 0.2 * count
        counts.durations.counts[8] += count


async def test_a_frame_has_rates_of_late() -> None:
    one = One(2)
    first = await one.make()
    assert (first.full, first.number, dict(first.upstreams)) == (True, 1, {})
    assert first.instance["group"] == "one"
    one.requests(0, 1)
    await one.make()
    routes: dict[str, Any] = {}
    upstreams: dict[str, Any] = {}
    first_bytes: dict[str, float] = {}
    for _ in range(12):
        one.requests(0, 8)
        one.requests(0, 2, 502, "upstream_reset")
        frame = await one.make()
        routes.update(frame.routes)
        upstreams.update(frame.upstreams)
        first_bytes.update(frame.first_bytes)
    assert first_bytes == {"u0:80": pytest.approx(0.2)}
    assert frame.instance["rate"] == pytest.approx(10.0)
    assert frame.instance["error_rate"] == pytest.approx(2.0)
    assert 0.25 < frame.instance["p50"] <= 0.5
    route, upstream = routes["/p"], upstreams["u0:80"]
    assert (route[1], route[2], route[4]) == (10.0, 2.0, {"upstream_reset": 2.0})
    assert (upstream[4], upstream[5], upstream[6]) == (10.0, 2.0, 0.5)


async def test_what_does_not_change_is_not_sent_again() -> None:
    one = One(3)
    one.live(1).inflight = 4
    assert (await one.make()).upstreams == {"u1:80": (0, "", 4, 0, 0.0, 0.0, 0.0)}
    assert (await one.make()).upstreams == {}
    one.frames.begin_anew()
    again = await one.make()
    assert (again.full, set(again.upstreams)) == (True, {"u1:80"})


async def test_a_frame_is_bounded_and_all_upstreams_have_their_turn() -> None:
    one = One(1000)
    for number in range(1000):
        one.live(number).inflight = 1
    sizes: list[int] = []
    seen: set[str] = set()
    while len(seen) < 1000:
        frame = await one.make()
        sizes.append(len(frame.upstreams))
        seen.update(frame.upstreams)
    assert max(sizes) == MOST_UPSTREAMS
    assert len(sizes) <= 2 * 1000 / MOST_UPSTREAMS


async def test_what_is_out_is_in_the_next_frame_and_so_is_its_end() -> None:
    one = One(2000)
    for number in range(2000):
        one.live(number).inflight = 1
    await one.make()
    one.live(1999).available, one.live(1999).why = False, "it refuses connections"
    one.live(1999).since = 1234.5678
    frame = await one.make()
    assert frame.upstreams["u1999:80"][:2] == (3, "it refuses connections")
    assert frame.since == {"u1999:80": 1234.568}
    one.live(1999).available = True
    frames = [await one.make() for _ in range(2)]
    assert any(frame.upstreams.get("u1999:80", (3,))[0] == 0 for frame in frames)
    assert not any(frame.since for frame in frames)


async def test_why_one_fails_is_told_and_which_are_busy_is_in_each_frame() -> None:
    one = One(4)
    one.live(0).failures, one.live(1).failures = 1, 3
    one.live(2).failures, one.live(2).on_probation = 1, True
    one.live(2).why = "it refuses connections; out for 8 s"
    one.live(3).set_aside = True
    frame = await one.make()
    assert {member: row[:2] for member, row in frame.upstreams.items()} == {
        "u0:80": (2, "its last request failed"),
        "u1:80": (2, "3 failures in a row"),
        "u2:80": (2, "tried again after: it refuses connections"),
    }
    assert (frame.busy, (await one.make()).busy) == (["u3:80"], ["u3:80"])
    one.live(3).set_aside = False
    assert not (await one.make()).busy


async def test_one_that_would_be_ejected_is_told_with_why_and_since_when() -> None:
    one = One(4)
    one.live(3).spared, one.live(3).spared_since = "it refuses connections", 1234.5678
    frame = await one.make()
    assert frame.upstreams["u3:80"][:2] == (2, "it refuses connections")
    assert (frame.since, frame.spared) == ({"u3:80": 1234.568}, ["u3:80"])
    assert (await one.make()).spared == ["u3:80"]
    one.live(3).spared = ""
    frame = await one.make()
    assert (frame.since, frame.spared) == ({}, [])


async def test_one_that_is_stuck_is_told_as_such_ejected_or_not_but_not_while_it_is_tried() -> None:
    one = One(5)
    for number in range(5):
        one.live(number).stuck = number > 0
    one.live(1).spared, one.live(2).available, one.live(3).on_probation = "it hangs", False, True
    assert (await one.make()).stuck == ["u1:80", "u2:80"]


async def test_since_when_a_route_and_redis_are_in_trouble_is_told_where_it_is_known() -> None:
    one = One(1)
    one.mirror.update({"/p": RouteRecord(frozenset(), {"retries": "x"}), "/q": RouteRecord(frozenset(), {})}, {})
    one.mirror.table.routes["/p"].empty_since, one.mirror.table.routes["/q"].empty_since = 0.0, 1234.5678
    one.mirror.effective.faults_since["/p"] = 2345.6789
    one.metrics.redis.polling_since = 99.5
    frame = await one.make()
    assert (frame.empty_since, frame.faults_since) == ({"/q": 1234.568}, {"/p": 2345.679})
    assert frame.instance["polling_since"] == 99.5


async def test_an_upstream_that_has_left_is_nothing() -> None:
    one = One(3)
    one.live(1).inflight = 1
    await one.make()
    one.mirror.update({"/p": RouteRecord(frozenset(["u0:80"]), {})}, {})
    assert (await one.make()).upstreams == {"u1:80": (0, "", 0, 0, 0.0, 0.0, 0.0)}


def test_rounds_that_cost_more_come_less_often() -> None:
    pace = Pace()
    assert pace.period == PERIOD

    def cost(seconds: float) -> Slices:
        times = iter([0.0, seconds])
        return Slices(lambda: next(times))

    for _ in range(40):
        pace.round(cost(0.001))
    assert pace.period == PERIOD
    for _ in range(40):
        pace.round(cost(0.027))
    assert 2.9 < pace.period < 3.1
    for _ in range(40):
        pace.round(cost(5.0))
    assert pace.period == 15.0
