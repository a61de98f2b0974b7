"""Crowds of callers in simulated time: rates, shares, bounds, promises kept. Seeded; tolerances are stated."""

from math import log
from random import Random

import pytest

from slb.quotas import Limits, Rules
from tests.redis.conftest import Maker
from tests.redis.quota_world import Size, World

THREE = {"a": Limits(60_000, 50, 1), "b": Limits(120_000, 50, 2), "c": Limits(240_000, 50, 3)}
AMPLE = {name: Limits(10**8, 100, weight) for name, weight in (("a", 1), ("b", 2), ("c", 3))}


def scattered(rng: Random) -> int:
    """Tokens, most of them few."""
    return int(min(8000, max(50, rng.lognormvariate(6.5, 1))))


def seconds(rng: Random) -> int:
    return int(rng.uniform(500, 4000))


@pytest.mark.parametrize(
    ("callers", "size"), [(200, scattered), (1000, lambda rng: 1000)], ids=["scattered", "alike"]
)
def test_under_demand_each_model_runs_at_its_limit_and_no_minute_has_more_than_that_and_a_bucket(
    make: Maker, callers: int, size: Size
) -> None:
    world = World(make, THREE, size, seconds)
    world.run(callers, 300)
    for name, limits in THREE.items():
        assert world.rate(name, (60, 300)) >= 0.99
        assert world.most_in_a_minute(name) <= limits.max_tokens_per_minute + limits.bucket
    assert world.kept >= 0.99 * world.tried_again > 1000


@pytest.mark.parametrize(("spent", "least"), [(0.4, 0.9), (0.8, 0.9), (1.1, 0.99), (1.5, 0.99)])
def test_waits_come_true_and_little_is_left_unused_where_all_estimates_are_too_high_or_too_low(
    make: Maker, spent: float, least: float
) -> None:
    models = {"a": Limits(60_000, 300)}
    world = World(make, models, lambda rng: rng.choice((500, 1_000, 3_000)), seconds, spent=spent)
    world.run(60, 1800)
    assert world.kept >= 0.9 * world.tried_again > 100
    assert least <= spent * world.rate("a", (60, 1800)) <= 1.01


@pytest.mark.parametrize("spent", [10, 0.1])
def test_tokens_that_calls_come_to_keep_to_the_limit_where_estimates_are_off_by_ten(
    make: Maker, spent: float
) -> None:
    """After the first minutes, in which what it could not know is paid."""
    limits = Limits(60_000, 400)
    world = World(make, {"a": limits}, lambda rng: 100 if spent > 1 else 1_000, seconds, spent=spent)
    world.run(400, 900)
    most = limits.max_tokens_per_minute + limits.bucket
    assert spent * world.most_in_a_minute("a", 60) <= 1.1 * most
    assert spent * sum(size for _, _, size in world.admitted) <= limits.max_tokens_per_minute * 15 + most


def test_without_keys_too_nine_in_ten_are_admitted_when_they_come_back(make: Maker) -> None:
    world = World(make, THREE, lambda rng: 1000, seconds, keyed=False)
    world.run(200, 300)
    assert world.kept >= 0.9 * world.tried_again > 1000
    assert all(world.rate(name, (60, 300)) >= 0.99 for name in THREE)


@pytest.mark.parametrize(("callers", "length"), [(5, 1200), (30, 300)])
def test_where_callers_are_few_shares_are_the_weights(make: Maker, callers: int, length: int) -> None:
    world = World(make, AMPLE, scattered, seconds)
    world.run(callers, length)
    for name, limits in AMPLE.items():
        assert world.share(name) == pytest.approx(limits.weight / 6, rel=0.02)
    assert world.tried_again == 0


def test_a_model_that_is_full_now_and_then_makes_up_for_it(make: Maker) -> None:
    models = {name: Limits(10**8, 10, limits.weight) for name, limits in AMPLE.items()}
    world = World(make, models, scattered, lambda rng: int(rng.expovariate(1 / 2000)) + 1)
    world.run(18, 400)
    for name, limits in models.items():
        assert world.share(name) == pytest.approx(limits.weight / 6, rel=0.02)
        assert world.most_running[name] <= 10


@pytest.mark.parametrize("slots", [5, 20])
def test_slots_are_in_use_and_a_wait_for_one_comes_true_nine_times_in_ten(make: Maker, slots: int) -> None:
    world = World(make, {"a": Limits(10**8, slots, 1)}, lambda rng: 100, lambda rng: rng.randint(1500, 2500))
    world.counts_from = 100_000
    world.run(2 * slots, 400)
    assert world.kept >= 0.9 * world.tried_again > 10
    assert len(world.admitted) >= 0.93 * slots * 400 / 2
    assert world.most_running["a"] == slots


DURATIONS = {
    "exponential": lambda rng: int(rng.expovariate(1 / 10_000)) + 1,
    "lognormal": lambda rng: int(rng.lognormvariate(log(10_000) - 0.5, 1)) + 1,
    "constant": lambda rng: 10_000,
}
"""Ten seconds on average."""


@pytest.mark.parametrize(("slots", "callers", "length"), [(4, 8, 2000), (8, 32, 1200), (20, 60, 600)])
def test_where_slots_are_short_no_caller_starves_waits_come_true_and_slots_are_in_use(
    make: Maker, slots: int, callers: int, length: int
) -> None:
    tried_again = kept = 0
    for duration in DURATIONS.values():
        world = World(make, {"a": Limits(10**8, slots)}, lambda rng: 100, duration)
        world.counts_from = 200_000
        world.run(callers, length)
        assert world.without <= 20 * callers * 10_000 / slots
        assert world.used >= 0.94 * slots * length * 1000
        tried_again += world.tried_again
        kept += world.kept
    assert kept >= 0.9 * tried_again > 100


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("callers", [200, 300])
@pytest.mark.parametrize("length", [500, 2_000, 10_000])
def test_callers_with_one_request_each_are_through_soon_after_the_first_moment_there_could_be(
    make: Maker, callers: int, length: int, keyed: bool
) -> None:
    """All come at once, to 100 slots."""
    world = World(make, {"a": Limits(10**8, 100)}, lambda rng: 100, lambda rng: length, keyed, once=True)
    world.run(callers, 600)
    assert sum(world.begun.values()) == callers
    assert world.ended <= 1.2 * callers / 100 * length


@pytest.mark.parametrize("length", [500, 2_000, 10_000])
def test_of_callers_that_ask_anew_none_gets_much_less_than_the_others_and_slots_are_in_use(
    make: Maker, length: int
) -> None:
    world = World(make, {"a": Limits(10**8, 100)}, lambda rng: 100, lambda rng: length)
    seconds = 60 * length // 1000
    world.run(300, seconds)
    assert world.used >= 0.95 * 100 * seconds * 1000
    assert min(world.begun[number] for number in range(300)) >= 0.5 * sum(world.begun.values()) / 300


@pytest.mark.parametrize("keyed", [True, False])
def test_where_waits_are_longer_than_the_longest_all_are_served_in_turn(make: Maker, keyed: bool) -> None:
    rules = Rules(longest_wait=20_000, lease=10**6)
    world = World(make, {"a": Limits(10**8, 8)}, lambda rng: 100, DURATIONS["exponential"], keyed, rules=rules)
    world.run(32, 800)
    assert world.without <= 20 * 32 * 10_000 / 8
    assert world.used >= 0.93 * 8 * 800_000


@pytest.mark.parametrize("large", [9_000, 10_000])
@pytest.mark.parametrize(("longest_wait", "tolerance"), [(900_000, 0.2), (20_000, 0.35)])
def test_large_requests_are_not_starved_by_small_ones_nor_the_other_way_round(
    make: Maker, large: int, longest_wait: int, tolerance: float
) -> None:
    rules = Rules(longest_wait=longest_wait)
    world = World(
        make, {"a": Limits(60_000, 50)}, lambda rng: rng.choice((100, 100, 100, large)), seconds, rules=rules
    )
    world.run(40, 1200)
    assert world.rate("a", (60, 1200)) >= 0.985
    for_large, for_small = world.mean_wait(large), world.mean_wait(100)
    assert for_large == pytest.approx(for_small, rel=tolerance)


def test_where_the_slots_of_one_model_are_short_the_others_are_given_by_their_weights(make: Maker) -> None:
    models = {"a": Limits(10**8, 2, 3), "b": Limits(10**8, 100, 1), "c": Limits(10**8, 100, 2)}
    world = World(make, models, scattered, seconds)
    world.run(20, 400)
    assert world.most_running["a"] == 2
    assert world.share("a") < 0.2
    assert world.share("c") == pytest.approx(2 * world.share("b"), rel=0.02)
