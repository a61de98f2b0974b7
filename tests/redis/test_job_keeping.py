"""What of the jobs of a model is kept in Redis, for how long, and how much memory that takes."""

import asyncio

from slb.control import keys
from slb.job import ModelConfig
from tests.redis.jobs_rig import MODEL, Begin
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within


async def test_what_has_ended_goes_when_its_time_is_over_and_leaves_nothing(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    left = {"classes", "number", "holders", "counts", "batches", "times"}
    prefix = keys.job_keys(MODEL)[4].removesuffix("classes")
    await eventually(lambda: {str(name).removeprefix(prefix) for name in valkey.admin.keys(prefix + "*")} == left)


async def test_of_more_jobs_than_may_be_kept_those_go_that_ended_first(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    here.lane.config = ModelConfig(finished_limit=3, max_retries=0)
    for id_ in "abcdefg":
        await here.submit(id_, calls_back=int(id_ == "b"))
    await here.lane.finish(await here.claim(), "give_up", b"out of memory")
    for _ in "bcdefg":
        await here.lane.finish(await here.claim(), "complete", b"1")
    assert await here.lane.ids("ended", 0, 10) == ["e", "f", "g"]
    states = [await here.state(id_) for id_ in "abcdefg"]
    assert states == ["dead_lettered", "completed", "none", "none", "completed", "completed", "completed"]
    prefix = keys.job_keys(MODEL)[0].removesuffix("job:")
    assert [name for name in valkey.admin.keys(prefix + "*") if str(name).endswith((":c", ":d"))] == []
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.id, due.result) == ("b", "1")
    assert await here.lane.callback_sent(due)
    assert await here.lane.ids("ended", 0, 10) == ["f", "g", "b"]
    assert await here.state("e") == "none"
    assert await here.submit("c") == "new"


async def test_a_limit_that_is_lowered_holds_for_what_has_ended_before(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    for number in range(300):
        await here.submit(f"job{number}")
    jobs = await asyncio.gather(*(here.claim() for _ in range(300)))
    await asyncio.gather(*(here.lane.finish(job, "complete", b"1") for job in jobs))
    here.lane.config = ModelConfig(finished_limit=7)
    ended = keys.job_keys(MODEL)[12]
    await eventually(lambda: valkey.admin.zcard(ended) == 7)
    prefix = keys.job_keys(MODEL)[0]
    assert len(valkey.admin.keys(prefix + "*")) == 7


async def test_a_job_that_came_anew_under_the_id_of_one_that_has_gone_is_not_removed_with_it(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    here.lane.config = ModelConfig(finished_limit=1)
    async with within(10):
        while await here.state("one") != "none":
            await asyncio.sleep(0.05)
    assert await here.lane.ids("ended", 0, 10) == ["one"]  # since what is kept longer now was kept so long
    assert await here.submit("one") == "new"
    await here.submit("two", priority="high")
    await here.lane.finish(await here.claim(), "complete", b"1")
    assert [await here.state(each) for each in ("one", "two")] == ["queued", "completed"]


async def test_a_job_whose_callback_took_longer_than_its_result_is_kept_goes_after_it(
    begin: Begin, valkey: Valkey
) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one", calls_back=1)
    await here.lane.finish(await here.claim(), "complete", b"1")
    (due,) = await here.lane.due_callbacks(60, 10)
    ended = keys.job_keys(MODEL)[12]
    await eventually(lambda: valkey.admin.zcard(ended) == 0)
    assert await here.state("one") == "completed"
    assert await here.lane.callback_sent(due, "status 500")
    prefix = keys.job_keys(MODEL)[0]
    await eventually(lambda: valkey.admin.exists(prefix + "one") == 0)
    assert (await here.lane.stats()).counts["undelivered"] == 1


async def test_a_waiting_job_takes_little_more_memory_than_its_payload(begin: Begin, valkey: Valkey) -> None:
    here = begin()
    await here.submit("warm")
    before = valkey.admin.info("memory")["used_memory"]
    await asyncio.gather(*(here.submit(f"{number:032}") for number in range(2000)))
    assert (valkey.admin.info("memory")["used_memory"] - before) / 2000 < 600


async def test_a_failed_job_that_begins_again_is_kept_and_its_place_among_the_ended_goes(begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=1.0)
    await here.submit("one", calls_back=1)
    await here.lane.finish(await here.claim(), "fail", b"status 400")
    assert await here.lane.revive("one")
    assert (await here.lane.ids("ended", 0, 10), await here.lane.due_callbacks(60, 10)) == ([], [])
    job = await here.claim()
    assert (job.written.strip(), job.failures) == ('{"payload":1}', 0)
    await here.lane.finish(job, "fail", b"status 400")
    assert await here.lane.remove("one")
    assert (await here.lane.ids("ended", 0, 10), await here.state("one")) == ([], "none")
    assert await here.submit("one", digest="other") == "new"
