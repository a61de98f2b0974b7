"""Killed instances: what their clients and upstreams saw, and what is shown of it."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from bench.figures.kill import (
    DRIFT,
    GOAL_SECONDS,
    LOCAL,
    REAPED,
    Ending,
    Kill,
    counter_in,
    nothing_but,
    present_at,
    section,
    strangers,
)
from bench.figures.present import Clients, PresentUpstream
from bench.traffic import NO_REPLY
from tests.support.waiting import eventually

AT_ONCE = (0.0, 0.0)
SOON = (0.01, 0.02)
NOT_SOON = (600.0, 600.0)
REQUEST = b"GET /p HTTP/1.1\r\nHost: bench\r\n\r\n"
ENDING = Ending(
    answered=100,
    failed={},
    lost=30,
    most=[19, 20],
    highest_score=20,
    counters={DRIFT: 0.0, REAPED: 2.0, LOCAL: 0.0},
    left={},
)
KILLS = [Kill(100, 20, 30, 0.7, 1.5), Kill(98, 24, 26, 3.0, 3.5)]


@asynccontextmanager
async def upstream_taking(seconds: tuple[float, float]) -> AsyncIterator[tuple[PresentUpstream, int]]:
    """One that listens, and its port."""
    upstream = PresentUpstream(Random(1), seconds)
    await upstream.start()
    try:
        yield upstream, int(upstream.member.rpartition(":")[2])
    finally:
        await upstream.stop()
        await eventually(lambda: not upstream.connections)


async def test_an_upstream_has_a_request_until_it_is_answered() -> None:
    async with upstream_taking(AT_ONCE) as (upstream, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
            assert (upstream.present, upstream.most) == (0, 1)
        writer.close()


async def test_an_upstream_no_longer_has_a_request_whose_connection_is_gone() -> None:
    async with upstream_taking(NOT_SOON) as (upstream, port):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(2)]
        for writer in writers:
            writer.write(REQUEST)
        await eventually(lambda: upstream.present == 2)
        assert await present_at([upstream]) == {upstream.member: 2}
        for left, writer in enumerate(reversed(writers)):
            writer.transport.abort()
            await eventually(lambda left=left: upstream.present == 1 - left)  # type: ignore[misc]
        assert (await present_at([upstream]), upstream.most) == ({}, 2)


async def test_clients_keep_their_number_in_flight_and_are_all_answered_in_the_end() -> None:
    async with upstream_taking(SOON) as (upstream, port):
        clients = Clients([port], "/p", 5, Random(1))
        await clients.start()
        await eventually(lambda: clients.answered > 20)
        await clients.stop()
    assert (clients.in_flight, clients.lost, dict(clients.failed), upstream.most) == (0, 0, {}, 5)


async def test_a_request_whose_instance_was_killed_is_lost_and_has_not_failed() -> None:
    async with upstream_taking(NOT_SOON) as (dying, to_dying), upstream_taking(SOON) as (_, to_living):
        clients = Clients([to_dying, to_living], "/p", 8, Random(1))
        await clients.start()
        await eventually(lambda: dying.present == 8, what="all clients at the one that never answers")
        await clients.shut(0)
        await dying.stop()
        await eventually(lambda: clients.lost == 8)
        await clients.stop()
    assert not clients.failed


async def test_a_request_without_an_answer_from_a_living_instance_has_failed() -> None:
    async with upstream_taking(NOT_SOON) as (upstream, port):
        clients = Clients([port], "/p", 1, Random(1))
        await clients.start()
        await eventually(lambda: upstream.present == 1)
        await upstream.stop()
        await eventually(lambda: clients.failed[NO_REPLY] == 1)
        await clients.stop()
    assert clients.answered == clients.lost == 0


def test_all_goals_are_met_by_a_run_without_fault() -> None:
    assert all(figure.met is not False for figure in section(KILLS, ENDING).figures)
    assert not section(KILLS, ENDING).notes


@pytest.mark.parametrize(
    ("kills", "ending"),
    [
        ([*KILLS, replace(KILLS[0], true_again=GOAL_SECONDS + 0.1)], ENDING),
        ([*KILLS, replace(KILLS[0], true_again=math.inf)], ENDING),
        (KILLS, replace(ENDING, counters={**ENDING.counters, DRIFT: 1.0})),
        (KILLS, replace(ENDING, counters={**ENDING.counters, DRIFT: math.nan})),
        (KILLS, replace(ENDING, most=[21, 20])),
        (KILLS, replace(ENDING, highest_score=21)),
        (KILLS, replace(ENDING, failed={503: 1})),
        (KILLS, replace(ENDING, left={"slots": 1})),
    ],
)
def test_each_of_the_goals_is_missed_by_one_fault(kills: list[Kill], ending: Ending) -> None:
    assert [figure.met for figure in section(kills, ending).figures].count(False) == 1


def test_what_failed_and_what_is_left_is_named() -> None:
    failed, left = section(KILLS, replace(ENDING, failed={503: 2, 0: 1}, left={"tickets": 3})).notes
    assert failed.endswith("503: 2, 0: 1")
    assert left.endswith("tickets: 3")


def test_a_counter_is_read_from_metrics_and_one_that_is_missing_is_no_figure() -> None:
    text = f"# HELP {DRIFT} x\n# TYPE {DRIFT} counter\n{DRIFT} 3.0\n{DRIFT}_created 1.7e9\n"
    assert counter_in(text, DRIFT) == 3.0
    assert math.isnan(counter_in(text, LOCAL))


def test_a_holder_is_a_stranger_where_no_living_instance_has_its_name() -> None:
    assert strangers(["a-b-1", "a-b-2", "c-1"], {"a-b"}) == 1


def test_what_is_zero_is_not_left() -> None:
    assert nothing_but({"slots": 0, "grants": 2}) == {"grants": 2}
