"""Places of callers that wait longer than the longest wait, or found no slot. A thousand tokens a second."""

from dataclasses import replace
from math import ceil

import pytest

from bench.quota.script import EPOCH
from slb.quotas import Admitted, Decision, Limits, Rules, Wait
from tests.redis.conftest import Maker
from tests.redis.quota_scheduler import Scheduler, schedule_ask

RULES = Rules(lease=10**9, longest_wait=20_000)
TOKENS = {"a": Limits(60_000, 100)}
GRACE = 2_000
"""Milliseconds a caller may be late."""

DAY = 86_400_000
MOST_NAMELESS = 5_000
"""Callers without a key that are promised anything."""

LONG = 4_000
"""Milliseconds a slot is held."""


@pytest.fixture
def drained(make: Maker) -> Maker:
    """With empty buckets."""
    return lambda models=None: make(models or TOKENS, RULES, is_drained=True)


def ask(scheduler: Scheduler, now: int, tokens: int, key: str = "", jitter: int = 0) -> Decision:
    return scheduler.schedule(now, f"t {now} {key}", tokens, key=key, jitter=jitter)


def wait(scheduler: Scheduler, now: int, tokens: int, key: str = "", jitter: int = 0) -> int:
    """Milliseconds."""
    decision = ask(scheduler, now, tokens, key, jitter)
    assert isinstance(decision, Wait)
    return decision.ms


def waiting(scheduler: Scheduler, now: int) -> int:
    (model,) = scheduler.models(now)
    return model.waiting


def queued(scheduler: Scheduler, callers: int) -> None:
    """So many wait for ten seconds of tokens each."""
    for number in range(callers):
        ask(scheduler, 0, 10_000, f"q{number}")


@pytest.mark.parametrize("key", ["", "k"])
def test_a_caller_that_waits_longer_than_the_longest_wait_gets_the_rest_later_and_keeps_its_place(
    drained: Maker, key: str
) -> None:
    scheduler = drained()
    queued(scheduler, 2)
    assert wait(scheduler, 0, 5_000, key) == 20_000
    assert ask(scheduler, 10_000, 10_000, "q0") == Admitted("a", "t 10000 q0")
    assert wait(scheduler, 10_000, 9_000, "later") == 20_000
    assert ask(scheduler, 20_000, 10_000, "q1") == Admitted("a", "t 20000 q1")
    assert wait(scheduler, 20_000, 5_000, key) == 5_000
    assert ask(scheduler, 25_000, 5_000, key) == Admitted("a", f"t 25000 {key}")


def test_no_wait_is_longer_than_the_longest_and_they_are_not_all_the_same(drained: Maker) -> None:
    scheduler = drained()
    queued(scheduler, 3)
    waits = {wait(scheduler, 0, 1, f"k{jitter}", jitter) for jitter in range(0, 1001, 50)}
    assert waits == set(range(18_000, 20_001, 100))


def test_the_rest_of_a_wait_is_not_longer_than_the_longest_wait_either(drained: Maker) -> None:
    scheduler = drained()
    queued(scheduler, 6)
    waits = [wait(scheduler, now, 10_000, "k") for now in (0, 20_000)]
    assert waits == [20_000, 20_000]
    assert waiting(scheduler, 22_001) == 1


def test_a_place_that_is_not_used_is_gone_soon_after_its_moment(drained: Maker) -> None:
    scheduler = drained()
    queued(scheduler, 10)
    assert waiting(scheduler, 20_000 + GRACE) == 8 + 1
    assert waiting(scheduler, 20_001 + GRACE) == 0


def test_a_caller_that_comes_back_is_admitted_where_those_before_it_have_gone(drained: Maker) -> None:
    scheduler = drained()
    queued(scheduler, 10)
    assert [wait(scheduler, now, 10_000, "k") for now in (0, 20_000)] == [20_000, 20_000]
    assert isinstance(ask(scheduler, 22_001, 10_000, "other"), Admitted)
    assert wait(scheduler, 23_000, 10_000, "k") < 15_000


def test_nothing_is_promised_for_later_than_in_a_day(drained: Maker) -> None:
    scheduler = drained({"a": Limits(1, 1, burst=DAY // 60_000 + 1)})
    assert wait(scheduler, 0, DAY // 60_000 + 1) == 20_000
    assert waiting(scheduler, 0) == 0
    assert wait(scheduler, 0, DAY // 60_000) == 20_000
    assert waiting(scheduler, 0) == 1


def test_callers_without_a_key_do_not_get_all_places(drained: Maker) -> None:
    scheduler = drained()
    scheduler.ask(0, *(schedule_ask(f"t{number}", 1, None, "", 0) for number in range(MOST_NAMELESS + 10)))
    assert waiting(scheduler, 0) == MOST_NAMELESS
    wait(scheduler, 0, 1, "k")
    assert waiting(scheduler, 0) == MOST_NAMELESS + 1


def test_changed_limits_end_far_places_too(drained: Maker) -> None:
    scheduler = drained()
    queued(scheduler, 5)
    scheduler.put(0, "a", Limits(6_000_000, 100))
    assert waiting(scheduler, 0) == 0
    assert wait(scheduler, 0, 10_000, "q4") == 100


def practised(make: Maker, slots: int = 1) -> Scheduler:
    """It is known how long a slot is held; now all are."""
    scheduler = make({"a": Limits(60_000, slots)}, Rules(lease=10**9), now=-40 * LONG)
    for number in range(40):
        begun = LONG * (number - 40)
        scheduler.schedule(begun, f"p{number}", 1)
        scheduler.complete(begun + LONG, f"p{number}")
    for number in range(slots):
        assert isinstance(ask(scheduler, 0, 1, f"held{number}"), Admitted)
    return scheduler


def test_a_caller_that_came_in_time_and_found_no_slot_goes_before_later_ones(make: Maker) -> None:
    scheduler = practised(make)
    first, second = wait(scheduler, 0, 1, "one"), wait(scheduler, 0, 1, "two")
    anew = wait(scheduler, first, 1, "one")
    assert first + anew < second
    assert isinstance(ask(scheduler, first, 1, "three"), Wait)
    scheduler.complete(first + anew - 1, "t 0 held0")
    assert isinstance(ask(scheduler, first + anew - 1, 1, "four"), Wait)
    assert isinstance(ask(scheduler, first + anew, 1, "one"), Admitted)


def test_of_several_callers_without_a_slot_each_gets_a_wait_of_its_own(make: Maker) -> None:
    scheduler = practised(make, slots=16)
    waits = [wait(scheduler, 0, 1, f"k{number}") for number in range(3)]
    assert waits[-1] < waits[0] + GRACE
    backs = [wait(scheduler, waits[-1], 1, f"k{number}") for number in range(3)]
    assert backs[0] < backs[1] < backs[2]


def test_tokens_of_callers_that_wait_long_for_a_slot_go_to_other_callers(make: Maker) -> None:
    scheduler = practised(make, slots=2)
    for number in range(4):
        ask(scheduler, 0, 9_000, f"q{number}")
    now = 100
    scheduler.complete(now, "t 0 held0")
    (model,) = scheduler.models(now)
    assert model.promised == 36_000 > model.tokens
    assert isinstance(ask(scheduler, now, 500), Admitted)


def test_tokens_that_cannot_be_refilled_in_time_are_kept(drained: Maker) -> None:
    scheduler = drained()
    assert wait(scheduler, 0, 9_000, "large") == 9_000
    assert isinstance(ask(scheduler, 8_000, 100), Wait)
    assert isinstance(ask(scheduler, 9_000, 9_000, "large"), Admitted)


def test_tokens_that_are_promised_to_several_are_kept_for_all_of_them(drained: Maker) -> None:
    scheduler = drained()
    assert [wait(scheduler, 0, 4_000, key) for key in ("one", "two")] == [4_000, 8_000]
    assert isinstance(ask(scheduler, 5_000, 100), Wait), "one is late"
    assert isinstance(ask(scheduler, 5_500, 4_000, "one"), Admitted)
    assert isinstance(ask(scheduler, 8_000, 4_000, "two"), Admitted)


def test_a_caller_that_comes_early_gets_the_slot_that_is_kept_for_it(make: Maker) -> None:
    scheduler = practised(make)
    due = wait(scheduler, 0, 1, "k")
    scheduler.complete(10, "t 0 held0")
    assert isinstance(ask(scheduler, due - 1_000, 1, "other"), Wait)
    assert isinstance(ask(scheduler, due - 1_000, 1, "k"), Admitted)


def test_a_caller_that_comes_early_gets_tokens_that_are_there_whatever_is_promised_for_later(
    drained: Maker,
) -> None:
    scheduler = drained()
    assert [wait(scheduler, 0, tokens, f"k{tokens}") for tokens in (4_000, 4_001, 9_000)] == [4_000, 8_100, 17_100]
    assert isinstance(ask(scheduler, 6_001, 4_001, "k4001"), Admitted), "the first has not come"


def test_callers_without_a_slot_get_waits_one_after_another(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 16)}, Rules(lease=10**9))
    for number in range(10):  # too few to learn from callers that come back
        assert isinstance(ask(scheduler, 10_000 * number, 1, "run"), Admitted)
        scheduler.complete(10_000 * number + LONG, f"t {10_000 * number} run")
    now, keys = 200_000, ("one", "two", "three")
    assert all(isinstance(ask(scheduler, now, 1, f"held{number}"), Admitted) for number in range(16))
    last = max(now + wait(scheduler, now, 1, key) for key in keys)
    kept = scheduler.learned("a")["long"] // 16
    ticks = [ceil((last + times * kept) / 100) * 100 - last for times in (1, 2, 3)]
    assert [wait(scheduler, last, 1, key) for key in keys] == ticks, "due exactly, told on ticks"


def test_another_weight_moves_nobodys_place_and_another_limit_all(drained: Maker) -> None:
    scheduler = drained()
    ask(scheduler, 0, 5_000, "k")
    scheduler.put(0, "a", replace(TOKENS["a"], weight=7))
    assert waiting(scheduler, 0) == 1
    scheduler.put(0, "a", replace(TOKENS["a"], weight=7, max_concurrent_requests=99))
    assert waiting(scheduler, 0) == 0


def test_callers_that_wait_are_told_the_next_first(drained: Maker) -> None:
    scheduler = drained()
    scheduler.put(0, "b", Limits(60_000, 100))
    for tokens, key in ((10_000, "first"), (2_000, ""), (1_000, "a key with spaces")):
        assert isinstance(scheduler.schedule(0, f"t {key}", tokens, ["a"], key), Wait)
    (found,) = scheduler.ask(0, ["waiting", "a", 2])
    assert found == [str(10_000 + EPOCH), "10000", "first", str(12_000 + EPOCH), "2000", ""]
    assert scheduler.ask(0, ["waiting", "a", 10])[0][6:] == [str(13_000 + EPOCH), "1000", "a key with spaces"]
    assert scheduler.ask(0, ["waiting", "b", 10], ["waiting", "none", 10]) == [[], []]
