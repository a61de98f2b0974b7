"""An upstream that stands still: caches, the load, and what is told of it."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.figures.caches import HIT, HIT_SECONDS, MISS, MISS_SECONDS, CachingUpstream
from bench.figures.frozen import busiest, stopped
from bench.figures.frozen_case import Case, Freeze, section
from bench.figures.open_loop import Fetched, Plan, send
from bench.figures.traffic import NO_REPLY, NOT_CONNECTED
from bench.http import free_ports
from bench.lab.keys import ZipfKeys
from bench.processes import Running
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

FREEZE = Freeze(100.0, 103.0, 8001)


class Cache:
    """A caching upstream whose time does not pass, and what it answered after how long."""

    def __init__(self, capacity: int) -> None:
        self.answers: list[tuple[float, bytes]] = []
        self._seconds = 0.0
        self._upstream = CachingUpstream("8001", capacity, self._later)

    def ask(self, *paths: bytes) -> list[tuple[float, bool]]:
        """For each, how long it takes and whether it was there."""
        first = len(self.answers)
        for path in paths:
            self._upstream.take(path, lambda reply: self.answers.append((self._seconds, reply)))
        return [(seconds, HIT in reply) for seconds, reply in self.answers[first:]]

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._seconds = seconds
        callback()


def test_what_was_asked_for_last_is_a_hit_and_the_rest_a_miss() -> None:
    slow, fast = (MISS_SECONDS, False), (HIT_SECONDS, True)
    assert Cache(2).ask(b"/a", b"/b", b"/a", b"/c", b"/b", b"/c") == [slow, slow, fast, slow, slow, fast]


def test_a_reply_says_whose_it_is_and_where_it_is_from() -> None:
    cache = Cache(1)
    cache.ask(b"/a")
    reply = cache.answers[0][1]
    assert MISS in reply
    assert Fetched.of(1.0, 200, reply).upstream == 8001


def seen(due: float, seconds: float = 0.002, status: int = 200, hit: bool = True, port: int = 8001) -> Fetched:
    return Fetched(due, due + seconds, status, hit, port)


CALM = [seen(97.0), seen(98.0, port=8002), *(seen(100.5) for _ in range(100)), seen(104.0, hit=False)]


def case(*more: Fetched, name: str = "effective") -> Case:
    return Case.of(name, [*CALM, *more], FREEZE)


def missed(one: Case) -> list[str]:
    return [figure.what for figure in section(one, 3.0).figures if figure.met is False]


def test_all_goals_are_met_by_a_run_without_fault() -> None:
    assert missed(case()) == []


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ([seen(101.0, 2.0)] * 3, "slower than 1 s"),
        ([seen(101.0, status=502)], "failed"),
        ([seen(101.0, status=NO_REPLY)], "failed"),
    ],
)
def test_each_goal_is_missed_by_one_fault(more: Sequence[Fetched], what: str) -> None:
    assert missed(case(*more)) == [what]


def test_signals_without_a_goal_are_only_told() -> None:
    assert missed(case(seen(101.0, 2.0), seen(101.0, status=502), name="off")) == []


def test_requests_belong_to_the_stretch_in_which_they_were_due() -> None:
    one = case(seen(99.99, 4.0), seen(100.0), seen(102.99), seen(103.0))
    assert (one.before.requests, one.during.requests, one.after.requests) == (3, 102, 2)
    assert one.caught == 1


def test_those_at_the_frozen_one_before_are_counted_for_it() -> None:
    assert case().share == 50.0


def test_what_was_slow_or_failed_is_kept_with_its_time_since_the_freeze_began() -> None:
    slow, failed = seen(101.0, 1.5), seen(102.0, status=502)
    assert [each.due for each in case(slow, failed).bad] == [1.0, 2.0]


def test_nothing_begun_during_the_freeze_is_no_figure_rather_than_a_good_one() -> None:
    assert missed(Case.of("effective", [seen(97.0)], FREEZE)) == ["slower than 1 s"]


def test_the_busiest_has_the_keys_that_are_asked_for_most() -> None:
    ports = (8001, 8002, 8003)
    zipf = ZipfKeys(100, 3.0, Random(1))  # so steep that the first key decides
    ring = Ring.of(LiveUpstream(Upstream.of(f"127.0.0.1:{port}")) for port in ports)
    assert busiest(ports, zipf) == ring.pick(zipf.keys[0]).spec.port


async def test_requests_are_sent_when_they_are_due_whether_or_not_others_were_answered() -> None:
    go_on = asyncio.Event()
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if len(heads) == 3:
            go_on.set()  # none is answered before all are there
        await go_on.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n%b\r\nX-Upstream: 7\r\n\r\nok" % HIT)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        begin = time.monotonic()
        found = await send(Plan(port, begin, [0.0, 0.001, 0.002], ["/a", "/b", "/c"], 10.0))
    assert sorted(head.split()[1] for head in heads) == [b"/a", b"/b", b"/c"]
    assert sorted(each.due for each in found) == [begin, begin + 0.001, begin + 0.002]
    assert {(each.status, each.hit, each.upstream) for each in found} == {(200, True, 7)}


async def test_who_cannot_connect_has_no_reply_and_no_upstream() -> None:
    (port,) = free_ports(1)
    (one,) = await send(Plan(port, time.monotonic(), [0.0], ["/a"], 1.0))
    assert replace(one, due=0.0, ended=0.0) == Fetched(0.0, 0.0, NOT_CONNECTED, False, 0)


def test_a_process_that_was_stopped_runs_again(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            begun, ended = stopped(Running(process, tmp_path), 0.01)
            assert ended > begun
            process.send_signal(signal.SIGTERM)  # a process that is stopped would not heed it
            assert process.wait(10.0) == -signal.SIGTERM
        finally:
            process.kill()
