"""Decisions of the quota router one by one, in simulated time."""

from dataclasses import replace
from math import ceil

import pytest

from slb.quotas import Admitted, Decision, Denied, Limits, Rules, TaskState, Wait
from tests.redis.conftest import Maker
from tests.redis.quota_scheduler import Scheduler, schedule_ask

ONE = {"a": Limits(60_000, 3)}
"""A thousand tokens a second, a bucket of ten thousand."""

RULES = Rules(lease=20_000, longest_wait=60_000)


@pytest.fixture
def drained(make: Maker) -> Maker:
    """With empty buckets."""
    return lambda models=None: make(models or ONE, RULES, is_drained=True)


def ask(scheduler: Scheduler, now: int, tokens: int, task: str = "t", key: str = "") -> Decision:
    return scheduler.schedule(now, task, tokens, key=key)


def level(scheduler: Scheduler, now: int) -> float:
    (model,) = scheduler.models(now)
    return model.tokens


def test_a_full_bucket_goes_at_once_and_no_more(make: Maker) -> None:
    scheduler = make(ONE)
    assert ask(scheduler, 0, 10_000, "t1") == Admitted("a", "t1")
    assert ask(scheduler, 0, 1, "t2") == Wait(100)


def test_a_wait_ends_on_the_first_tick_at_which_there_are_tokens(drained: Maker) -> None:
    assert ask(drained(), 0, 1_234) == Wait(1_300)
    assert ask(drained(), 0, 1_200) == Wait(1_200)


def test_no_wait_is_shorter_than_50_ms(drained: Maker) -> None:
    scheduler = drained()
    scheduler.advance(1_070)
    assert ask(scheduler, 1_070, 1_080) == Wait(130)


def test_jitter_makes_a_wait_longer_by_up_to_a_tenth_and_never_shorter(drained: Maker) -> None:
    waits = [drained().schedule(0, "t", 5_000, jitter=jitter) for jitter in range(0, 1001, 100)]
    assert waits == [Wait(5_000 + 100 * ceil(jitter / 200)) for jitter in range(0, 1001, 100)]


def test_jitter_costs_no_more_than_a_quarter_of_the_time_in_which_the_bucket_could_still_fill(
    drained: Maker,
) -> None:
    scheduler = drained({"a": Limits(60_000, 3, burst=5_400)})
    assert scheduler.schedule(0, "t", 5_000, jitter=1_000) == Wait(5_100)


def test_of_two_alike_that_come_together_for_one_place_one_gets_it(drained: Maker) -> None:
    scheduler = drained()
    assert ask(scheduler, 0, 5_000) == Wait(5_000)
    replies = scheduler.ask(5_000, *(schedule_ask(task, 5_000, None, "", 0) for task in ("t1", "t2")))
    assert [reply[0] for reply in replies] == ["admitted", "wait"]
    assert scheduler.models(5_000)[0].waiting == 1


def test_each_of_many_callers_gets_a_wait_of_its_own(drained: Maker) -> None:
    scheduler = drained()
    assert [ask(scheduler, 0, 1_000, key=f"k{number}") for number in range(4)] == [
        Wait(1_000),
        Wait(2_000),
        Wait(3_000),
        Wait(4_000),
    ]


def test_a_caller_that_waited_goes_before_new_ones(drained: Maker) -> None:
    scheduler = drained()
    assert ask(scheduler, 0, 9_000, key="large") == Wait(9_000)
    assert ask(scheduler, 5_000, 10, key="small") == Wait(4_100)
    assert ask(scheduler, 9_000, 9_000, "t1", "large") == Admitted("a", "t1")


def test_a_caller_that_comes_back_early_gets_the_same_moment_again(drained: Maker) -> None:
    scheduler = drained()
    ask(scheduler, 0, 5_000, key="k")
    assert ask(scheduler, 1_000, 5_000, key="k") == Wait(4_000)
    assert scheduler.models(1_000)[0].waiting == 1


def test_a_promise_that_is_not_used_goes_to_other_callers(drained: Maker) -> None:
    scheduler = drained()
    ask(scheduler, 0, 9_000, key="k")
    assert scheduler.models(11_000)[0].waiting == 1
    assert ask(scheduler, 11_100, 9_000, "t1") == Admitted("a", "t1")


def test_what_no_bucket_holds_is_denied_by_name(make: Maker) -> None:
    models = {"a": Limits(60_000, 3), "b": Limits(600, 1)}
    assert ask(make(models), 0, 10_001) == Denied("estimate_exceeds_limit", "a", 10_000)
    assert make(models).schedule(0, "t", 101, ["b"]) == Denied("estimate_exceeds_limit", "b", 100)


def test_a_bucket_is_a_sixth_of_the_limit_unless_it_is_set() -> None:
    assert Limits(60_000, 1).bucket == 10_000
    assert Limits(7, 1).bucket == 2
    assert Limits(60_000, 1, burst=70_000).bucket == 70_000


def test_only_the_models_that_are_named_will_do(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 3), "b": Limits(60_000, 3, 100)})
    assert [scheduler.schedule(0, f"t{n}", 10, ["a"]) for n in range(3)] == [
        Admitted("a", f"t{n}") for n in range(3)
    ]
    assert scheduler.schedule(0, "t", 10, ["a", "unknown"]) == Denied("unknown_model", "unknown")
    assert make().schedule(0, "t", 10) == Denied("no_models")


def test_weights_are_kept_to_in_turn(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 99, 1), "b": Limits(60_000, 99, 2)})
    given = [ask(scheduler, 0, 300, f"t{number}") for number in range(9)]
    assert "".join(each.model for each in given if isinstance(each, Admitted)) == "bbabbabba"


def test_no_more_than_a_bucket_is_saved_while_there_are_no_calls(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 1, 1000), "b": Limits(6_000_000, 99, 1)})
    for number in range(100):
        ask(scheduler, 0, 1_000, f"t{number}")
    assert scheduler.models(0)[0].deficit <= 10_000


def test_a_paused_model_takes_nothing_and_is_the_reason_of_the_wait(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 3, paused=True)})
    assert ask(scheduler, 0, 10) == Wait(1_000, "paused")
    waits = {scheduler.schedule(0, "t", 10, jitter=jitter) for jitter in (0, 500, 1000)}
    assert waits == {Wait(1_000, "paused"), Wait(1_050, "paused"), Wait(1_100, "paused")}
    scheduler.put(0, "a", Limits(60_000, 3))
    assert ask(scheduler, 0, 10, "t1") == Admitted("a", "t1")


def test_limits_that_are_lowered_below_what_is_in_flight_let_that_finish_first(make: Maker) -> None:
    scheduler = make(ONE)
    for task in ("t1", "t2", "t3"):
        ask(scheduler, 0, 10, task)
    scheduler.put(0, "a", Limits(600, 1))
    assert level(scheduler, 0) == 100
    scheduler.complete(0, "t1")
    scheduler.complete(0, "t2")
    assert isinstance(ask(scheduler, 0, 10), Wait)
    scheduler.complete(0, "t3")
    assert ask(scheduler, 0, 10, "t4") == Admitted("a", "t4")


def test_a_limit_that_changes_does_not_forget_what_the_last_minute_had(make: Maker) -> None:
    scheduler = make({"a": Limits(600_000, 3)})
    ask(scheduler, 0, 100_000, "t1")
    scheduler.put(0, "a", Limits(6_000, 3))
    assert scheduler.models(0)[0].minute == 100_000
    answer = ask(scheduler, 0, 500, key="k")
    assert isinstance(answer, Wait)
    assert 60_000 <= answer.ms <= 61_000
    assert ask(scheduler, answer.ms, 500, "t2", "k") == Admitted("a", "t2")


def test_a_wait_for_the_last_minute_ends_as_soon_as_enough_has_gone_out_of_it(make: Maker) -> None:
    scheduler = make({"a": Limits(600_000, 3)})
    ask(scheduler, 0, 9_000, "t1")
    ask(scheduler, 1_000, 6_000, "t2")
    scheduler.put(1_000, "a", Limits(6_000, 3))
    assert ask(scheduler, 1_000, 1_000) == Wait(59_500), "the first half second is over, and a minute"
    assert ask(scheduler, 1_000, 999, key="less") == Wait(59_500)


def test_a_limit_that_is_lowered_leaves_a_debt_of_no_more_than_its_new_bucket(make: Maker) -> None:
    scheduler = make({"a": Limits(1_000_000, 3)})
    ask(scheduler, 0, 100_000, "t1")
    ask(scheduler, 0, 10, "t2")
    scheduler.complete(0, "t1", 10**6)
    scheduler.put(0, "a", Limits(1_000, 3))
    assert level(scheduler, 0) == -167
    spent = scheduler.models(0)[0].minute
    scheduler.complete(0, "t2", 20)
    assert (level(scheduler, 0), scheduler.models(0)[0].minute) == (-177, spent + 10), "nothing is given back by it"
    answer = ask(scheduler, 0, 100, key="k")
    assert isinstance(answer, Wait)
    assert 60_000 <= answer.ms <= 61_000


def test_a_debt_of_more_than_a_bucket_grows_by_another_debt(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 9, burst=10)})
    ask(scheduler, 0, 10)
    for key in ("k1", "k2", "k3"):
        assert ask(scheduler, 0, 10, key=key) == Wait(100)
    for key in ("k1", "k2", "k3"):  # tokens may be late by more than this bucket holds
        assert ask(scheduler, 100, 10, key, key) == Admitted("a", key)
    assert level(scheduler, 100) == -20
    scheduler.complete(100, "k1", 11)
    assert (level(scheduler, 100), scheduler.models(100)[0].minute) == (-21, 41)


def test_changing_limits_does_not_let_a_minute_have_more_than_the_limit_and_a_bucket(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 99)})
    admitted: list[tuple[int, str]] = []
    for now in range(0, 120_000, 500):
        asks = [schedule_ask(f"t{now}-{number}", 1_000, None, "", 0) for number in range(20)]
        admitted += [(now, reply[2]) for reply in scheduler.ask(now, *asks) if reply[0] == "admitted"]
        if now >= 60_000 and now % 10_000 == 0:  # what is given back here was refilled long ago
            for _, task in admitted[now // 1_000 - 60 :][:10]:
                scheduler.complete(now, task, 0)
        scheduler.put(now, "a", Limits(60_000, 99, burst=10_000 - now % 1_000 // 500))
    later = [at for at, _ in admitted if at >= 60_000]
    most = max(sum(first <= at < first + 60_000 for at in later) for first in later)
    assert 60 <= most <= 70


def test_a_model_that_is_gone_is_forgotten_once_it_is_as_a_new_one_would_be(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 10_000, "t1")
    scheduler.complete(0, "t1")
    scheduler.delete(0, "a")
    scheduler.put(30_000, "a", ONE["a"])
    assert scheduler.models(30_000)[0].minute == 10_000
    scheduler.delete(30_000, "a")
    scheduler.put(70_000, "a", Limits(600_000, 3))
    assert level(scheduler, 70_000) == 100_000


def test_removing_a_model_and_setting_it_again_does_not_fill_its_bucket(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 10_000)
    scheduler.delete(0, "a")
    scheduler.put(0, "a", ONE["a"])
    assert level(scheduler, 0) == 0
    assert scheduler.models(0)[0].in_flight == 1


def test_completing_settles_the_estimate_once_in_both_directions(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 5_000, "t1")
    ask(scheduler, 0, 4_000, "t2")
    assert scheduler.complete(0, "t1", 1_000) == "completed"
    assert level(scheduler, 0) == 5_000
    assert scheduler.complete(0, "t1", 0) == "completed"
    assert level(scheduler, 0) == 5_000
    scheduler.complete(0, "t2", 10_000)
    assert level(scheduler, 0) == -1_000
    assert scheduler.complete(0, "unknown") is None


def test_a_debt_is_no_more_than_an_hour_of_the_limit_and_nothing_comes_back_above_a_bucket(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 5_000, "t1")
    scheduler.complete(60_000, "t1", 0)
    assert level(scheduler, 60_000) == 10_000
    ask(scheduler, 60_000, 10_000, "t2")
    scheduler.complete(60_000, "t2", 10**9)
    assert level(scheduler, 60_000) == -60 * 60_000
    scheduler.put(60_000, "a", ONE["a"])
    assert level(scheduler, 60_000) == -60 * 60_000, "the same limits forgive nothing"
    scheduler.put(60_000, "a", replace(ONE["a"], max_concurrent_requests=ONE["a"].max_concurrent_requests + 1))
    assert level(scheduler, 60_000) == -10_000


def test_what_comes_back_does_not_let_a_minute_have_more_than_the_limit_and_a_bucket(make: Maker) -> None:
    scheduler = make({"a": Limits(60_000, 99)}, Rules())
    admitted: list[tuple[int, str]] = []
    for now in range(0, 120_000, 500):
        asks = [schedule_ask(f"t{now}-{number}", 1_000, None, "", 0) for number in range(20)]
        admitted += [(now, reply[2]) for reply in scheduler.ask(now, *asks) if reply[0] == "admitted"]
        if now == 60_000:  # all of the first half minute was for nothing, and is long refilled
            for at, task in admitted:
                if at < 30_000:
                    scheduler.complete(now, task, 0)
    later = [at for at, _ in admitted if at >= 30_000]
    most = max(sum(first <= at < first + 60_000 for at in later) for first in later)
    assert most <= 70


def test_a_lease_lapses_without_a_heartbeat_and_gives_back_what_it_held_once(make: Maker) -> None:
    scheduler = make(ONE, RULES)
    for now in range(0, 25_000, 1_000):
        scheduler.advance(now)
    ask(scheduler, 25_000, 10_000, "t1", "k")
    assert scheduler.heartbeat(29_000, "t1") == "running"
    assert sum(scheduler.advance(now) for now in range(30_000, 60_000, 1_000)) == 1
    assert scheduler.heartbeat(60_000, "t1") == "abandoned"
    assert scheduler.complete(60_000, "t1", 0) == "abandoned"
    (model,) = scheduler.models(60_000)
    assert (model.in_flight, model.tokens, model.deficit) == (0, 10_000, 10_000)
    assert [(each.task, each.estimate, each.key, each.at) for each in scheduler.abandoned(60_000)] == [
        ("t1", 10_000, "k", 49_000)
    ]
    assert ask(scheduler, 60_000, 10_000, "t2", "k") == Admitted("a", "t2")


def test_nothing_is_reclaimed_for_a_lease_after_a_silence_without_possible_heartbeats(make: Maker) -> None:
    scheduler = make(ONE, RULES, now=0)
    for now in range(0, 25_000, 1_000):
        scheduler.advance(now)
    ask(scheduler, 25_000, 10, "t1")
    back = 25_000 + RULES.lease + 5_000
    assert scheduler.advance(back) == 0
    assert scheduler.heartbeat(back + 10, "t1") == "running"


def test_ended_tasks_are_known_for_an_hour(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 10, "t1")
    scheduler.complete(0, "t1")
    states: list[TaskState | None] = [scheduler.heartbeat(now, "t1") for now in (0, 3_599_999, 3_600_000)]
    assert states == ["completed", "completed", None]


def test_a_caller_that_repeats_its_key_gets_the_same_task(make: Maker) -> None:
    scheduler = make(ONE)
    assert ask(scheduler, 0, 10, "t1", "k") == Admitted("a", "t1")
    assert ask(scheduler, 0, 10, "t2", "k") == Admitted("a", "t1")
    assert scheduler.models(0)[0].in_flight == 1
    assert ask(scheduler, 0, 11, "t3", "k") == Denied("idempotency_mismatch")
    assert scheduler.schedule(0, "t3", 10, ["a"], "k") == Denied("idempotency_mismatch")


def test_a_key_that_waits_stands_for_its_request_until_its_place_is_gone(drained: Maker) -> None:
    scheduler = drained()
    assert ask(scheduler, 0, 1_000, key="k") == Wait(1_000)
    assert ask(scheduler, 0, 1_001, key="k") == Denied("idempotency_mismatch")
    assert scheduler.schedule(0, "t", 1_000, ["a"], "k") == Denied("idempotency_mismatch")
    assert scheduler.models(0)[0].waiting == 1
    assert ask(scheduler, 3_100, 1_001, "t1", "k") == Admitted("a", "t1")


def test_a_key_is_known_as_long_as_its_task_runs(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 10, "t1", "k")
    for now in range(0, 3 * 3_600_000, 50_000):
        assert scheduler.heartbeat(now, "t1") == "running"
    assert ask(scheduler, now, 10, "t2", "k") == Admitted("a", "t1")


def test_a_key_whose_task_is_over_asks_for_a_new_one(make: Maker) -> None:
    scheduler = make(ONE)
    ask(scheduler, 0, 10, "t1", "k")
    scheduler.complete(0, "t1")
    assert ask(scheduler, 0, 10, "t2", "k") == Admitted("a", "t2")
    assert scheduler.models(0)[0].in_flight == 1


def test_the_shares_of_a_limit_are_never_more_than_the_whole() -> None:
    assert Limits(60_000, 3).share(3) == Limits(20_000, 1, burst=3_333)
    assert Limits(60_000, 2).share(3).paused


def test_advice_is_of_what_was_decided_in_the_last_minute(drained: Maker) -> None:
    scheduler = drained()
    scheduler.ask(500, schedule_ask("t1", 500, None, "", 0))
    scheduler.ask(30_000, schedule_ask("t2", 10_000, None, "", 0), schedule_ask("t3", 2_000, None, "", 0))
    assert scheduler.ask(59_999, ["advice"]) == [[3, 2, 2, 3, 1_000, 1]]
    assert scheduler.ask(60_000, ["advice"])[0][:4] == [2, 1, 2, 3]
