"""What does not go by the ring goes to the fallback URL."""

from random import Random

import pytest

from slb.client import CallRefused, Session
from slb.errors import ConfigError
from tests.client.conftest import Upstreams
from tests.client.rig import asked, live


async def test_the_off_switch_works_while_calls_are_made(upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=fallback.url) as session:
        for enabled in (True, False, True, False):
            session.enabled = enabled
            assert await asked(session, ["/x?y"] * 3) == {200: 3}
    assert (upstream.seen, fallback.seen) == (["/x?y"] * 6, ["/x?y"] * 6)


@pytest.mark.parametrize(("percentage", "expected"), [(0, 0), (1, 10), (50, 500), (99.5, 995), (100, 1000)])
async def test_a_percentage_of_the_calls_goes_by_the_ring(
    upstreams: Upstreams, percentage: float, expected: int
) -> None:
    """A thousand calls, seeded; within four standard deviations."""
    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=fallback.url, rng=Random(7)) as session:
        session.percentage = percentage
        assert await asked(session, ["/x"] * 1000) == {200: 1000}
    assert len(upstream.seen) + len(fallback.seen) == 1000
    assert abs(len(upstream.seen) - expected) <= 4 * (1000 * percentage / 100 * (1 - percentage / 100)) ** 0.5


async def test_latency_and_errors_of_both_ways_are_counted_apart(upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=fallback.url) as session:
        await asked(session, ["/x"] * 3)
        session.enabled = False
        await asked(session, ["/x"] * 2)
        metrics = session.metrics
        assert (metrics.ring.requests, metrics.fallback.requests) == ({200: 3}, {200: 2})
        assert [sum(each.durations.counts) for each in (metrics.ring, metrics.fallback)] == [3, 2]
        assert metrics.fallbacks == {"percentage": 2}
        assert metrics.percentage() == 0


async def test_a_route_whose_cap_the_fleet_counts_is_left_to_the_fallback(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    with pytest.raises(ConfigError, match="max_inflight"):
        Session(upstreams=[upstream.member], settings={"max_inflight": 3})


async def test_a_policy_that_fails_does_not_fail_the_call(upstreams: Upstreams) -> None:
    class Broken:
        greedy = False
        ring = None

        def pick(self, *_: object) -> None:
            raise ZeroDivisionError

    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=fallback.url) as session:
        session.table.routes["/"].policy = Broken()  # type: ignore[assignment]
        assert await asked(session, ["/x"]) == {200: 1}
        assert session.metrics.fallbacks == {"routing_failed": 1}
        assert [each.inflight for each in live(session)] == [0]


async def test_upstreams_that_are_all_draining_leave_it_to_the_fallback(upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=fallback.url) as session:
        assert await asked(session, ["/x"]) == {200: 1}
        route = session.table.routes["/"]
        route.upstreams = ()
        route.refresh()
        assert await asked(session, ["/x"]) == {200: 1}
        assert session.metrics.fallbacks == {"no_upstream": 1}


async def test_without_a_fallback_the_refusal_has_a_name(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        route = session.table.routes["/"]
        route.upstreams = ()
        route.refresh()
        with pytest.raises(CallRefused, match="no_upstream") as raised:
            await session.get("/x")
        reason = raised.value.reason
        assert (reason.name, reason.status, reason.retry_after) == ("no_upstream", 503, 1)
        assert raised.value.status == 503
        assert session.outbound == 0


async def test_what_cannot_be_set_leaves_what_was_set() -> None:
    session = Session(upstreams=["127.0.0.1:1"], fallback="http://127.0.0.1:2", percentage=30)
    for value in (130, -1, float("nan"), "50", True, None):
        with pytest.raises(ConfigError, match="percentage = "):
            session.percentage = value  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="enabled = "):
        session.enabled = 1  # type: ignore[assignment]
    assert (session.percentage, session.enabled) == (30, True)


async def test_without_a_fallback_nothing_can_be_switched_off() -> None:
    session = Session(upstreams=["127.0.0.1:1"])
    with pytest.raises(ConfigError, match="set fallback"):
        session.percentage = 99
    with pytest.raises(ConfigError, match="set fallback"):
        session.enabled = False
    assert (session.percentage, session.enabled) == (100, True)
