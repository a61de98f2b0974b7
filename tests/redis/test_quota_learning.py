"""What the quota router learns from tasks and callers, and what it makes of that. A thousand tokens a second."""

import pytest

from slb.quotas import Admitted, Limits, Rules, Wait
from tests.redis.conftest import Maker
from tests.redis.quota_scheduler import Scheduler

ROOMY = {"a": Limits(60_000, 100, burst=100_000)}
RULES = Rules(lease=10**9)
LONG = 4_000
"""Milliseconds a slot is held."""

UNIT = 60_000


def wait_for(scheduler: Scheduler, now: int, tokens: int, key: str) -> int:
    """Milliseconds to wait."""
    decision = scheduler.schedule(now, f"t {now} {key}", tokens, key=key)
    assert isinstance(decision, Wait)
    return decision.ms


def comes(scheduler: Scheduler, now: int, tokens: int, key: str) -> bool:
    """Whether it is admitted."""
    return isinstance(scheduler.schedule(now, f"t {now} {key}", tokens, key=key), Admitted)


def run(scheduler: Scheduler, begun: int, held: int, tokens: int = 1, actual: int | None = None) -> None:
    """One task from begin to end."""
    assert comes(scheduler, begun, tokens, f"run {begun}")
    scheduler.complete(begun + held, f"t {begun} run {begun}", actual)


# -- slots


def test_how_long_slots_are_held_moves_up_by_nine_small_steps_or_down_by_one(make: Maker) -> None:
    scheduler = make(ROOMY, RULES)
    found = []
    for number, held in enumerate((4_000, 8_000, 1_000, 7_438)):
        run(scheduler, 10_000 * number, held)
        found.append(scheduler.learned("a")["long"])
    assert found == [4_000, 4_000 + 9 * 500, 8_500 - 1_062, 7_438 - 929]


def test_the_more_tasks_were_seen_the_smaller_the_steps_up_to_64(make: Maker) -> None:
    scheduler = make(ROOMY, RULES)
    for number in range(70):
        before = scheduler.learned("a")["long"] if number else 0
        run(scheduler, 10_000 * number, LONG)
    assert scheduler.learned("a")["seen"] == 64
    assert abs(scheduler.learned("a")["long"] - before) in (before // 64, 9 * (before // 64))


def practised(make: Maker, slots: int = 1) -> Scheduler:
    """It is known how long a slot is held; now all are."""
    scheduler = make({"a": Limits(60_000, slots)}, RULES, now=-40 * LONG)
    for number in range(-40, 0):
        run(scheduler, number * LONG, LONG)
    for number in range(slots):
        assert comes(scheduler, 0, 1, f"held{number}")
    return scheduler


def test_a_slot_is_kept_longer_where_a_caller_found_none_and_a_little_shorter_where_it_did(make: Maker) -> None:
    scheduler = practised(make)
    assert scheduler.learned("a")["stretch"] == 1_000
    first = wait_for(scheduler, 0, 1, "k")
    second = first + wait_for(scheduler, first, 1, "k")
    assert scheduler.learned("a")["stretch"] == 1_500
    scheduler.complete(second - 1, "t 0 held0")
    assert comes(scheduler, second, 1, "k")
    assert scheduler.learned("a")["stretch"] == 1_500 - 46


def test_a_wait_given_when_estimates_were_thought_far_too_high_is_no_sample(make: Maker) -> None:
    scheduler = practised(make)
    now, last = wait_for(scheduler, 0, 1, "one"), wait_for(scheduler, 0, 1, "two")
    for _ in range(2):
        now += wait_for(scheduler, now, 1, "one")
    assert now <= last
    assert scheduler.learned("a")["stretch"] == 2_250
    wait_for(scheduler, last, 1, "two")
    assert scheduler.learned("a")["stretch"] == 2_250


def test_nothing_is_learned_from_callers_before_32_tasks_were_seen(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 1)}, RULES)
    run(scheduler, 0, LONG)
    assert comes(scheduler, 10_000, 1, "held")
    wait = wait_for(scheduler, 10_000, 1, "k")
    wait_for(scheduler, 10_000 + wait, 1, "k")
    assert scheduler.learned("a")["stretch"] == 1_000


@pytest.mark.parametrize(("slots", "times"), [(1, 4), (8, 2), (16, 1), (40, 1)])
def test_with_few_slots_waits_are_up_to_four_times_as_far_apart(make: Maker, slots: int, times: int) -> None:
    scheduler = practised(make, slots)
    kept = scheduler.learned("a")["long"] // slots
    waits = [wait_for(scheduler, 0, 1, f"k{number}") for number in range(20 + 4 * slots)]
    half = len(waits) // 2  # the first are due when the tasks that run end
    assert (waits[-1] - waits[half]) / (len(waits) - 1 - half) == pytest.approx(times * kept, abs=100)


# -- tokens


def test_what_tasks_came_to_is_remembered_of_the_last_32_or_so(make: Maker) -> None:
    scheduler = make(ROOMY, RULES)
    run(scheduler, 0, 10, tokens=3_200, actual=1_600)
    learned = scheduler.learned("a")
    assert (learned["estimated"], learned["spent"]) == (100_000 - 3_125 + 3_200, 100_000 - 3_125 + 1_600)


@pytest.mark.parametrize(
    ("actual", "counted"), [(100, 10_000), (50, 5_500), (95, 10_000), (0, 2_500), (900, 90_000)]
)
def test_what_is_promised_counts_with_what_tasks_came_to(make: Maker, actual: int, counted: int) -> None:
    scheduler = make(ROOMY, RULES)
    for number in range(600):
        run(scheduler, 2_000 * number, 10, tokens=100, actual=actual)
    now = 2_000 * 600
    (model,) = scheduler.models(now)
    assert comes(scheduler, now, int(model.tokens), "all there is")
    first, second = (wait_for(scheduler, now, 10_000, key) for key in ("k1", "k2"))
    assert second - first == pytest.approx(counted, abs=counted / 50)


def test_promises_leave_a_margin_where_a_caller_came_too_soon_and_it_shrinks_again(make: Maker) -> None:
    scheduler = make(ROOMY, RULES)
    assert comes(scheduler, 0, 10_000, "too little")
    assert comes(scheduler, 0, 90_000, "the rest")
    assert wait_for(scheduler, 0, 5_000, "k") == 5_000
    scheduler.complete(1_000, "t 0 too little", 13_000)
    learned = scheduler.learned("a")
    taken = 5_000 * (learned["spent"] * 1000 // learned["estimated"]) // 1000
    again = wait_for(scheduler, 5_000, 5_000, "k")
    margin = (3_000 + taken - 5_000) * UNIT
    assert scheduler.learned("a")["margin"] == margin
    assert again == pytest.approx(margin / UNIT, abs=100)
    assert comes(scheduler, 5_000 + again, 5_000, "k")
    assert scheduler.learned("a")["margin"] == margin - margin // 32


def test_a_margin_is_at_most_a_quarter_of_the_bucket_of_now(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 100)}, RULES)
    assert comes(scheduler, 0, 1_000, "too little")
    assert comes(scheduler, 0, 9_000, "the rest")
    assert wait_for(scheduler, 0, 5_000, "k") == 5_000
    scheduler.complete(1_000, "t 0 too little", 11_000)
    wait_for(scheduler, 5_000, 5_000, "k")
    assert scheduler.learned("a")["margin"] == 10_000 * UNIT // 4
    scheduler.put(5_000, "a", Limits(60_000, 100, burst=4_000))
    assert scheduler.learned("a")["margin"] == 4_000 * UNIT // 4
