"""The lab's engine: simulated time, keys, caches, upstreams and batches."""

from collections import Counter
from random import Random

import pytest

from bench.lab.fleet import ByThroughput, Fleet, MakePolicy, NaiveThreshold, Shape, furthest, member, view, walked
from bench.lab.model import Answers, LruCache, Measures, Schedule, Server, ZipfKeys
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.view import RouteView
from slb.model import RouteSettings

SHAPE = Shape(upstreams=4, clients=1, rate=400.0, fan_out=1, keys=200, cache=200)
KEY = b"/products/1"


def test_things_happen_in_order_of_time_and_equals_as_they_were_scheduled() -> None:
    schedule, seen = Schedule(), list[tuple[str, float]]()
    for name, when in (("d", 5.5), ("c", 2.0), ("a", 1.0), ("b", 1.0)):
        schedule.at(when, lambda name=name: seen.append((name, schedule.clock())))  # type: ignore[misc]
    schedule.run(5.0)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0)]
    assert schedule.now == 5.0
    with pytest.raises(ValueError, match=r"4\.0 is before 5\.0"):
        schedule.at(4.0, lambda: None)


def test_what_comes_of_an_event_happens_in_the_same_run() -> None:
    schedule, seen = Schedule(), list[float]()

    def again() -> None:
        seen.append(schedule.now)
        if schedule.now < 3:
            schedule.at(schedule.now + 1, again)

    schedule.at(1.0, again)
    schedule.run(10.0)
    assert seen == [1.0, 2.0, 3.0]


def test_the_longest_unasked_is_forgotten_first() -> None:
    cache = LruCache(2)
    for key in (b"a", b"b", b"b"):
        cache.put(key)
    assert cache.get(b"a")
    cache.put(b"c")
    assert (list(cache), cache.get(b"b"), len(cache)) == ([b"a", b"c"], False, 2)


def test_the_k_th_key_is_drawn_in_proportion_to_one_over_k() -> None:
    """Within five standard deviations."""
    keys, count = ZipfKeys(100, 1.0, Random(1)), 50_000
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
    server = Server(schedule, LruCache(10))
    first = served(server, schedule, b"a")
    schedule.run(0.05)
    during = served(server, schedule, b"a")
    schedule.run(1.0)
    after = served(server, schedule, b"a")
    schedule.run(2.0)
    assert (first, during, after) == ([(0.1, False)], [(0.15, False)], [(1.001, True)])


def test_beyond_the_slots_requests_wait_their_turn_and_are_present_meanwhile() -> None:
    schedule = Schedule()
    server = Server(schedule, LruCache(10), slots=1)
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
    schedule, rng, count = Schedule(), Random(7), 0
    cache = LruCache(1)
    cache.put(KEY)
    server, at = Server(schedule, cache, slots=1), 0.0
    while (at := at + rng.expovariate(500.0)) < 100:
        schedule.at(at, lambda: server.serve(KEY, lambda hit: None))
        count += 1
    schedule.run(200.0)
    assert server.occupied() / count - 0.001 == pytest.approx(0.0005, rel=0.06)


def test_answers_are_counted_by_the_second() -> None:
    measures = Measures()
    for now, hit in ((0.2, True), (0.9, False), (1.0, True), (3.5, True)):
        measures.answered(now, hit)
    assert measures.between(0, 1) == Answers(requests=2, hits=1)
    assert (measures.between(0, 1).reads, measures.between(0, 1).hit_rate) == (1, 0.5)
    assert (measures.between(0, 4), measures.between(2, 3).hit_rate) == (Answers(4, 3), 1.0)


def test_a_batch_goes_out_at_one_instant_from_one_client_and_no_two_keys_are_alike() -> None:
    fleet = Fleet(Shape(upstreams=1, clients=3, rate=1000.0, fan_out=4, keys=10, cache=10), seed=5)
    fleet.add_servers([0])
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


def policy(make: MakePolicy, seed: int = 1) -> tuple[Fleet, ConsistentHash, RouteView]:
    """A fleet with one client, that client's policy, and the upstreams as it sees them."""
    fleet = Fleet(SHAPE, seed)
    fleet.add_servers(range(SHAPE.upstreams))
    upstreams = view(range(SHAPE.upstreams))
    settings = RouteSettings(policy="consistent_hash", balance_factor=1.25)
    return fleet, fleet.add_policy(make, upstreams, settings, "client"), RouteView(upstreams)


def test_a_policy_in_the_lab_sends_a_key_to_its_owner() -> None:
    _, made, seen = policy(ConsistentHash)
    assert len({made.pick(seen, KEY).member for _ in range(20)}) == 1


def test_throughput_passes_over_an_upstream_that_was_sent_much_of_late_though_none_of_it_is_in_flight() -> None:
    fleet, made, seen = policy(ByThroughput)
    sent = Counter(made.pick(seen, KEY).member for _ in range(40))
    assert len(sent) == SHAPE.upstreams
    assert max(sent.values()) <= 1.25 * 41 / 4 + 1
    fleet.schedule.run(1.0)
    assert made.pick(seen, KEY).member == sent.most_common(1)[0][0], "what was sent long ago is forgotten"


def test_the_naive_threshold_is_the_same_for_every_upstream() -> None:
    _, made, seen = policy(NaiveThreshold)
    made.pick(seen, KEY)
    assert len({made.limit.threshold_of(upstream) for upstream in seen.upstreams}) == 1


def test_the_same_seed_gives_the_same_figures_with_the_whole_policy() -> None:
    runs = []
    for seed in (1, 1, 2):
        fleet, made, _ = policy(ConsistentHash, seed)
        fleet.begin(5.0)
        fleet.schedule.run(5.0)
        runs.append(([fleet.measures.between(each, each + 1) for each in range(5)], made.counts.distances))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_distances_are_how_many_walked_and_how_far() -> None:
    since = Counter({0: 90, 1: 8, 4: 2})
    assert walked(since) == pytest.approx(0.1)
    assert (furthest(since, 0.9), furthest(since, 0.98), furthest(since, 0.99)) == (0, 1, 4)
    assert walked(Counter()) == furthest(Counter(), 0.99) == 0
