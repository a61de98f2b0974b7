"""What the quota router does where there are too many models, where its script fails, where keys come again."""

import asyncio
from typing import Any

import pytest
import structlog

from slb.control.ask_lane import AskTiming
from slb.errors import ScriptFailed
from slb.quotas import MOST_MODELS, Abandoned, Admitted, Denied, Limits, Rules, Wait
from tests.redis.quota_instances import AMPLE, Instance, Script, Starter
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until, until_found, within

ROW = [60_000, 5, 1, 0, 0]
"""Limits as the script takes them."""


@pytest.fixture
def script(valkey: Valkey) -> Script:
    return Script(valkey)


def key(name: str) -> str:
    return f"slb:{{quota}}:{name}"


# -- how many models


async def test_there_may_be_so_many_models_and_no_more(start: Starter, script: Script) -> None:
    one = await start()
    script.run(*(["put", f"m{number}", *ROW] for number in range(MOST_MODELS)))
    assert await one.quota.put("new", AMPLE) == Denied("too_many_models")
    assert isinstance(await one.quota.put("m7", {"weight": 2}), Limits), "it is there already"
    assert len(await one.quota.models()) == MOST_MODELS
    assert await one.quota.delete("m7")
    assert isinstance(await one.quota.put("new", AMPLE), Limits)


async def test_puts_and_deletes_of_ids_in_a_loop_do_not_fill_it(start: Starter) -> None:
    one = await start()
    for number in range(2 * MOST_MODELS):
        assert isinstance(await one.quota.put(f"m{number}", AMPLE), Limits)
        assert await one.quota.delete(f"m{number}")
    assert await one.quota.models() == []


def test_a_deleted_model_counts_while_it_has_tasks_or_a_minute_that_does(script: Script, valkey: Valkey) -> None:
    def known() -> set[str]:
        script.run()
        admin: Any = valkey.admin
        return set(admin.zrange(key("models"), 0, -1))

    script.run(["put", "a", *ROW], ["schedule", "t", 10, 0, "", ["a"]], ["delete", "a"])
    script.ahead = 70_000
    assert known() == {"a"}
    script.run(["complete", "t", -1])
    assert known() == set()
    assert not valkey.admin.exists(key("minute:a"))


def test_a_model_that_comes_back_is_not_given_its_minute_twice(script: Script) -> None:
    script.run(["put", "a", *ROW], ["schedule", "t", 10_000, 0, "", False], ["complete", "t", -1], ["delete", "a"])
    script.ahead = 1_000
    script.run(["put", "a", *ROW])
    ((row,),) = script.run(["models"])
    assert int(row[3]) < 2_000 * 60_000
    assert row[7] == "10000"


def test_no_more_are_restored_than_there_may_be(script: Script) -> None:
    rows = [[f"m{number:03}", *ROW] for number in range(MOST_MODELS + 5)]
    restored, models = script.run(["restore", rows], ["models"])
    assert restored == [MOST_MODELS]
    assert [row[0] for row in models] == [row[0] for row in rows[:MOST_MODELS]]
    assert {row[3] for row in models} == {"0"}


async def test_a_set_that_is_larger_already_is_decided_over_all_the_same(start: Starter, valkey: Valkey) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    admin: Any = valkey.admin
    written = {name: admin.hget(key(name), "a") for name in ("limits", "state")}
    many = [f"m{number}" for number in range(8_200)]
    pipeline = admin.pipeline()
    pipeline.zadd(key("models"), dict.fromkeys(many, 0))
    for name, value in written.items():
        pipeline.hset(key(name), mapping=dict.fromkeys(many, value))
    pipeline.execute()
    assert isinstance(await one.ask(10), Admitted)
    assert isinstance(await one.quota.put("m1", {"weight": 3}), Limits)
    assert await one.quota.put("new", AMPLE) == Denied("too_many_models")


# -- faults


async def test_a_fault_of_the_script_has_a_name_and_fails_no_other_call(start: Starter, valkey: Valkey) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    valkey.admin.set(key("task:bad"), "no hash")
    with structlog.testing.capture_logs() as logs:
        answers = await asyncio.gather(
            one.quota.complete("bad", None),
            one.ask(10),
            one.quota.heartbeat("bad"),
            one.ask(10),
            return_exceptions=True,
        )
    assert [type(answer) for answer in answers] == [ScriptFailed, Admitted, ScriptFailed, Admitted]
    assert "WRONGTYPE" in str(answers[0])
    assert ["WRONGTYPE" in line["error"] for line in logs if line["event"] == "quota_script_failed"] == [True]
    (model,) = await one.quota.models()
    assert (model.in_flight, model.minute) == (2, 20), "what the others did is written down"


async def test_where_nothing_can_be_decided_it_is_no_outage_and_is_logged_once(
    start: Starter, valkey: Valkey
) -> None:
    one = await start(is_open=True)
    await one.quota.put("a", AMPLE)
    await one.has_read("a")
    good = valkey.admin.hget(key("limits"), "a")
    with structlog.testing.capture_logs() as logs:
        valkey.admin.hset(key("limits"), "a", "nonsense")
        for _ in range(3):
            with pytest.raises(ScriptFailed, match="script"):
                await one.ask(10)
    assert [line["event"] for line in logs if line["log_level"] in ("error", "warning")] == ["quota_script_failed"]
    valkey.admin.hset(key("limits"), "a", good)
    assert isinstance(await one.ask(10), Admitted)


# -- keys


async def test_an_answer_that_is_given_again_is_not_counted_again(start: Starter) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    first = await one.ask(20, "k")
    assert [await one.ask(20, "k") for _ in range(3)] == [first] * 3
    counts = one.metrics.quota
    assert counts.tokens == {"a": 20}
    assert dict(counts.decisions) == {("admitted", "a", ""): 1, ("replayed", "a", ""): 3}


@pytest.mark.parametrize(("tokens", "models"), [(21, None), (20, ["a"])])
async def test_a_key_stands_for_one_request_while_it_runs_and_while_it_waits(
    start: Starter, tokens: int, models: list[str] | None
) -> None:
    one = await start()
    await one.quota.put("a", {**AMPLE, "max_concurrent_requests": 1})
    first = await one.ask(20, "runs")
    assert isinstance(first, Admitted)
    assert isinstance(await one.ask(20, "waits"), Wait)
    for name in ("runs", "waits"):
        assert await one.ask(tokens, name, models) == Denied("idempotency_mismatch")
    (model,) = await one.quota.models()
    assert (model.in_flight, model.waiting) == (1, 1)
    await one.quota.complete(first.task, None)
    assert isinstance(await one.ask(tokens, "runs", models), Admitted | Wait), "that task is over"


async def test_a_task_of_an_older_version_is_given_again_whatever_models_would_do(
    start: Starter, valkey: Valkey
) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    first = await one.ask(20, "k", ["a"])
    assert isinstance(first, Admitted)
    valkey.admin.hdel(key(f"task:{first.task}"), "subset")
    assert await one.ask(20, "k") == first


async def test_a_key_is_known_as_long_as_its_task_runs_and_no_longer(start: Starter, valkey: Valkey) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    first = await one.ask(20, "k")
    assert isinstance(first, Admitted)
    assert valkey.admin.pttl(key("key:k")) == -1
    await one.quota.complete(first.task, None)
    assert not valkey.admin.exists(key("key:k"))


# -- limits, waits, lists


def far_places(script: Script) -> None:
    """Of 20 callers one is admitted; the last 13 come back after a minute for the rest of their wait."""
    script.run(["put", "a", 6_000, 100, 1, 1_000, 0])
    script.run(*(["schedule", f"t{number}", 1_000, 0, "", False] for number in range(20)))
    script.ahead = 60_000


def places(valkey: Valkey) -> tuple[set[str], set[str]]:
    """All, and those whose callers come back before them."""
    admin: Any = valkey.admin
    return set(admin.zrange(key("promises:a"), 0, -1)), set(admin.zrange(key("far:a"), 0, -1))


@pytest.mark.parametrize("change", [["put", "a", -1, -1, 2, -1, -1], ["delete", "a"]])
def test_no_ask_finds_a_place_that_went_in_the_same_call(script: Script, valkey: Valkey, change: list[Any]) -> None:
    far_places(script)
    script.run(["put", "b", 6_000, 100, 1, 1_000, 0], ["schedule", "t20", 1_000, 0, "", ["b"]])
    asks = [["schedule", f"u{number}", 1_000, 0, "", False] for number in range(14)]
    *_, models = script.run(asks[0], change, *asks[1:], ["models"])
    epochs, far = places(valkey)
    assert far <= epochs
    assert [row[6] for row in models if row[0] == "a"] in ([], [len(epochs)])
    assert all(row[6] >= 0 for row in models)


def test_places_that_redis_has_lost_are_lost_whole(script: Script, valkey: Valkey) -> None:
    far_places(script)
    valkey.admin.delete(key("promises:a"))
    script.run()
    assert places(valkey) == (set(), set())
    far_places(script)
    for script.ahead in range(60_000, 300_000, 10_000):
        script.run()


def test_a_put_does_not_forget_what_the_last_minute_had(script: Script) -> None:
    script.run(["put", "a", 600_000, 5, 1, 0, 0], ["schedule", "t1", 100_000, 0, "", False], ["complete", "t1", -1])
    assert script.run(["put", "a", *ROW], ["schedule", "t2", 10, 0, "", False])[1][0] == "wait"
    script.ahead = 59_000
    assert script.run(["schedule", "t2", 10, 0, "", False])[0][0] == "wait"
    script.ahead = 61_000
    assert script.run(["schedule", "t2", 10, 0, "", False])[0][0] == "admitted"


def test_the_last_minute_is_looked_up_once_however_many_ask_together(script: Script, valkey: Valkey) -> None:
    script.run(["put", "a", 600_000, 5, 1, 0, 0], ["schedule", "t1", 100_000, 0, "", False], ["complete", "t1", -1])
    script.run(["put", "a", *ROW])
    admin: Any = valkey.admin
    admin.config_resetstat()
    answers = script.run(*(["schedule", f"u{number}", 10, 0, f"k{number}", False] for number in range(200)))
    assert {each[0] for each in answers} == {"wait"}
    assert admin.info("commandstats")["cmdstat_hgetall"]["calls"] <= 2


async def test_callers_of_a_paused_model_do_not_come_back_at_once(start: Starter) -> None:
    one = await start()
    await one.quota.put("a", {**AMPLE, "paused": True})
    answers = await asyncio.gather(*(one.ask(10) for _ in range(100)))
    waits = {answer.ms for answer in answers if isinstance(answer, Wait) and answer.reason == "paused"}
    assert len(waits) > 30
    assert 1_000 <= min(waits) < 1_030
    assert 1_070 < max(waits) <= 1_100


async def test_abandoned_tasks_are_listed_page_by_page(start: Starter) -> None:
    one = await start(Rules(lease=600))
    await one.quota.put("a", AMPLE)
    given = {answer.task for answer in [await one.ask(1) for _ in range(7)] if isinstance(answer, Admitted)}
    await eventually(lambda: one.metrics.quota.reclaimed == 7)
    found: list[Abandoned] = []
    left_off = -1
    while left_off:
        page, left_off = await one.quota.abandoned(found[-1].task if found else "", 3)
        found += page
        assert left_off == 7 - len(found)
        assert len(page) <= 3
    assert len(found) == 7
    assert {each.task for each in found} == given
    assert await one.quota.abandoned("forgotten", 3) == (found[:3], 4)


async def test_lost_models_are_given_back_all_at_once(start: Starter, valkey: Valkey, script: Script) -> None:
    one = await start()
    names = [f"m{number:02}" for number in range(30)]
    await asyncio.gather(*(one.quota.put(name, AMPLE) for name in names))
    await one.has_read(*names)
    valkey.admin.flushall()
    seen = {0}
    async with within(20):
        while max(seen) == 0:
            seen.add(await asyncio.to_thread(valkey.admin.zcard, key("models")))
    assert seen == {0, 30}


async def test_lost_models_are_restored_by_an_instance_that_had_them_though_another_comes_first(
    start: Starter, valkey: Valkey, script: Script
) -> None:
    one = await start(timing=AskTiming(beat=60, deadline=5))
    await one.quota.put("a", AMPLE)
    await one.has_read("a")
    valkey.admin.flushall()
    script.run()  # a caller without the models
    await until_found(one.quota.models)


async def test_lost_models_come_back_beside_one_that_was_set_first(
    start: Starter, valkey: Valkey, script: Script
) -> None:
    one, other = await start(timing=AskTiming(beat=1, deadline=5)), await start()
    for name in ("a", "b", "c"):
        await one.quota.put(name, AMPLE)
    for each in (one, other):
        await each.has_read("a", "b", "c")
    valkey.admin.flushall()
    await one.quota.put("a", {**AMPLE, "weight": 7})
    found = await until(one.quota.models, lambda models: len(models) == 3)
    assert [(each.model, each.limits.weight) for each in found] == [("a", 7), ("b", 1), ("c", 1)]
    await one.quota.delete("c")
    assert script.run(["restore", [["c", *ROW]]]) == [[0]], "it was deleted since"


def test_long_after_a_loss_models_are_restored_only_where_there_are_none(script: Script) -> None:
    script.run(["put", "a", *ROW])
    script.ahead = 10_000
    assert script.run(["restore", [["b", *ROW]]]) == [[0]]
    script.run(["delete", "a"])
    assert script.run(["restore", [["b", *ROW]]]) == [[1]]


async def test_no_call_is_denied_while_lost_models_are_given_back(start: Starter, valkey: Valkey) -> None:
    one, other = await start(), await start()
    await one.quota.put("a", AMPLE)
    await one.has_read("a")
    await other.has_read("a")
    for _ in range(5):
        valkey.admin.flushall()
        answers = [
            await each.ask(1, "", models) for each in (one, other) for models in (None, ["a"]) for _ in range(5)
        ]
        assert not [answer for answer in answers if isinstance(answer, Denied)]
        await until(lambda: one.ask(1), lambda decision: isinstance(decision, Admitted))


# -- without Redis


async def alone(one: Instance, valkey: Valkey, *models: str) -> None:
    await one.has_read(*models)
    valkey.kill()
    assert isinstance(await one.ask(1), Wait)
    one.clock = 60_000


async def test_a_share_of_nothing_has_a_reason_of_its_own(start: Starter, valkey: Valkey) -> None:
    one = await start(is_open=True, parts=3)
    await one.quota.put("a", {**AMPLE, "max_concurrent_requests": 2})
    await one.quota.put("b", {**AMPLE, "paused": True})
    await alone(one, valkey, "a", "b")
    for models, reason in ((None, "no_local_share"), (["a"], "no_local_share"), (["b"], "paused")):
        answers = [await one.ask(10, "", models) for _ in range(20)]
        assert {answer.reason for answer in answers if isinstance(answer, Wait)} == {reason}
        waits = {answer.ms for answer in answers if isinstance(answer, Wait)}
        assert len(waits) > 5
        assert 1_000 <= min(waits) <= max(waits) <= 1_100
    assert await one.ask(10**8) == Denied("estimate_exceeds_limit", "a", 10_000_000), "the whole, not the share"


async def test_a_model_that_is_not_known_without_redis_may_be_known_to_it(start: Starter, valkey: Valkey) -> None:
    one = await start(is_open=True)
    await one.quota.put("a", AMPLE)
    await alone(one, valkey, "a")
    answer = await one.ask(10, "", ["a", "new"])
    assert isinstance(answer, Wait)
    assert answer.reason == "redis_down"


async def test_a_task_of_its_own_is_counted_and_has_an_id_of_its_own(start: Starter, valkey: Valkey) -> None:
    one = await start(is_open=True)
    await one.quota.put("a", AMPLE)
    await alone(one, valkey, "a")
    first = await one.ask(10, "k")
    assert isinstance(first, Admitted)
    assert first.task.startswith("tsk_local_")
    assert await one.ask(10, "k") == first
    assert one.metrics.quota.tokens == {"a": 10}
