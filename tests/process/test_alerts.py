"""`slb alerts`: what needs attention, from any instance and without a page that is open."""

import asyncio
import os
import re
import signal
import time
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import orjson

from slb.routing.witness import LOOK_AGAIN
from tests.process.commands import Commands, Serving
from tests.process.test_alert_faults import Routes, asked
from tests.support.valkey import Valkey
from tests.support.waiting import patience, until


async def told(slb: Commands, serving: Serving, over: str = "0s") -> tuple[int, dict[str, Any]]:
    """Exit code and answer."""
    result = await slb.run("alerts", "--json", "--over", over, "--url", serving.api)
    assert result.err == ""
    return result.code, orjson.loads(result.out)


async def test_what_is_down_is_told_with_its_age_by_one_that_started_later(slb: Commands, valkey: Valkey) -> None:
    process, member = await slb.upstream("a")
    _, other = await slb.upstream("b")
    valkey.admin.sadd("slb_p", member, other)
    valkey.admin.hset("slb:route:/p", mapping={"health_path": "/", "health_interval": "1s", "health_timeout": "1s"})
    first = await slb.until_ready(await slb.serve("--name", "first", redis=valkey.url))
    await slb.until_status(f"{first.url}/p", 200)
    code, answer = await told(slb, first)
    assert (code, answer) == (0, {"alerts": [], "missing": []})
    began = time.time()
    await process.stop()

    async def down() -> bool:
        found = await slb.json(f"{first.api}/fleet/changes")
        return any((each["what"], each["subject"]) == ("check_failed", member) for each in found["changes"])

    await until(down, bool)
    ended = time.time()
    later = await slb.until_ready(await slb.serve("--name", "later", redis=valkey.url))
    code, answer = await until(lambda: told(slb, later), lambda found: bool(found[1]["alerts"]))
    (alert,) = answer["alerts"]
    assert alert["text"].startswith(f"{member} (1 of 2 upstreams of /p) is down: ")
    assert alert["do"] == f"slb drain {member}"
    assert began - 0.1 <= alert["since"] <= ended + 0.1
    assert code == {"error": 4, "warning": 3}[alert["level"]] == 4
    await first.process.stop()
    shown = await slb.run("alerts", "--over", "0s", "--url", later.api)
    assert shown.code == 4
    code, answer = await until(lambda: told(slb, later), lambda found: len(found[1]["alerts"]) == 1)
    assert began - 0.1 <= answer["alerts"][0]["since"] <= ended + 0.1, "nobody is left that saw it, but the log"
    assert shown.out.startswith("error    ")
    assert f"        $ slb drain {member}" in shown.out


STUCK = 30.0
"""Seconds without a byte after which an upstream is stuck (docs/health.md)."""


async def test_the_alert_of_an_ejection_is_from_when_on_it_is_said_to_be(slb: Commands, valkey: Valkey) -> None:
    """After five failures in a row, after one refused connection, after half a minute without a byte."""
    async with AsyncExitStack() as stack:
        routes, settings = Routes(valkey, stack), {"policy": "round_robin", "eject_time": "5m"}
        failing, _ = await routes.made("/fails", 2, **settings)
        gone, _ = await routes.made("/gone", 2, **settings)
        stuck, _ = await routes.made("/stuck", 2, eject_slow="false", **settings)
        one = await slb.until_ready(await slb.serve("--name", "one", redis=valkey.url))
        for path in ("/fails", "/gone", "/stuck"):
            for _ in range(4):
                await slb.until_status(one.url + path, 200)

        stuck.holds, held = True, time.time()
        for _ in range(2):
            asked(slb, stack, f"{one.url}/stuck")
        failing.fails = True
        began = time.time()
        statuses = [(await slb.get(f"{one.url}/fails"))[0] for _ in range(12)]
        ended = time.time()
        assert statuses.count(500) == 5
        alert = await until_ejected(slb, one, failing.member)
        assert began <= alert["since"] <= ended + 0.1
        assert "5 failures in a row, 500" in alert["text"]
        began = time.time()
        left = gone.member
        await gone.server.close()
        for _ in range(2):  # one of them is tried again at the other
            assert (await slb.get(f"{one.url}/gone"))[0] == 200
        ended = time.time()
        for path in ("/gone", "/stuck"):  # it is out for 1 s at first, then for twice as long
            others = asyncio.create_task(_ask_now_and_then(slb, stack, one.url + path))
            stack.callback(others.cancel)
        assert began <= (await until_ejected(slb, one, left))["since"] <= ended + 0.1
        alert = await until_ejected(slb, one, stuck.member, STUCK + 2 * LOOK_AGAIN)
        assert held + STUCK <= alert["since"] <= held + STUCK + LOOK_AGAIN + patience(1)


async def _ask_now_and_then(slb: Commands, stack: AsyncExitStack, url: str) -> None:
    while True:
        asked(slb, stack, url)
        await asyncio.sleep(1)


async def until_ejected(slb: Commands, serving: Serving, member: str, seconds: float = 20.0) -> dict[str, Any]:
    """The alert that says it."""

    async def found() -> dict[str, Any]:
        _, answer = await told(slb, serving)
        alerts = answer["alerts"]
        return next((each for each in alerts if f"{member} (1 of 2 upstreams" in each["text"]), {})

    return await until(found, bool, seconds)


async def test_an_instance_that_is_not_heard_is_named_and_counts_as_a_warning(
    slb: Commands, valkey: Valkey
) -> None:
    serving = await slb.until_ready(await slb.serve("--name", "one", redis=valkey.url))
    other = await slb.until_ready(await slb.serve("--name", "other", redis=valkey.url))
    await slb.until_json(f"{serving.api}/instances", lambda found: len(found["instances"]) == 2)
    os.kill(other.process.pid, signal.SIGSTOP)
    try:
        assert await told(slb, serving) == (3, {"alerts": [], "missing": ["other"]})
    finally:
        os.kill(other.process.pid, signal.SIGCONT)
    await until(lambda: told(slb, serving), lambda found: found == (0, {"alerts": [], "missing": []}))


async def test_each_culprit_is_told_with_its_own_reason_and_time(slb: Commands, valkey: Valkey) -> None:
    gone, member = await slb.upstream("a")
    hangs, other = await slb.upstream("b")
    _, well = await slb.upstream("c")
    valkey.admin.sadd("slb_p", member, other, well)
    checks: Any = {"health_path": "/", "health_interval": "1s", "health_timeout": "1s", "panic_threshold": "0"}
    valkey.admin.hset("slb:route:/p", mapping=checks)
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await slb.until_status(f"{serving.url}/p", 200)
    began = time.time()
    await gone.stop()

    async def culprits() -> dict[str, dict[str, Any]]:
        _, answer = await told(slb, serving)
        return {each["upstream"]: each for alert in answer["alerts"] for each in alert["culprits"]}

    found = await until(culprits, lambda found: found.keys() == {member})
    told_of = await slb.json(f"{serving.api}/fleet/changes")
    (change,) = (each for each in told_of["changes"] if (each["what"], each["subject"]) == ("check_failed", member))
    assert abs(found[member]["since"] - change["time"]) <= 0.002, "two looks at one clock, each to the millisecond"
    first = found[member]["since"]
    os.kill(hangs.pid, signal.SIGSTOP)
    try:
        found = await until(culprits, lambda found: found.keys() == {member, other})
        shown = await slb.run("alerts", "--over", "0s", "--url", serving.api)
    finally:
        os.kill(hangs.pid, signal.SIGCONT)
    assert abs(found[member]["since"] - first) <= 0.002
    assert began - 0.1 <= first < found[other]["since"] <= time.time()
    assert found[member]["why"] != found[other]["why"]
    for each in found.values():
        at = datetime.fromtimestamp(each["since"]).astimezone()
        line = next(line for line in shown.out.splitlines() if line.startswith(f"         {each['upstream']}: "))
        assert f": {each['why']}, since {at:%Y-%m-%d %H:%M:%S}, " in line


async def test_one_that_refuses_and_may_not_be_ejected_is_told_until_it_answers(
    slb: Commands, valkey: Valkey
) -> None:
    process, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await slb.until_status(f"{serving.url}/p", 200)
    await process.stop()
    began = time.time()
    await slb.get(f"{serving.url}/p")
    ended = time.time()
    code, answer = await told(slb, serving)
    (alert,) = answer["alerts"]
    assert alert["text"].startswith(
        f"{member} (the only upstream of /p) would be ejected: it refuses connections. "
    )
    assert began <= alert["since"] <= ended
    assert (code, alert["level"], alert["do"], alert["upstream"]) == (4, "error", "slb routes /p", member)
    await slb.upstream("a", "--listen", member)
    await slb.until_status(f"{serving.url}/p", 200)
    assert await until(lambda: told(slb, serving), lambda found: not found[1]["alerts"])


async def test_callers_that_were_hurt_before_anybody_looked_are_counted(slb: Commands, valkey: Valkey) -> None:
    process, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    servings = [await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in ("a", "b")]
    for serving in servings:
        await slb.until_status(f"{serving.url}/p", 200)
    await process.stop()
    began = time.time()
    for serving in servings:
        for _ in range(6):
            await slb.get(f"{serving.url}/p")
    _, answer = await until(
        lambda: told(slb, servings[0]), lambda found: [each["failed"] for each in found[1]["alerts"]] == [12]
    )
    (alert,) = answer["alerts"]
    said = r"\. \d+ % of requests of the last minute failed.*\. 12 requests failed there since\. "
    assert re.search(said, alert["text"])
    assert began <= alert["since"]


async def test_without_redis_there_is_one_alert(slb: Commands, valkey: Valkey) -> None:
    _, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "1"})
    servings = [await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in ("a", "b")]
    for serving in servings:
        await slb.until_status(f"{serving.url}/p", 200)
    valkey.kill()
    code, answer = await until(lambda: told(slb, servings[0], "2s"), lambda found: bool(found[1]["alerts"]))
    assert code == 4
    assert [each["text"].partition(":")[0] for each in answer["alerts"]] == ["This instance has no Redis"]


async def test_no_answer_is_exit_code_1(slb: Commands) -> None:
    result = await slb.run("alerts", "--url", "http://127.0.0.1:1")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("slb: no answer from ")
