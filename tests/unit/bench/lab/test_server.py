"""A simulated upstream: what takes how long, and what it counts of itself."""

import pytest

from bench.lab.model import Occupancies, Schedule, Work
from tests.unit.bench.lab.rig import OneServer, note, server


def test_a_miss_takes_a_hundred_milliseconds_and_a_hit_one() -> None:
    schedule, seen = Schedule(), list[tuple[float, bool]]()
    here = server(schedule)
    here.serve(b"a", note(schedule, seen))
    schedule.run(1.0)
    here.serve(b"a", note(schedule, seen))
    schedule.drain()
    assert seen == [(0.1, False), (1.001, True)]
    assert here.present == 0


def test_who_asks_while_the_read_is_out_reads_too() -> None:
    schedule, seen = Schedule(), list[tuple[float, bool]]()
    here = server(schedule)
    here.serve(b"a", note(schedule, seen))
    schedule.run(0.05)
    here.serve(b"a", note(schedule, seen))
    schedule.drain()
    assert seen == [(0.1, False), (0.15, False)]


def test_beyond_the_slots_requests_wait_their_turn() -> None:
    schedule, seen = Schedule(), list[tuple[float, bool]]()
    here = server(schedule, work=Work(slots=1))
    for key in (b"a", b"b", b"a"):
        here.serve(key, note(schedule, seen))
    assert here.present == 3
    schedule.drain()
    assert seen == [(0.1, False), (0.2, False), (0.201, True)]


def test_occupancy_is_the_seconds_of_requests_present() -> None:
    schedule = Schedule()
    here = server(schedule, work=Work(slots=1))
    occupancies = Occupancies({here.member: here})
    for key in (b"a", b"b"):
        here.serve(key, lambda hit: None)
    schedule.run(0.05)
    assert here.occupied() == pytest.approx(0.1)
    schedule.run(0.5)
    assert here.occupied() == pytest.approx(0.3)  # 100 ms, and another that waited 100 ms before its own
    occupancies.sample(schedule.now)
    assert occupancies.samples == [{here.member: pytest.approx(0.6)}]


def test_waiting_before_one_slot_is_what_queueing_theory_says() -> None:
    """Pollaczek and Khinchine: of Poisson arrivals before one slot with a fixed time s, used to the part r, the
    mean wait is r s / 2 (1 - r). Half used: half a service time; of 50,000 the mean is within 6 %. By Little's law
    the mean time of a request is the seconds of requests present, by the number of requests."""
    lab = OneServer(7, rate=500.0, keys=1, capacity=1, work=Work(hit=0.001, miss=0.001, slots=1))
    lab.run(100.0)
    assert lab.server.present == lab.only.inflight == 0
    wait = lab.server.occupied() / lab.measures.between(0, 101).requests - 0.001
    assert wait == pytest.approx(0.0005, rel=0.06)


def test_the_same_seed_gives_the_very_same_run() -> None:
    runs = [OneServer(seed, rate=200.0, keys=300, capacity=50, work=Work(slots=4)) for seed in (3, 3, 4)]
    for run in runs:
        run.run(5.0)
    first, again, other = (list(run.server.cache) for run in runs)
    assert first == again != other
    assert runs[0].server.occupied() == runs[1].server.occupied() != runs[2].server.occupied()
