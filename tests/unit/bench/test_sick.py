"""Servers of which one falls ill, and what is made of their logs."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.peers import Peer, Site
from bench.ports import free_ports
from bench.sending import Result
from bench.sick.case import KINDS, SHAPES, Case, Times, made_case
from bench.sick.command import BALANCERS
from bench.sick.findings import Finding, Standings, found
from bench.sick.measure import Sickness, Stretch, back_after, left_out, left_out_after
from bench.sick.servers import BUSY_SECONDS, EVENT, FLAP_SECONDS, GARBAGE, STREAM_END, Place, Server, Visit
from bench.timers import Timers
from tests.support.waiting import eventually, soon

SICKNESS = Sickness(0, 100.0, 120.0, fair=6.0)  # a tenth of the fair share of 5 s is 3 requests


def evenly(begin: float, end: float, rate: float) -> list[float]:
    return [begin + number / rate for number in range(round((end - begin) * rate))]


class Clock:
    """A clock that is set, and timers that fire where it is moved past them."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, callback: Callable[[], None]) -> None:
        self._timers.append((when, callback))

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._timers if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._timers.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


class Asked:
    """A server with a set clock; what each request has been answered so far."""

    def __init__(self, slots: int = 1) -> None:
        self.clock = Clock()
        self.server = Server("s", slots, self.clock.at, Random(1), self.clock)

    def ask(self, path: str = "/", seconds: float = 1.0) -> list[bytes]:
        pieces = list[bytes]()
        self.gone = self.server.take(path.encode(), seconds, pieces.append)
        return pieces


def statuses(asked: Sequence[Sequence[bytes]]) -> list[str]:
    return [pieces[0].split()[1].decode() if pieces else "" for pieces in asked]


# -- the servers


def test_a_server_has_slots_and_a_line_and_notes_when_each_request_came_began_and_ended() -> None:
    asked = Asked(slots=2)
    requests = [asked.ask(seconds=2), asked.ask(seconds=3), asked.ask(seconds=1)]
    asked.clock.move(2.5)
    assert statuses(requests) == ["200", "", ""]
    asked.clock.move(0.5)
    assert statuses(requests) == ["200", "200", "200"]
    assert asked.server.visits == [Visit(100, 100, 102), Visit(100, 100, 103), Visit(100, 102, 103)]


def test_who_leaves_the_line_is_not_served_and_who_leaves_later_is() -> None:
    asked = Asked()
    asked.ask()
    assert asked.gone is not None
    asked.gone()
    asked.ask()
    asked.gone()
    asked.clock.move(5)
    assert asked.server.visits == [Visit(100, 100, 101), Visit(100, None, 101)]


@pytest.mark.parametrize(("kind", "seconds"), [("slow5", 5), ("slow20", 20)])
def test_a_slow_server_takes_so_many_times_as_long(kind: str, seconds: float) -> None:
    asked = Asked()
    asked.server.fall_ill(kind)
    asked.ask()
    asked.clock.move(60)
    assert asked.server.visits == [Visit(100, 100, 100 + seconds)]


def test_an_ill_server_fails_at_once_or_never_answers_while_its_health_path_does() -> None:
    asked = Asked()
    answers = dict[str, list[bytes]]()
    for kind in ("500", "hang", "garbage"):
        asked.server.fall_ill(kind)
        answers[kind] = asked.ask()
        answers[f"{kind} health"] = asked.ask("/health")
    assert statuses([answers["500"], answers["hang"]]) == ["500", ""]
    assert statuses([answers["500 health"], answers["hang health"]]) == ["200", "200"]
    assert answers["garbage"] == answers["garbage health"] == [GARBAGE, b""]
    assert len(asked.server.visits) == 3, "checks are no requests"
    for _ in range(2):
        asked.server.get_well()
    assert answers["hang"] == [b""], "what it never answered ends when it is well"


def test_some_of_the_requests_of_a_failing_server_are_served() -> None:
    asked = Asked(slots=1000)
    asked.server.fall_ill("503")
    failed = statuses([asked.ask() for _ in range(1000)]).count("503")
    assert 250 < failed < 350


def test_a_flapping_server_fails_and_serves_in_turn() -> None:
    asked, answers = Asked(), list[list[bytes]]()
    asked.server.fall_ill("flap")
    for _ in range(3):
        answers.append(asked.ask(seconds=0))
        asked.clock.move(FLAP_SECONDS)
    assert statuses(answers) == ["500", "200", "500"]


def test_a_full_server_says_for_how_long_and_serves_as_many_as_it_has_slots() -> None:
    asked, answers = Asked(), list[list[bytes]]()
    asked.server.fall_ill("full")
    answers.append(asked.ask())
    asked.clock.move(BUSY_SECONDS)
    answers += [asked.ask(seconds=0.1), asked.ask(seconds=0.1)]
    asked.clock.move(0.1)
    assert statuses(answers) == ["503", "200", "503"]
    assert b"Retry-After: 1\r\n" in answers[0][0]


def test_a_stream_comes_in_events_and_is_cut_in_its_middle_where_the_server_is_ill() -> None:
    asked = Asked()
    whole = asked.ask("/stream")
    asked.clock.move(1)
    asked.server.fall_ill("cut")
    cut = asked.ask("/stream")
    asked.clock.move(1)
    assert b"".join(whole).count(EVENT) == 4
    assert whole[-1].endswith(STREAM_END)
    assert cut[: cut.index(b"")] == [whole[0], EVENT, EVENT]


@asynccontextmanager
async def place() -> AsyncIterator[tuple[Place, int]]:
    (port,) = free_ports(1)
    timers = Timers(asyncio.get_running_loop())
    made = Place(Server("s", 1, timers.at, Random(1)), port)
    await made.listen()
    try:
        yield made, port
    finally:
        await made.fall_ill("refuse")
        timers.close()


async def test_the_connection_ends_after_what_is_no_http() -> None:
    async with place() as (made, port):
        await made.fall_ill("garbage")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await soon(reader.read()) == GARBAGE
        writer.close()
        await soon(writer.wait_closed())


async def test_a_server_that_refuses_cuts_its_connections_and_listens_again_when_it_is_well() -> None:
    async with place() as (made, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nX-Service-Time: 600\r\n\r\n")
        await eventually(lambda: bool(made.server.visits))
        await made.fall_ill("refuse")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await soon(reader.readexactly(1))
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await made.get_well()
        _, again = await asyncio.open_connection("127.0.0.1", port)
        await made.fall_ill("refuse")
        for each in (writer, again):
            each.close()
            with suppress(ConnectionError):  # as it has been cut
                await soon(each.wait_closed())


# -- the rules


def test_a_server_is_left_out_from_its_last_request_on_but_for_a_tenth_of_its_fair_share() -> None:
    until_103 = evenly(95, 103, 6)
    probes = [108.0, 109.0, 110.0, 113.5, 114.0]  # at most three in 5 s
    assert left_out_after(SICKNESS, [*until_103, *probes]) == pytest.approx(3, abs=0.2)
    assert left_out_after(SICKNESS, [*until_103, *probes, 114.5]) == pytest.approx(14.5)


def test_a_server_is_not_left_out_where_the_rest_of_its_sickness_is_too_short_to_see_that() -> None:
    assert left_out_after(SICKNESS, evenly(95, 115.5, 6)) is None
    assert left_out_after(SICKNESS, evenly(95, 114.5, 6)) is not None


def test_a_server_that_hangs_is_left_out_where_it_gets_probes_alone() -> None:
    hangs = replace(SICKNESS, hangs=True)
    assert left_out_after(hangs, [101.0, 106.5, 112.0]) == 0
    assert left_out_after(hangs, [101.0, 106.5, 107.0, 112.5]) == pytest.approx(7)


def test_a_server_that_got_nothing_was_left_out_at_once() -> None:
    assert left_out_after(SICKNESS, evenly(95, 99, 6)) == 0


def test_a_server_is_back_with_half_of_its_fair_share() -> None:
    probes, slowly = [120.5, 122.0], evenly(124, 130, 2.5)
    assert back_after(SICKNESS, [*probes, *slowly]) is None
    assert back_after(SICKNESS, [*probes, *evenly(124, 130, 3.1)]) == pytest.approx(4)


def log(begin: float, end: float, rate: float = 6.0, service: float = 0.1) -> list[Visit]:
    return [Visit(at, at, at + service) for at in evenly(begin, end, rate)]


def test_a_healthy_server_without_requests_for_three_seconds_is_wrongly_left_out() -> None:
    others = [log(100, 120)] * 7
    (stretch,) = left_out([*others, log(100, 108) + log(112, 120)], 100, 120)
    assert stretch.server == 7
    assert [stretch.begin, stretch.end] == pytest.approx([108, 112], abs=0.5)
    assert left_out([*others, log(100, 108) + log(109.5, 120)], 100, 120) == []


def test_a_server_that_works_off_a_long_request_is_not_left_out() -> None:
    others, long = [log(100, 120)] * 7, Visit(108, 108, 112)
    assert left_out([*others, [*log(100, 108), long, *log(112, 120)]], 100, 120) == []


def test_at_a_low_rate_a_server_is_left_out_only_where_chance_would_not_do_that() -> None:
    others = [log(100, 160, rate=1)] * 7
    assert left_out([*others, log(100, 110, rate=1) + log(118, 160, rate=1)], 100, 160) == []
    assert len(left_out([*others, log(100, 110, rate=1) + log(130, 160, rate=1)], 100, 160)) == 1


# -- what is made of them


def case(kind: str, server: int = 0) -> Case:
    """50 requests a second for 40 s; the server is ill from 10 s to 30 s."""
    arrivals = evenly(0, 40, 50)
    return Case(kind, 1, Times(10, 20, 10), arrivals, [""] * len(arrivals), [0] * len(arrivals), server)


def judged(kind: str, failed: Sequence[float], sick: Sequence[float], service: float = 0.1) -> Finding:
    """`failed`: when those were due that failed; `sick`: when the ill server got requests, which took `service`.
    Seconds of the load."""
    made = case(kind)
    statuses = [500 if any(abs(at - each) < 0.01 for each in failed) else 200 for at in made.arrivals]
    result = Result(statuses, [0.1] * len(statuses), [0.0] * len(statuses))
    ill = [Visit(1000 + at, 1000 + at, 1000 + at + service) for at in sick]
    return found(made, 1000, result, [ill, *[log(1000, 1040)] * 7])


def test_shares_are_of_the_requests_that_were_due_while_the_server_was_ill() -> None:
    finding = judged("500", [5, 10, 11, 12, 35], [*evenly(0, 12, 6), *evenly(33, 40, 6)])
    assert finding.requests == 1000
    assert [finding.failed, finding.to_sick] == pytest.approx([0.3, 1.2])
    assert finding.out == pytest.approx(1.9, abs=0.1)
    assert finding.back == pytest.approx(3)
    assert finding.wrongly == 0, "the ill one is rightly left out"


def test_what_is_refused_is_seen_by_the_clients_alone() -> None:
    finding = judged("refuse", [10, 10.2, 10.4, 10.6, 10.8], [*evenly(0, 10, 6), *evenly(31, 40, 6)])
    assert [finding.to_sick, finding.out] == pytest.approx([0.5, 0.8])


def test_a_full_server_that_gets_nothing_is_wrongly_left_out_however_busy_it_is() -> None:
    finding = judged("full", [], [*evenly(0, 11, 6), *evenly(28, 40, 6)], service=20)
    assert [each.server for each in finding.wrong] == [0]
    assert judged("full", [], evenly(0, 40, 3)).wrong == []


@pytest.mark.parametrize(("apart", "wrong"), [(1.2, []), (8.0, [0])])
def test_a_full_server_that_asks_to_be_left_alone_is_left_out_for_longer_only_wrongly(
    apart: float, wrong: list[int]
) -> None:
    """It turns away each request that it gets while it is ill."""
    made = case("full")
    result = Result([200] * 2000, [0.1] * 2000, [0.0] * 2000)
    turned_away = [Visit(1010 + at, None, 1010 + at) for at in evenly(0, 20, 1 / apart)]
    ill = [*log(1000, 1010), *turned_away, *log(1030, 1040)]
    finding = found(made, 1000, result, [ill, *[log(1000, 1040)] * 7])
    assert sorted({each.server for each in finding.wrong}) == wrong


def finding(failed: float = 0.0, out: float | None = 1.0, p99: float = 100.0, wrong: int = 0) -> Finding:
    return Finding(1000, failed, 1, out, 2.0, p99, [Stretch(each, 0, 4) for each in range(wrong)], 0)


def goals(kind: str, slb: Finding, other: Finding) -> dict[str, bool | None]:
    findings = {(kind, "slb"): slb, (kind, "envoy"): other}
    section = Standings("", BALANCERS, [case(kind)], findings).section()
    return {figure.what: figure.met for figure in section.figures}


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.out_within == 5])
def test_an_illness_that_shows_at_once_is_to_be_noticed_at_once(kind: str) -> None:
    failed, out, first, wrong = goals(kind, finding(1.9, 5.0), finding(1.9)).values()
    assert (failed, out, first, wrong) == (True, True, True, True)
    assert list(goals(kind, finding(2.0, 5.1, wrong=1), finding(1.9)).values()) == [False] * 4
    assert list(goals(kind, finding(1.9, None), finding(1.9)).values())[2] is False, "it was never left out"


def test_a_server_that_hangs_has_longer_and_a_slow_one_is_judged_by_latency() -> None:
    assert list(goals("hang", finding(3, 40.0), finding(3)).values()) == [True, True, True]
    assert list(goals("slow5", finding(out=8.1, p99=101), finding(1)).values()) == [False, False, True]
    assert list(goals("slow20", finding(out=8.0), finding(1)).values()) == [True, True, True]


def test_a_case_that_could_not_be_measured_misses() -> None:
    standings = Standings("", BALANCERS, [case("500")], {}, {("500", "slb"): "it fell"})
    section = standings.section()
    assert [figure.met for figure in section.figures] == [False]
    assert section.notes == ["500: slb: it fell"]


def test_the_same_seed_is_the_same_work_and_a_trace_gives_the_service_times() -> None:
    made = [made_case("500", SHAPES["1"], Times(1, 2, 3), 50, seed, [1, 3]) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    times = {line for text in made[0].requests for line in text.split("\r\n") if line.startswith("X-Service-Time")}
    assert times == {"X-Service-Time: 0.050000", "X-Service-Time: 0.150000"}
    assert made_case("none", SHAPES["1"], Times(1, 2, 3), 50, 1, []).server is None


@pytest.mark.parametrize(
    "peer", [each.needs for each in BALANCERS if each.settings is None], ids=lambda peer: peer.name
)
def test_every_peer_has_a_configuration_with_all_servers(peer: Peer, tmp_path: Path) -> None:
    ports = tuple(range(9001, 9009))
    argv = peer.command("program", Site(tmp_path, 8000, 8001, ports, "someone"))
    (name,) = peer.configs
    written = (tmp_path / name).read_text()
    assert name.startswith("sick-")
    assert str(tmp_path / name) in argv
    assert not re.search(r"@\w+@", written)
    assert {"8000", *map(str, ports)} <= set(re.findall(r"\d+", written))
