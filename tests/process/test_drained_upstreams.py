"""`slb drain` of upstreams: what the whole fleet has in flight there, the wait for its end, and what is left."""

import asyncio
import os
import signal
from typing import Any

import pytest

from tests.process.commands import Commands, Result, Serving
from tests.process.serving import in_flight, until_all_ready
from tests.support.valkey import Valkey
from tests.support.waiting import patience, soon


@pytest.fixture
async def two(slb: Commands, valkey: Valkey, origin: str) -> tuple[Serving, Serving]:
    """Two instances, and the origin as the one upstream of /p."""
    valkey.admin.sadd("slb_p", origin)
    one, other = [await slb.serve("--name", name, redis=valkey.url) for name in ("one", "other")]
    for serving in (one, other):
        await slb.until_status(f"{serving.url}/p/ok", 200)
        await slb.until_json(f"{serving.api}/instances", lambda found: len(found["instances"]) == 2)
    return one, other


def stream(slb: Commands, serving: Serving) -> asyncio.Task[tuple[int, str]]:
    """One that lasts until the origin is told to go on."""
    return asyncio.create_task(slb.get(f"{serving.url}/p/stream"))


async def drain(slb: Commands, serving: Serving, *arguments: str) -> Result:
    return await slb.run("drain", *arguments, "--url", serving.api, timeout=patience(60))


async def until_fleet(slb: Commands, serving: Serving, member: str, **figures: Any) -> None:
    """Wait until the fleet's answer about an upstream has these."""
    await slb.until_json(
        f"{serving.api}/fleet/upstreams/{member}", lambda found: figures.items() <= found.items(), timeout=60
    )


async def test_it_shows_what_the_whole_fleet_has_in_flight(
    slb: Commands, two: tuple[Serving, Serving], origin: str
) -> None:
    one, other = two
    streams = [stream(slb, other) for _ in range(3)]
    await in_flight(slb, other, 3)
    await until_fleet(slb, one, origin, inflight=3, instances={"other": 3}, unknown=[], drain=False, empty=False)
    result = await drain(slb, one, origin, "--yes")
    assert result.out.startswith(f"{origin}: is sent nothing new, 3 in flight in the fleet")
    for each in streams:
        each.cancel()


async def test_it_waits_until_nothing_is_in_flight_anywhere(
    slb: Commands, two: tuple[Serving, Serving], origin: str
) -> None:
    one, other = two
    streams = [stream(slb, other), stream(slb, one)]
    for serving in two:
        await in_flight(slb, serving, 1)
    waiting = asyncio.create_task(drain(slb, one, origin, "--yes", "--wait"))
    await until_fleet(slb, one, origin, drain=True, unaware=[], inflight=2, instances={"one": 1, "other": 1})
    assert not waiting.done()
    await slb.get(f"http://{origin}/p/go-on")
    assert [(await soon(each))[0] for each in streams] == [200, 200]
    result = await waiting
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == f"{origin}: is empty: nothing is in flight in the fleet"


async def test_when_the_time_is_over_it_says_what_is_left_and_exits_with_1(
    slb: Commands, two: tuple[Serving, Serving], origin: str
) -> None:
    one, other = two
    lasting = stream(slb, other)
    await in_flight(slb, other, 1)
    result = await drain(slb, one, origin, "--yes", "--wait", "--timeout", "2s")
    assert result.code == 1
    assert f"the time is over: {origin}: " in result.err
    assert "is empty" not in result.out
    lasting.cancel()


async def test_an_instance_that_does_not_answer_is_named_and_not_counted_as_empty(
    slb: Commands, two: tuple[Serving, Serving], origin: str
) -> None:
    one, other = two
    os.kill(other.process.pid, signal.SIGSTOP)
    try:
        result = await drain(slb, one, origin, "--yes", "--wait", "--timeout", "3s")
        assert result.code == 1
        assert "not known of other" in result.err
        # Its beats end, and it is still not forgotten: it may serve on.
        await slb.until_json(f"{one.api}/instances", lambda found: len(found["instances"]) == 1, timeout=30)
        await until_fleet(slb, one, origin, unknown=["other"], inflight=0, empty=False)
    finally:
        os.kill(other.process.pid, signal.SIGCONT)
    result = await drain(slb, one, origin, "--wait")
    assert (result.code, "is empty" in result.out) == (0, True)


async def test_requests_of_workers_are_counted(slb: Commands, valkey: Valkey, origin: str) -> None:
    valkey.admin.sadd("slb_p", origin)
    serving = await slb.until_ready(await slb.serve("--workers", "2", "--name", "box", redis=valkey.url))
    await until_all_ready(slb, serving)
    streams = [stream(slb, serving) for _ in range(2)]
    await until_fleet(slb, serving, origin, inflight=2, unknown=[], unaware=["box/0", "box/1"])
    waiting = asyncio.create_task(drain(slb, serving, origin, "--yes", "--wait"))
    await until_fleet(slb, serving, origin, inflight=2, unaware=[], empty=False)
    await slb.get(f"http://{origin}/p/go-on")
    await soon(asyncio.gather(*streams))
    assert (await waiting).code == 0


async def test_the_last_upstream_of_a_route_is_drained_only_where_that_is_said(
    slb: Commands, two: tuple[Serving, Serving], origin: str
) -> None:
    one, _ = two
    refused = await drain(slb, one, origin)
    assert (refused.code, refused.out) == (1, "")
    assert "/p has no other upstream that takes requests: it would answer 503 (no_upstream)" in refused.err
    assert "--yes" in refused.err
    assert (await slb.json(f"{one.api}/upstreams/{origin}"))["drain"] is False
    await slb.run("register", "/p", "127.0.0.1:9", "--url", one.api)
    together = await drain(slb, one, origin, "127.0.0.1:9")
    assert (together.code, "/p has no other upstream" in together.err) == (1, True)
    alone = await drain(slb, one, "127.0.0.1:9")
    assert (alone.code, alone.err) == (0, "")
    result = await drain(slb, one, origin, "--yes")
    assert result.code == 0
    expected = "slb: /p has no other upstream that takes requests: it answers 503 (no_upstream)\n"
    assert result.err == expected
    again = await drain(slb, one, origin)  # it drains already: this changes nothing
    assert again.code == 0


async def test_a_drain_that_somebody_ends_is_not_waited_for(
    slb: Commands, two: tuple[Serving, Serving], origin: str
) -> None:
    one, other = two
    lasting = stream(slb, other)
    await in_flight(slb, other, 1)
    waiting = await slb.start("drain", origin, "--yes", "--wait", "--url", one.api)
    assert "in flight in the fleet" in await waiting.first_line()
    await slb.run("undrain", origin, "--url", other.api)
    assert await waiting.ended() == 1
    lasting.cancel()


async def test_a_timeout_goes_with_a_wait(slb: Commands) -> None:
    result = await slb.run("drain", "10.0.0.1:80", "--timeout", "1s")
    assert (result.code, result.err) == (2, "slb: --timeout goes with --wait\n")
