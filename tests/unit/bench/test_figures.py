"""Figures, their goals, and what goes into them."""

import asyncio
import math
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from itertools import pairwise

import pytest
import uvloop
from rich.console import Console

from bench.figures import register, routes
from bench.figures.routes import Heartbeat, Held
from bench.table import Figure, Section, percentile, short
from bench.traffic import NO_REPLY, NOT_CONNECTED, Answer, KeptAlive, Tally, Traffic
from slb.control.keys import path_of, route_key
from slb.names import normal_member
from tests.support.valkey import Valkey
from tests.support.waiting import patience, soon

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("x", 20, at_most=20), True),
        (Figure("x", 20.1, at_most=20), False),
        (Figure("x", 20, below=20), False),
        (Figure("x", 19.9, below=20), True),
        (Figure("x", math.nan, below=20), False),
        (Figure("x", 1), None),
    ],
)
def test_a_goal_is_met_up_to_its_bound_or_below_it(figure: Figure, met: bool | None) -> None:
    assert figure.met is met


def test_a_section_shows_value_goal_and_verdict() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(Section("a", [Figure("first sync", 3.25, "s", below=3)]).table())
    assert capture.get().split()[-8:] == ["first", "sync", "3.25", "s", "below", "3", "s", "MISSED"]


def test_a_section_of_rows_shows_them() -> None:
    section = Section("a", (), ["noted"], ("pods", "ms"), [["one", "1.00"], ["two", "2.00"]], dim=1)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(section.table())
    assert [line.split() for line in capture.get().splitlines()[2:]] == [["one", "1.00"], ["two", "2.00"]]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1), (0.991, 100)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == value
    assert short(percentile([], share)) == "-"


def test_a_tally_counts_latency_from_when_a_request_was_due() -> None:
    tally = Tally.of([Answer(1.0, 1.004, 200), Answer(1.002, 3.002, 503), Answer(1.004, 6.004, 0)])
    assert (tally.requests, tally.failed, round(tally.max_ms)) == (3, 2, 5000)


@asynccontextmanager
async def serving(replies: int) -> AsyncIterator[tuple[int, list[int]]]:
    """A server that closes each connection after so many replies: its port, and how many each connection had."""
    had: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        had.append(0)
        mine = len(had) - 1
        for _ in range(replies):
            await reader.readuntil(b"\r\n\r\n")
            had[mine] += 1
            writer.write(REPLY)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], had


async def test_a_kept_alive_connection_is_used_again() -> None:
    async with serving(replies=3) as (port, had):
        target = KeptAlive(port, "/")
        assert [await target.ask() for _ in range(3)] == [200, 200, 200]
        assert had == [3]
        target.close()


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    async with serving(replies=1) as (port, had):
        target = KeptAlive(port, "/")
        assert list(await asyncio.gather(target.ask(), target.ask())) == [200, 200]
        assert had == [1, 1]
        target.close()


async def test_a_connection_that_closes_without_a_reply_is_no_reply() -> None:
    async with serving(replies=0) as (port, _):
        assert await KeptAlive(port, "/").ask() == NO_REPLY


async def test_a_connection_whose_reply_is_late_is_left() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            await reader.read()
        left.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        target = KeptAlive(server.sockets[0].getsockname()[1], "/", patience=0.05)
        assert await target.ask() == NO_REPLY
        await soon(left.wait())


def test_no_two_routes_of_a_large_table_have_an_upstream_in_common() -> None:
    members = [member for number in range(300) for member in routes.members_of(number, 10)]
    assert len(set(members)) == 3000
    assert all(normal_member(member) == member for member in members)


def test_a_large_table_is_written_under_the_keys_slb_reads(valkey: Valkey) -> None:
    routes.write_table(valkey.admin, 501, 2)
    path = routes.path_of(500)
    assert path_of(routes.set_of(path)) == path
    assert valkey.admin.smembers(route_key(path)) == set(routes.members_of(500, 2))
    assert valkey.admin.dbsize() == 501


def test_a_heartbeat_shows_how_long_the_loop_was_held() -> None:
    async def held_for(seconds: float) -> tuple[Held, Held]:
        heartbeat = Heartbeat()
        await asyncio.sleep(0.01)
        heartbeat.take()
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0.01)
        held, after = heartbeat.take(), heartbeat.take()
        heartbeat.stop()
        return held, after

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        held, after = runner.run(held_for(0.05))
    assert held.cpu >= 50
    assert held.late >= 48
    assert after == Held()


def test_the_goal_for_a_held_loop_is_for_the_longest_of_all_resyncs() -> None:
    stretches = [Held(9.0, 4.0), Held(3.0, 5.5), Held(2.0, 1.0)]
    cpu, late_median, late_most = routes.held_figures("resync", stretches, 5.0)
    assert (cpu.value, cpu.met, late_median.value, late_most.value) == (5.5, False, 3.0, 9.0)
    assert routes.held_figures("idle", stretches, None)[0].met is None


def test_the_goal_for_registrations_is_for_their_99th_percentile() -> None:
    tries = [(float(each), each + 1.0) for each in range(1, 201)]
    served = {figure.what: figure for figure in register.section(tries).figures}["served by the other, p99"]
    assert (served.value, served.met) == (198.0, False)


def test_traffic_keeps_its_rate_whatever_the_replies() -> None:
    with Traffic([1], "/", rate=200) as traffic:
        deadline = time.monotonic() + patience(20)
        while len(traffic.answers) < 20 and time.monotonic() < deadline:
            time.sleep(0.005)
    dues = sorted(answer.due for answer in traffic.answers)
    pauses = {round(later - sooner, 6) for sooner, later in pairwise(dues)}
    assert pauses == {0.005}
    assert {answer.status for answer in traffic.answers} == {NOT_CONNECTED}


def test_traffic_tries_the_next_port_where_none_listens_only_if_that_is_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        ports = [bound.getsockname()[1], listening.getsockname()[1]]
        answering = threading.Thread(target=_answer_all, args=(listening,), daemon=True)
        answering.start()
        with Traffic(ports, "/", rate=200, tries_others=True) as traffic:
            time.sleep(0.2)
        assert {answer.status for answer in traffic.answers} == {200}


def _answer_all(listening: socket.socket) -> None:
    with suppress(OSError):
        while True:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
