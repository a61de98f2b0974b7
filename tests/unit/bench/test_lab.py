"""The lab of the ring: simulated time, keys, caches, upstreams and batches; and small runs of its experiments."""

from collections import Counter
from random import Random

import pytest

from bench.lab.experiments import (
    AFFINITIES,
    ALONE,
    BRAKED,
    EFFECTIVE,
    MIXED,
    PLAIN,
    TIGHT,
    UNBRAKED,
    UNEVEN,
    occupied,
    zoned,
)
from bench.lab.fade_in import SHAPE, scaled_up
from bench.lab.model import Answers, Fleet, Schedule, Server, Shape, ZipfKeys, member, view, walked
from slb.model import RouteSettings

KEY = b"/products/1"


def test_things_happen_in_order_of_time_and_equals_as_they_were_scheduled() -> None:
    schedule, seen = Schedule(), list[tuple[str, float]]()
    for name, when in (("d", 5.5), ("c", 2.0), ("a", 1.0), ("b", 1.0)):
        schedule.at(when, lambda name=name: seen.append((name, schedule.now)))  # type: ignore[misc]
    schedule.at(4.0, lambda: schedule.at(4.5, lambda: seen.append(("of c", schedule.now))))
    schedule.run(5.0)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0), ("of c", 4.5)]
    assert schedule.now == 5.0


def test_the_k_th_key_is_drawn_in_proportion_to_one_over_k() -> None:
    """Within five standard deviations."""
    keys, count = ZipfKeys(100, Random(1)), 50_000
    drawn, whole = Counter(keys.draw() for _ in range(count)), sum(1 / rank for rank in range(1, 101))
    for rank in (1, 2, 10, 100):
        share = 1 / rank / whole
        assert abs(drawn[keys.keys[rank - 1]] - count * share) < 5 * (count * share * (1 - share)) ** 0.5


def served(server: Server, schedule: Schedule, *keys: bytes) -> list[tuple[float, bool]]:
    """When each answer came, and whether it was a hit, of requests that come at once; filled as time passes."""
    seen: list[tuple[float, bool]] = []
    for key in keys:
        server.serve(key, lambda hit: seen.append((round(schedule.now, 9), hit)))
    return seen


def test_a_miss_takes_a_hundred_milliseconds_a_hit_one_and_a_request_during_the_read_reads_too() -> None:
    schedule = Schedule()
    server = Server(schedule, 10)
    first = served(server, schedule, b"a")
    schedule.run(0.05)
    during = served(server, schedule, b"a")
    schedule.run(1.0)
    after = served(server, schedule, b"a")
    schedule.run(2.0)
    assert (first, during, after) == ([(0.1, False)], [(0.15, False)], [(1.001, True)])


def test_the_longest_unasked_is_forgotten_first() -> None:
    schedule = Schedule()
    server = Server(schedule, 2)
    for key in (b"a", b"b"):
        server.keep(key)
    served(server, schedule, b"a")
    schedule.run(1.0)
    served(server, schedule, b"c")
    schedule.run(2.0)
    assert list(server.cache) == [b"a", b"c"]


def test_beyond_the_slots_requests_wait_their_turn_and_are_present_meanwhile() -> None:
    schedule = Schedule()
    server = Server(schedule, 10, slots=1)
    seen = served(server, schedule, b"a", b"b", b"a")
    schedule.run(0.05)
    assert server.present == 3
    assert server.occupied() == pytest.approx(0.15)
    schedule.run(1.0)
    assert seen == [(0.1, False), (0.2, False), (0.201, True)]
    assert server.present == 0
    assert server.occupied() == pytest.approx(0.1 + 0.2 + 0.201)


def test_waiting_before_one_slot_is_what_queueing_theory_predicts() -> None:
    """Pollaczek and Khinchine: of Poisson arrivals before one slot with a fixed time s, used to the part r, the
    mean wait is r s / 2 (1 - r). Half used: half a service time; of 50,000 the mean is within 6 %. By Little's law
    the mean time of a request is the seconds of requests present, by the number of requests."""
    schedule, rng, count, at = Schedule(), Random(7), 0, 0.0
    server = Server(schedule, 1, slots=1)
    server.keep(KEY)
    while (at := at + rng.expovariate(500.0)) < 100:
        schedule.at(at, lambda: server.serve(KEY, lambda hit: None))
        count += 1
    schedule.run(200.0)
    assert server.occupied() / count - 0.001 == pytest.approx(0.0005, rel=0.06)


def test_a_batch_goes_out_at_one_instant_from_one_client_and_no_two_keys_are_alike() -> None:
    fleet = Fleet(Shape(upstreams=1, clients=3, rate=1000.0, fan_out=4, keys=10, cache=10), seed=5)
    (only,) = view([0])
    sent: list[tuple[int, float, bytes]] = []
    for number in range(3):
        fleet.add_client(lambda key, number=number: sent.append((number, fleet.schedule.now, key)) or only)  # type: ignore[misc, func-returns-value]
    fleet.begin(4.0)
    fleet.schedule.run(10.0)
    batches = Counter((number, at) for number, at, _ in sent)
    assert set(batches.values()) == {4}
    assert len(set(sent)) == len(sent)
    assert max(at for _, at in batches) <= 4.0
    clients = Counter(number for number, _ in batches)
    assert all(200 < clients[number] < 470 for number in range(3)), "a third of 1,000, within nine deviations"
    assert fleet.servers[member(0)].present == only.inflight == 0
    whole = fleet.between(0, 10)
    assert (whole.requests, whole.reads) == (len(sent), whole.requests - whole.hits)
    assert fleet.between(8, 9) == Answers(0, 0)


def test_the_same_seed_gives_the_same_figures_with_the_whole_policy() -> None:
    runs = []
    for seed in (1, 1, 2):
        fleet = Fleet(Shape(upstreams=4, clients=1, rate=400.0, fan_out=1, keys=200, cache=200), seed)
        settings = RouteSettings(policy="consistent_hash", balance_factor=1.25)
        policy = fleet.add_policy(view(range(4)), settings, 0)
        fleet.begin(5.0)
        fleet.schedule.run(5.0)
        runs.append(([fleet.between(each, each + 1) for each in range(5)], policy.counts.distances))
    assert runs[0] == runs[1] != runs[2]


def test_those_that_walked_are_a_part_of_all_requests() -> None:
    assert walked(Counter({0: 90, 1: 8, 4: 2})) == pytest.approx(0.1)
    assert walked(Counter()) == 0


def test_without_a_fade_in_all_is_cold_at_once() -> None:
    none, ours = (scaled_up(SHAPE.scaled(0.05), 2, 1, fades) for fades in (False, True))
    assert none.kept < 0.92 < 0.95 < ours.kept
    assert none.peak > 2 * ours.peak


def test_effective_load_evens_out_what_in_flight_cannot_see() -> None:
    shape = UNEVEN.scaled(0.5)
    alone, tight, ours = (occupied(MIXED, each, shape, 0.5, seed=1) for each in (ALONE, TIGHT, EFFECTIVE))
    assert ours.spread < 0.7 * alone.spread
    assert ours.spread < 0.5 * tight.spread
    assert alone.walked == 0 < min(tight.walked, ours.walked)
    for each in (alone, tight, ours):
        assert each.low <= each.average <= each.high
        assert alone.hit_rate >= each.hit_rate
        assert each.reads == pytest.approx(shape.rate * (1 - each.hit_rate), rel=0.05)


def test_a_zone_takes_over_where_it_is_on_and_nothing_brakes_it() -> None:
    plain, braked, unbraked = (zoned(AFFINITIES[each], 2, 15, 2, 1) for each in (PLAIN, BRAKED, UNBRAKED))
    assert plain.share == 0 < braked.share < 0.5 < 0.98 < unbraked.share
    assert plain.walked == 0 < unbraked.walked < 0.2
