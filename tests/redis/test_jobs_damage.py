"""What another program does to the keys of a model's jobs: it may cost that job, and no other, and no instance."""

from contextlib import suppress
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from slb.control import keys
from slb.errors import RedisUnavailable, ScriptFailed
from slb.job import ENDED
from tests.redis.jobs_rig import AT, MODEL, Begin, Here
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until_found

_START = f"slb:{{jobs:{MODEL}}}:"
KEYS = {key.removeprefix(_START).removesuffix(":"): key for key in keys.job_keys(MODEL)}
GARBAGE = ("", "<b>", "nan", "1e400", "9" * 40, "-1", b"\xff\xfe", "{")
WHOLE = tuple(name for name, key in KEYS.items() if not key.endswith(":"))
"""Keys that there is one of for a model."""


async def goes_on(here: Here, id_: str) -> None:
    """A new job is taken, runs and ends, after some calls that fail maybe."""

    async def ends() -> bool:
        with suppress(ScriptFailed, RedisUnavailable):
            await here.submit(id_)
            while (job := await here.lane.claim(AT)) is not None:
                await here.lane.finish(job, "complete", b"1")
            return await here.state(id_) in ENDED
        return False

    await until_found(ends, what=f"{id_} ends")
    assert await here.state(id_) == "completed"


@pytest.mark.parametrize("value", ["a text", ["a list"]])
@pytest.mark.parametrize("name", [*WHOLE, "queue:normal", "held:a", "dropped:a", "dropped:*"])
async def test_a_key_of_another_type_makes_way(begin: Begin, valkey: Valkey, name: str, value: Any) -> None:
    here, admin = begin(), valkey.admin
    await here.submit("before")
    await here.claim()
    await here.submit("waits")
    key = _START + name
    admin.delete(key)
    admin.set(key, value) if isinstance(value, str) else admin.rpush(key, *value)
    await goes_on(here, "after")


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("name", ["classes", "counts", "batches", "times"])
async def test_what_is_no_number_is_none(begin: Begin, valkey: Valkey, name: str, value: Any) -> None:
    here = begin()
    await here.submit("first")
    await here.lane.finish(await here.claim(), "complete", b"1")
    for field in {*valkey.admin.hkeys(KEYS[name]), "other"}:
        valkey.admin.hset(KEYS[name], field, value)
    await goes_on(here, "after")
    assert all(abs(each) < 2**53 for each in (await here.lane.stats()).counts.values())


@pytest.mark.parametrize("value", ["1000000", "4503599627370495", "1e300"])
async def test_a_later_number_of_a_batch_does_not_silence_its_holder(
    begin: Begin, valkey: Valkey, value: str
) -> None:
    here = begin()
    await here.submit("first")
    valkey.admin.hset(KEYS["batches"], "a", value)
    await goes_on(here, "after")
    assert here.lane.up


async def test_jobs_stay_in_their_order_where_the_last_number_is_none(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    await here.submit("a")
    valkey.admin.set(KEYS["number"], "none")
    for id_ in "bcd":
        with suppress(ScriptFailed):
            await here.submit(id_)
        await here.submit(id_)
    assert [(await here.claim()).id for _ in "abcd"] == list("abcd")


async def test_a_submit_that_fails_leaves_nothing_that_is_known(begin: Begin, valkey: Valkey) -> None:
    """Else the next one would be told that the job waits, which has no place."""
    here = begin()
    valkey.admin.sadd(f"{KEYS['queue']}low", "no sorted set")
    with pytest.raises(ScriptFailed, match="WRONGTYPE"):
        await here.submit("a", "low")
    assert await here.lane.show("a") is None
    valkey.admin.delete(f"{KEYS['queue']}low")
    assert await here.submit("a", "low") == "new"
    assert (await here.claim()).id == "a"


async def test_a_job_whose_place_is_lost_has_one_again_where_it_is_submitted_again(
    begin: Begin, valkey: Valkey
) -> None:
    here = begin()
    await here.submit("a")
    valkey.admin.delete(f"{KEYS['queue']}normal")
    assert await here.lane.claim(AT) is None
    assert await here.submit("a") == "queued"
    assert (await here.claim()).id == "a"


@pytest.mark.parametrize("value", GARBAGE)
async def test_a_damaged_job_holds_up_no_other(begin: Begin, valkey: Valkey, value: Any) -> None:
    """Each field of what is known of it in turn; it may run all the same, or is said to be damaged."""
    here, admin = begin(), cast("Any", valkey.admin)
    await here.submit("whole", deadline=3_600_000)
    await here.lane.finish(await here.claim(), "retry", b"busy")
    await eventually(lambda: admin.zcard(f"{KEYS['queue']}normal") == 1)
    fields = [*admin.hkeys(f"{KEYS['run']}whole"), "class", "on", "remote", "spent"]
    for number, field in enumerate(fields):
        id_ = f"job{number}"
        await here.submit(id_)
        admin.hset(f"{KEYS['run']}{id_}", mapping=admin.hgetall(f"{KEYS['run']}whole"))
        admin.hset(f"{KEYS['run']}{id_}", field, value)
        with suppress(ScriptFailed):
            await here.lane.show(id_)
    await goes_on(here, "after")
    assert await here.lane.ids("queued", 0, 100) == []


@pytest.mark.parametrize("start", ["job", "run", "result"])
async def test_what_is_kept_of_a_job_may_be_of_another_type(begin: Begin, valkey: Valkey, start: str) -> None:
    here, admin = begin(), valkey.admin
    for id_ in ("ended", "runs", "waits"):
        await here.submit(id_)
    ended, runs = await here.claim(), await here.claim()
    await here.lane.finish(ended, "complete", b"1")
    for id_ in ("ended", "runs", "waits"):
        admin.delete(f"{KEYS[start]}{id_}")
        admin.rpush(f"{KEYS[start]}{id_}", "a list")
    with capture_logs() as logs:
        for id_ in ("ended", "runs", "waits"):
            await here.lane.show(id_)
        assert await here.lane.finish(runs, "complete", b"1") in (True, False)
        await goes_on(here, "after")
    said = [line["error"] for line in logs if line["event"] == "jobs_script_failed"]
    assert any("the job waits is damaged" in each for each in said) == (start != "result")


async def test_what_nobody_follows_is_read_as_far_as_it_is_whole(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    await here.submit("a")
    for text in ("{", "[]", '["a"]', "[1,2,3,4]", '["x","10.0.0.1:80","","remote"]', b"\xff"):
        valkey.admin.rpush(f"{KEYS['dropped']}*", text)
    await eventually(lambda: here.left != [])
    assert [each.id for each in here.left] == ["x"]
    await goes_on(here, "after")
