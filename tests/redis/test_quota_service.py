"""The quota router of several instances on one Valkey; and of one that is without it."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.control.keys import quota_keys
from slb.control.scripts import quota_source
from slb.errors import RedisUnavailable
from slb.observe.metrics import Metrics
from slb.quota.script import written_rules
from slb.quotas import Abandoned, Admitted, Denied, Limits, Rules, Wait
from tests.redis.quota_instances import AMPLE, Instance, Script, Starter
from tests.support.acl import acl_rules
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until_found


async def abandoned(one: Instance) -> list[Abandoned]:
    """The first page."""
    listed, _ = await one.quota.abandoned()
    return listed


def written_down(valkey: Valkey) -> None:
    """All that was written is in its file: a busy disk may be a second behind."""
    admin: Any = valkey.admin
    admin.set("now", 1)
    assert admin.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1


async def test_what_one_instance_admits_the_others_know_of(start: Starter) -> None:
    one, other = await start(), await start()
    await one.quota.put("a", {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 2})
    first = await one.ask(10)
    assert isinstance(first, Admitted)
    assert isinstance(await other.ask(10), Admitted)
    assert isinstance(await one.ask(10), Wait)
    assert await other.quota.complete(first.task, 5) == "completed"
    assert await one.quota.complete(first.task, 0) == "completed"
    (model,) = await one.quota.models()
    assert (model.in_flight, model.minute) == (1, 15)


async def test_calls_that_come_together_go_to_redis_together(start: Starter) -> None:
    one = await start(timing=AskTiming(beat=60, deadline=5))
    await one.quota.put("a", AMPLE)
    before = one.metrics.quota.batches
    answers = await asyncio.gather(*(one.ask(10) for _ in range(200)))
    assert all(isinstance(answer, Admitted) for answer in answers)
    assert len({answer.task for answer in answers if isinstance(answer, Admitted)}) == 200
    assert one.metrics.quota.batches - before <= 4


async def test_limits_that_are_put_hold_from_the_next_decision_on_everywhere(start: Starter) -> None:
    one, other = await start(), await start()
    await one.quota.put("a", AMPLE)
    assert isinstance(await other.ask(10), Admitted)
    with capture_logs() as lines:
        limits = await one.quota.put("a", {"paused": True})
    (line,) = [line for line in lines if line["event"] == "quota_model_set"]
    assert (line["model"], line["max_tokens_per_minute"], line["paused"]) == ("a", 60_000_000, True)
    assert isinstance(limits, Limits)
    assert (limits.max_tokens_per_minute, limits.paused) == (60_000_000, True)
    answer = await other.ask(10)
    assert isinstance(answer, Wait)
    assert answer.reason == "paused"
    await one.quota.put("a", {"paused": False, "burst": 5})
    assert await other.ask(10) == Denied("estimate_exceeds_limit", "a", 5)


async def test_a_new_model_needs_its_limits_and_nothing_is_written_without(start: Starter) -> None:
    one = await start()
    assert await one.quota.put("a", {"max_tokens_per_minute": 5}) == Denied("incomplete")
    assert await one.quota.models() == []
    assert not await one.quota.delete("a")


async def test_of_many_puts_at_once_each_field_is_of_one_of_them(start: Starter) -> None:
    instances = [await start() for _ in range(3)]
    await instances[0].quota.put("a", AMPLE)
    puts = [
        each.quota.put("a", {"weight": number + 1, "max_concurrent_requests": 10 * (number + 1)})
        for number, each in enumerate(instances * 10)
    ]
    await asyncio.gather(*puts)
    (model,) = await instances[0].quota.models()
    assert model.limits.max_concurrent_requests == 10 * model.limits.weight
    assert model.limits.max_tokens_per_minute == 60_000_000


async def test_a_lapsed_lease_is_reclaimed_once_without_calls_and_with_many_instances(start: Starter) -> None:
    rules = Rules(lease=600)
    instances = [await start(rules) for _ in range(3)]
    await instances[0].quota.put("a", {"max_tokens_per_minute": 600, "max_concurrent_requests": 1})
    given = await instances[0].ask(100, "k")
    assert isinstance(given, Admitted)
    counts = [each.metrics.quota for each in instances]
    await eventually(lambda: sum(each.reclaimed for each in counts) > 0)
    (model,) = await instances[1].quota.models()
    assert (model.in_flight, model.minute) == (0, 0)
    assert model.tokens == 100
    assert await instances[1].quota.heartbeat(given.task) == "abandoned"
    assert await instances[2].quota.complete(given.task, 0) == "abandoned"
    (listed,) = await abandoned(instances[2])
    assert (listed.task, listed.model, listed.estimate, listed.key) == (given.task, "a", 100, "k")
    assert sum(each.reclaimed for each in counts) == 1
    assert isinstance(await instances[0].ask(100, "k"), Admitted)


async def test_a_heartbeat_keeps_a_task(start: Starter) -> None:
    one = await start(Rules(lease=1500))
    await one.quota.put("a", AMPLE)
    kept, lost = await one.ask(1), await one.ask(2)
    assert isinstance(kept, Admitted)
    assert isinstance(lost, Admitted)

    async def after_a_heartbeat() -> list[Abandoned]:
        assert await one.quota.heartbeat(kept.task) == "running"
        return await abandoned(one)

    assert [each.task for each in await until_found(after_a_heartbeat)] == [lost.task]


async def test_an_unknown_task_is_none(start: Starter) -> None:
    one = await start()
    assert await one.quota.complete("unknown", None) is None
    assert await one.quota.heartbeat("unknown") is None


async def test_the_advice_is_of_all_instances(start: Starter) -> None:
    one, other = await start(), await start()
    await one.quota.put("a", {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 8})
    assert await other.quota.advice() == (0.0, 8)
    for asking in (one, other):
        for _ in range(6):
            await asking.ask(1)
    score, parallelism = await other.quota.advice()
    assert 0 < score < 1
    assert parallelism == 8


async def test_keys_are_kept_no_longer_than_they_are_of_use(start: Starter, valkey: Valkey) -> None:
    one = await start()
    await one.quota.put("a", {"max_tokens_per_minute": 600, "max_concurrent_requests": 1})
    given = await one.ask(60, "k1")
    for number in range(120):  # the last have to wait for longer than they are answer
        await one.ask(90, f"k{number + 2}")
    assert isinstance(given, Admitted)
    assert valkey.admin.zcard("slb:{quota}:far:a") > 0
    await one.quota.complete(given.task, 10)
    lasting = {key for key in valkey.admin.keys("*") if valkey.admin.ttl(key) == -1}
    assert lasting == {f"slb:{{quota}}:{name}" for name in ("models", "limits", "state", "clock")}


async def test_the_rights_that_are_documented_are_enough(valkeys: Callable[..., Valkey]) -> None:
    valkey = valkeys()
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    connection = Connection(f"{valkey.url}?username=slb&password=pw", Metrics())
    script = connection.client.register_script(quota_source())
    rules = written_rules(Rules(lease=4_000, longest_wait=60_000))
    times: list[int] = []
    put = ["put", "a", 6000, 2, 1, 0, 0]

    async def call(ahead: int, *asks: list[Any]) -> list[Any]:
        at = {"at": times[0] + ahead} if times else {}  # the first call goes by the server's own clock
        now, *_, replies = await script(keys=quota_keys(), args=[orjson.dumps({**rules, **at, "asks": asks})])
        times.append(int(now))
        return list(replies)

    def ask(task: str, tokens: int, key: str = "") -> list[Any]:
        return ["schedule", task, tokens, 0, key, False]

    await call(0, put, ask("t1", 10), ask("t2", 10), ask("t3", 10), ask("t4", 10, "k"), ["complete", "t1", 5])
    await call(1_500, ask("t5", 10), ask("t6", 10, "k"), ["models"], ["advice"])
    await call(3_000, ["heartbeat", "t5"])
    ((_, listed),) = await call(4_500, ["abandoned", "", 10])
    assert [row[0] for row in listed] == ["t2"]
    await call(4_500, ["abandoned", "t2", 10])
    await call(3_700_000, put, ["delete", "a"], ["restore", [["b", 60, 1, 1, 0, 0]]])
    assert await call(7_400_000, ["models"]) == [[["b", "60 1 1 0 0", 0, "600000", "0", "0", 0, "0"]]]
    await connection.aclose()


async def test_without_redis_every_answer_is_a_wait_with_its_reason(start: Starter, valkey: Valkey) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    given = await one.ask(10)
    assert isinstance(given, Admitted)
    written_down(valkey)
    valkey.kill()
    answer = await one.ask(10)
    assert isinstance(answer, Wait)
    assert answer.reason == "redis_down"
    assert 900 <= answer.ms <= 1100
    with pytest.raises(RedisUnavailable):
        await one.quota.complete(given.task, None)
    with pytest.raises(RedisUnavailable):
        await one.quota.advice()
    await eventually(lambda: not one.metrics.quota.is_shared)
    valkey.start()
    await eventually(lambda: one.metrics.quota.is_shared)
    assert await one.quota.complete(given.task, None) == "completed"
    assert isinstance(await one.ask(10), Admitted)


async def test_a_redis_that_answers_nothing_is_away_too(start: Starter, valkey: Valkey) -> None:
    one = await start(timing=AskTiming(beat=0.1, deadline=0.2, backoff=0.05))
    await one.quota.put("a", AMPLE)
    valkey.freeze()
    try:
        answer = await one.ask(10)
    finally:
        valkey.thaw()
    assert isinstance(answer, Wait)
    assert answer.reason == "redis_down"
    await eventually(lambda: one.metrics.quota.is_shared)


@pytest.mark.parametrize("is_open", [False, True], ids=["waiting", "alone"])
async def test_what_a_frozen_redis_admits_late_to_callers_that_were_told_to_wait_is_given_back(
    start: Starter, valkey: Valkey, is_open: bool
) -> None:
    one = await start(is_open=is_open, parts=1, timing=AskTiming(beat=0.1, deadline=0.3, backoff=0.05))
    await one.quota.put("a", AMPLE)
    await one.has_read("a")
    admissions: list[Wait | Admitted] = []
    valkey.freeze()
    try:
        for answer in await asyncio.gather(*(one.ask(10) for _ in range(20)), one.ask(10, "k")):
            assert isinstance(answer, Wait | Admitted)
            admissions.append(answer)
    finally:
        valkey.thaw()
    assert all(isinstance(answer, Wait) for answer in admissions), "alone it begins with an empty bucket"
    await eventually(lambda: one.metrics.quota.is_shared)
    again = await one.ask(10, "k")
    assert isinstance(again, Admitted), "one with a key comes for its task"

    async def given_back() -> bool:
        (model,) = await one.quota.models()
        return model.in_flight == 1 and model.minute == 10

    await until_found(given_back)


async def test_what_is_withdrawn_is_not_admitted_afterwards(start: Starter, valkey: Valkey) -> None:
    script = Script(valkey)
    script.run(["put", "a", 60_000, 1, 1, 0, 0])
    assert script.run(["withdraw", "t1"], ["schedule", "t1", 10, 0, "", False])[1][0] == "wait"
    assert script.run(["schedule", "t2", 10, 0, "k", False])[0][:1] == ["admitted"]
    script.run(["withdraw", "t2"], ["withdraw", "t2"])
    ((_, _, running, _, _, _, _, minute),) = script.run(["models"])[0]
    assert (running, minute) == (0, "0")


async def test_a_redis_that_was_away_is_tried_again_and_not_only_with_the_next_beat(
    start: Starter, valkey: Valkey
) -> None:
    one = await start(timing=AskTiming(beat=60.0))
    await one.quota.put("a", AMPLE)
    valkey.kill()
    answer = await one.ask(10)
    assert isinstance(answer, Wait)
    assert answer.reason == "redis_down"
    valkey.start()
    await eventually(lambda: one.metrics.quota.is_shared)


async def test_where_it_fails_open_each_admits_its_share_of_each_limit(start: Starter, valkey: Valkey) -> None:
    one = await start(is_open=True, parts=2)
    await one.quota.put("a", {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 6})
    await one.has_read("a")
    valkey.kill()
    first = await one.ask(100)
    assert isinstance(first, Wait), "its bucket is empty at first"
    assert first.reason == "redis_down"
    one.clock = 60_000
    answers = [await one.ask(1_000) for _ in range(10)]
    admitted = [answer for answer in answers if isinstance(answer, Admitted)]
    assert len(admitted) == 3, "of six slots"
    assert await one.quota.heartbeat(admitted[0].task) == "running"
    assert [await one.quota.complete(each.task, 1_000) for each in admitted] == ["completed"] * 3
    one.clock = 80_000
    answers = [await one.ask(2_000) for _ in range(10)]
    assert sum(isinstance(answer, Admitted) for answer in answers) == 2, "of a bucket of five thousand"
    large = await one.ask(6_000)
    assert isinstance(large, Wait), "too large for the share, and not for the model"
    assert large.reason == "no_local_share"
    assert 1_000 <= large.ms <= 1_100
    valkey.start()
    await eventually(lambda: one.metrics.quota.is_shared)
    assert await one.quota.complete(admitted[0].task, 0) == "completed"
    assert isinstance(await one.ask(6_000), Admitted)


async def test_a_redis_that_lost_its_data_is_given_the_models_again_with_empty_buckets(
    start: Starter, valkey: Valkey
) -> None:
    one = await start()
    await one.quota.put("a", {"max_tokens_per_minute": 600, "max_concurrent_requests": 4, "weight": 3})
    await one.has_read("a")
    valkey.admin.flushall()
    (model,) = await until_found(one.quota.models)
    assert model.limits.weight == 3
    assert model.tokens < 100


async def test_a_task_that_took_just_what_was_estimated_is_completed_as_any_other(start: Starter) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    admitted = await one.ask(20)
    assert isinstance(admitted, Admitted)
    assert await one.quota.complete(admitted.task, 20) == "completed"
    assert isinstance(await one.ask(20), Admitted)


async def test_a_key_whose_task_is_over_takes_a_slot_and_tokens_as_any_other(start: Starter) -> None:
    one = await start()
    await one.quota.put("a", {**AMPLE, "max_concurrent_requests": 1})
    first = await one.ask(20, "row-7")
    assert isinstance(first, Admitted)
    await one.quota.complete(first.task, None)
    assert isinstance(await one.ask(20), Admitted)
    assert isinstance(await one.ask(20, "row-7"), Wait)
