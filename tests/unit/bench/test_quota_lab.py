"""The quota lab: its simulated time, its account of what was held, and small drains of each kind."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import BenchError
from bench.quota.book import Book, Entry, idle, in_use, long_run, most_at_once, most_in_a_minute
from bench.quota.command import at_once, routed
from bench.quota.drain import AsIs
from bench.quota.simulated import simulate
from bench.quota.work import (
    Model,
    Setting,
    Work,
    least_seconds,
    made,
    short_of_callers,
    short_of_slots,
    short_of_tokens,
    ten_models,
    traced,
)

ONE = Model("one", limit=600, speed=10.0, first=1.0, slots=2, weight=1, burst=100)


def work(number: int, generated: int = 10, context: int = 90) -> Work:
    return Work(number, context, generated, context + 10, luck=1.0)


def entry(at: float, tokens: int = 10, ended: float = inf, actual: int | None = None) -> Entry:
    return Entry("one", tokens, at, ended, actual)


def prompts(count: int) -> list[Work]:
    rng = Random(1)
    return made([(rng.randrange(50, 2000), rng.randrange(1, 300)) for _ in range(count)], rng)


# -- simulated time


def test_an_hour_passes_in_no_time_and_all_tasks_wake_up_in_turn() -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, asyncio.get_running_loop().time()))

    async def all_of_them() -> None:
        await asyncio.gather(sleeper("late", 3600.0), sleeper("soon", 0.5), sleeper("later", 7200.0))

    simulate(all_of_them())
    assert [name for name, _ in woken] == ["soon", "late", "later"]
    assert [at for _, at in woken] == pytest.approx([0.5, 3600.0, 7200.0])


def test_a_simulation_in_which_no_task_will_ever_wake_up_is_an_error() -> None:
    with pytest.raises(BenchError, match="for ever"):
        simulate(asyncio.Event().wait())


def test_ctrl_c_ends_a_simulation_and_every_task_in_it() -> None:
    ended = []

    async def sleeper(number: int) -> None:
        try:
            for slept in range(100):
                if number == slept == 50:
                    os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(1)
        finally:
            ended.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*(sleeper(number) for number in range(100)))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate(all_of_them())
        assert sorted(ended) == list(range(100))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# -- was the rate held


def test_a_minute_holds_what_was_admitted_in_it_and_no_more() -> None:
    entries = [entry(0, 10), entry(30, 20), entry(59.9, 30), entry(60, 5)]
    assert most_in_a_minute(entries) == 60


def test_what_a_task_came_to_counts_once_it_is_known() -> None:
    assert most_in_a_minute([entry(0, 100, ended=10, actual=40), entry(5, 10), entry(20, 10)]) == 110
    assert most_in_a_minute([entry(0, 10, ended=10, actual=90), entry(20, 10)]) == 100


def test_a_task_that_ends_as_it_leaves_the_minute_leaves_with_what_it_counted() -> None:
    assert most_in_a_minute([entry(0, 100, ended=59, actual=1), entry(61, 10), entry(62, 10)]) == 100
    assert most_in_a_minute([entry(0, 5), entry(1, 100, ended=70, actual=1), entry(80, 10), entry(81, 200)]) == 210


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 50)), min_size=1, max_size=30))
def test_the_fullest_minute_is_the_one_that_a_plain_sum_finds(asked: list[tuple[int, int]]) -> None:
    slow = max(sum(n for at, n in asked if end - 60 < at <= end) for end, _ in asked)
    assert most_in_a_minute([entry(at, tokens) for at, tokens in asked]) == slow


def test_the_long_run_rate_leaves_the_first_minute_out() -> None:
    assert long_run([entry(1, 5000), *(entry(float(at), 10) for at in range(61, 161))], 10, 60, 160) == 1.0


def test_idle_is_what_the_bucket_and_its_refill_would_have_allowed_besides() -> None:
    assert idle([entry(0, 150), entry(50, 150)], ONE, until=50) == 0.5


def test_calls_in_flight_at_once_are_counted_from_admission_to_end() -> None:
    assert most_at_once([entry(0, ended=10), entry(5, ended=7), entry(7, ended=9), entry(10, ended=11)]) == 2


def test_the_slots_in_use_are_an_average_over_time() -> None:
    entries = [entry(0, ended=5.0), entry(5.0, ended=20.0), entry(11.0)]
    assert in_use(entries, slots=2, until=10.0) == 0.5


def test_waits_of_the_first_minute_can_be_left_out() -> None:
    book = Book(came_back=[(10.0, False), (59.0, False), (61.0, True), (90.0, True), (91.0, False)])
    assert book.kept() == 0.4
    assert book.kept(60.0) == pytest.approx(2 / 3)


# -- the backlog and the models


def test_without_traces_the_error_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"real traces.*No such file"):
        traced(tmp_path, 10, 1)


def test_a_caller_has_its_prompt_and_expects_the_mean_answer() -> None:
    assert [each.estimate for each in made([(100, 10), (200, 30)], Random(1))] == [120, 220]


def test_calls_take_from_a_second_to_two_minutes() -> None:
    assert ONE.seconds(work(1, generated=0)) == 1.0
    assert ONE.seconds(work(1, generated=100)) == 11.0
    assert ONE.seconds(work(1, generated=10_000)) == 120.0


def test_the_bound_is_a_full_bucket_and_then_the_limit() -> None:
    assert least_seconds([ONE], [work(number) for number in range(10)]) == pytest.approx((1000 - 100) / 10)


# -- as it is


def as_is(backlog: Sequence[Work], metered: bool = False, **dag: Any) -> Book:
    book = Book()
    simulate(AsIs(Setting([ONE], backlog, 1), book, metered, **dag).drain())
    return book


def test_a_batch_is_answered_when_its_slowest_call_is() -> None:
    book = as_is([work(1, generated=0), work(2, generated=400)], workers=1, batch=2)
    assert book.drained == pytest.approx(41)
    assert book.answered == 2


def test_what_is_in_a_batch_at_the_timeout_is_begun_again_by_the_next_run() -> None:
    book = as_is([work(1, generated=0), work(2, generated=100)], workers=1, batch=1, timeout=11.5)
    assert (book.repeated, book.answered) == (1, 2)
    assert book.drained == pytest.approx(11.5 + 11)


def test_models_that_answer_429_are_never_given_more_than_their_bucket_of_a_minute() -> None:
    book = as_is([work(number, generated=0) for number in range(30)], metered=True, workers=3)
    assert most_in_a_minute(book.entries["one"]) <= 2 * ONE.limit
    assert long_run(book.entries["one"], ONE.rate, 0.0, book.drained) <= 1 + 60 / book.drained
    assert book.answered == 30


# -- through the router


@pytest.fixture(scope="module")
def setting() -> Setting:
    backlog = prompts(600)
    return Setting(ten_models(backlog), backlog, seed=1)


def test_a_backlog_drains_through_the_router_within_limits_and_caps(setting: Setting) -> None:
    standing = routed(setting)
    assert standing.book.answered == len(setting.backlog)
    assert standing.fullest <= 1
    assert standing.over_cap == 0
    assert standing.book.drained < 3 * least_seconds(setting.models, setting.backlog) + 120


def test_what_a_restart_interrupts_is_begun_again_and_answered_once(setting: Setting) -> None:
    standing = routed(setting, timeout=40.0)
    assert standing.book.repeated > 0
    assert standing.book.answered == len(setting.backlog)


def test_where_callers_are_few_the_weights_decide(setting: Setting) -> None:
    standing = routed(short_of_callers(setting))
    assert standing.share_error < 0.2  # of so few prompts; the lab's own backlog is 20 times as long


def test_the_same_seed_is_the_same_drain(setting: Setting) -> None:
    few = replace(setting, backlog=setting.backlog[:200])
    assert routed(few).book.drained == routed(few).book.drained


# -- crowds


def test_where_slots_are_short_they_are_as_the_weights_are_and_all_else_is_alike(setting: Setting) -> None:
    crowd = short_of_slots(setting)
    models = crowd.models
    assert len({model.slots / model.weight for model in models}) == 1
    assert len({model.seconds(work) for model in models for work in crowd.backlog[-1:]}) == 1
    assert len({work.tokens for work in crowd.backlog}) == 1
    assert crowd.callers == 2 * sum(model.slots for model in models)
    assert all(work.estimate == work.tokens for work in short_of_tokens(setting).backlog)


def test_where_slots_are_short_shares_are_as_the_weights_are_and_no_cap_is_exceeded() -> None:
    backlog = prompts(2400)
    standing = routed(short_of_slots(Setting(ten_models(backlog), backlog, seed=1)))
    assert standing.share_error < 0.02
    assert standing.over_cap == 0
    assert all(part.in_use > 0.9 for part in standing.parts)


def test_callers_with_one_call_each_take_little_more_than_the_slots_have_to() -> None:
    assert 1.0 <= at_once(150, 1.0) <= 2.0
