"""The quota lab's crowds, and the books of callers that are killed: what is wrong is found, and nothing else."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from redis import Redis

from bench.quota.asking import Recorded, Simulated
from bench.quota.backlog import Work, made
from bench.quota.book import Book, Entry, Tries
from bench.quota.caller import Orders
from bench.quota.cases import full_slots
from bench.quota.crowds import (
    Crowd,
    Setting,
    short_of_callers,
    short_of_slots,
    short_of_tokens,
    short_of_tokens_or_slots,
)
from bench.quota.held import in_use
from bench.quota.journal import Journal, Journals
from bench.quota.models import Model, ten_models
from bench.quota.script import redis_for_simulation
from bench.quota.simulated import simulate
from bench.quota.standing import Standing
from slb.quota.client import Router
from slb.quotas import MOST_TOKENS

ONE = Model("one", limit=600, speed=10.0, first=1.0, slots=2, weight=1, burst=100)


def setting(count: int = 400) -> Setting:
    rng = Random(1)
    backlog = made([(rng.randrange(50, 2000), rng.randrange(1, 300)) for _ in range(count)], rng)
    return Setting(ten_models(backlog), backlog, seed=1)


class Said:
    """Answers what it was given, in turn."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._answers.pop(0)


# -- crowds


def test_where_slots_are_short_they_are_as_the_weights_are_and_all_else_is_alike() -> None:
    crowd = short_of_slots(setting(1000))
    models = crowd.setting.models
    assert len({model.slots / model.weight for model in models}) == 1
    assert len({model.seconds(work) for model in models for work in crowd.setting.backlog[-1:]}) == 1
    assert len({work.tokens for work in crowd.setting.backlog}) == 1
    assert crowd.callers == 2 * sum(model.slots for model in models)


def test_where_tokens_are_short_callers_know_what_they_need() -> None:
    assert all(work.estimate == work.tokens for work in short_of_tokens(setting()).setting.backlog)


def test_for_the_kills_every_second_model_has_too_few_slots_for_its_tokens() -> None:
    roomy, some = setting(), short_of_tokens_or_slots(setting())
    pairs = list(zip(roomy.models, some.setting.models, strict=True))
    assert [few.slots < model.slots / 3 for model, few in pairs] == [False, True] * 5
    assert some.callers == 2 * sum(few.slots for _, few in pairs)


def test_a_crowd_has_more_prompts_than_it_can_come_to_and_begins_anew_where_the_backlog_is_short() -> None:
    crowd = short_of_tokens(setting(400)).hurried(10)
    backlog = crowd.for_seconds(60).setting.backlog
    assert sum(work.tokens for work in backlog) > sum(model.rate for model in crowd.setting.models) * 60
    assert backlog[400] == backlog[0]


def test_no_hurry_raises_a_limit_above_what_a_router_takes() -> None:
    crowd = short_of_callers(setting()).hurried(1000)
    assert max(model.limit for model in crowd.setting.models) == MOST_TOKENS


def test_a_crowd_asks_for_so_long_and_what_runs_then_is_given_back() -> None:
    models = [ONE, Model("two", 600, 10.0, 1.0, 2, 1, 100)]
    works = [Work(number, 20, 100, 30, 1.0) for number in range(100)]
    book = Book()
    crowd = Crowd(Setting(models, works, 1), callers=8, pace=1.0)

    async def run(redis: Redis) -> None:
        async with Router(Recorded(Simulated(models, redis, Random(1)), book)) as router:
            await crowd.ask(router, 25.0, book)

    with redis_for_simulation() as redis:
        simulate(run(redis))
    assert book.exhausted == 25
    assert max(entry.ended for entry in book.all()) == pytest.approx(25)
    assert len(book.answered) < len(works)


def test_where_slots_are_short_shares_are_as_the_weights_are_and_no_cap_is_exceeded() -> None:
    standing = full_slots(setting(2400))
    assert standing.share_error < 0.02
    assert standing.over_cap == 0
    assert all(held.in_use > 0.9 for held in standing.held)


def test_the_slots_in_use_are_an_average_over_time() -> None:
    entries = [Entry("one", 1, 0.0, 0.0, 5.0), Entry("one", 1, 5.0, 5.0, 20.0), Entry("one", 1, 11.0, 11.0)]
    assert in_use(entries, slots=2, until=10.0) == 0.5


def test_who_comes_back_later_than_told_is_late_by_so_much() -> None:
    book = Book()
    wait, task = {"wait_for_ms": 500}, {"task_id": "t", "model_backend_id": "one"}

    async def run() -> None:
        recorded = Recorded(Said(wait, task), book)
        recorded.open()
        for pause in (0.75, 0.0):
            await recorded.ask("POST", "/schedule", {"estimated_tokens": 1, "idempotency_key": "k"})
            await asyncio.sleep(pause)

    simulate(run())
    assert book.late == pytest.approx([0.25])
    assert book.tries.kept == 1


# -- the books of callers that may be killed


def told(task: str, at: float, tokens: int = 10) -> dict[str, Any]:
    return {"event": "told", "task": task, "model": "one", "estimate": tokens, "asked": at, "told": at + 0.5}


def written(folder: Path, *lines: dict[str, Any], rest: bytes = b"") -> Path:
    file = folder / f"{len(list(folder.iterdir()))}.jsonl"
    file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines) + rest)
    return file


def test_a_dead_callers_task_holds_its_slot_until_a_lease_after_its_last_sign_of_life(tmp_path: Path) -> None:
    lines = [told("a", 1.0), told("b", 1.0), {"event": "alive", "task": "b", "at": 4.0}]
    book = Journals.read([written(tmp_path, *lines, told("c", 2.0), {"event": "done", "task": "c", "at": 3.0})])
    assert book.in_hand() == ["a", "b"]
    assert [entry.ended for entry in book.book([], lease=5.0).entries["one"]] == [6.0, 9.0, 3.0]


def test_one_more_at_once_than_there_are_slots_is_found(tmp_path: Path) -> None:
    files = [written(tmp_path, told("a", 1.0), told("b", 1.0)), written(tmp_path, told("c", 5.0))]
    for lease, over in ((5.0, 1), (4.0, 0)):
        book = Journals.read(files).book([], lease)
        assert Standing("", book, [ONE]).over_cap == over


def test_what_was_taken_back_came_to_nothing_though_its_caller_lives(tmp_path: Path) -> None:
    file = written(tmp_path, told("a", 1.0), {"event": "done", "task": "a", "at": 30.0})
    (entry,) = Journals.read([file]).book(["a"], lease=5.0).entries["one"]
    assert (entry.ended, entry.actual) == (6.0, 0)


def test_a_task_that_two_were_told_of_is_found(tmp_path: Path) -> None:
    files = [written(tmp_path, told("a", 1.0)), written(tmp_path, told("a", 2.0), told("b", 2.0))]
    assert Journals.read(files).twice == ["a"]


def test_a_line_that_a_caller_did_not_live_to_end_says_nothing(tmp_path: Path) -> None:
    assert list(Journals.read([written(tmp_path, told("a", 1.0), rest=b'{"event": "told", "ta')]).tasks) == ["a"]
    assert not Journals.read([written(tmp_path, rest=b'{"event"')]).tasks


async def test_a_journal_says_what_was_done_before_it_is_answered(tmp_path: Path) -> None:
    answers = {"task_id": "a", "model_backend_id": "one"}, {"wait_for_ms": 50}, {"ok": True}, {"ok": False}
    journal = Journal(Said(*answers), tmp_path / "journal")
    journal.open()
    for path in ("/schedule", "/schedule", "/heartbeat", "/heartbeat"):
        await journal.ask("POST", path, {"estimated_tokens": 7, "task_id": "a"})
    read = Journals.read([tmp_path / "journal"])
    assert read.in_hand() == ["a"]
    assert read.alive["a"] > read.tasks["a"].asked
    with pytest.raises(IndexError):  # nobody answers
        await journal.ask("POST", "/complete", {"task_id": "a"})
    assert Journals.read([tmp_path / "journal"]).in_hand() == []
    await journal.close()


def test_orders_are_read_as_they_were_written(tmp_path: Path) -> None:
    some = setting(3)
    orders = Orders(["http://127.0.0.1:1"], some.models, some.backlog, callers=2, processes=3, seed=1)
    orders.write(tmp_path / "orders")
    assert Orders.read(tmp_path / "orders") == orders


def test_waits_of_the_first_minute_can_be_left_out() -> None:
    tries = Tries()
    for at, admitted in ((10.0, False), (59.0, False), (61.0, True), (90.0, True), (91.0, False)):
        tries.count(admitted, at)
    assert tries.kept == 0.4
    assert tries.kept_since(60.0) == pytest.approx(2 / 3)
