"""The races that dispatchers of GPU jobs on Redis have lost before, each with a test that fails without its mend.

- Priority as `score = -timestamp`: the newest priority job ran first.
- ZRANGE, then ZREM: two dispatchers took the same job.
- The job was popped before a slot was free: jobs used up their retries by waiting.
- A lock was cleared because its GPU reported no jobs: the one it was for had not come there yet.

And `KEYS`, which asks only one node of a cluster: it is never called.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from slb.jobs.lock_sync import FRESH
from tests.process.commands import Commands, Serving
from tests.redis.jobs_rig import AT, Begin, beginning
from tests.support.acl import acl_rules
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until

SYNC = {"health_endpoint": "/health", "sync_interval": "100ms"}


@pytest.fixture
async def start(valkey: Valkey) -> AsyncIterator[Begin]:
    """Makes dispatchers, as far as their lanes: `start("a")`."""
    async with beginning(valkey) as made:
        yield made


@pytest.fixture
async def gpu() -> AsyncIterator[Gpu]:
    """A GPU of one slot, whose jobs run on when their caller leaves."""
    async with AsyncExitStack() as stack:
        made = Gpu(holds=True, goes_on=True)
        await made.server.start_server()
        stack.push_async_callback(made.server.close)
        stack.callback(made.go.set)
        yield made


async def serve(slb: Commands, url: str) -> Serving:
    return await slb.until_ready(await slb.serve("--roles", "proxy,jobs", redis=url))


async def ask(slb: Commands, at: Serving, method: str, path: str, body: Any = None) -> Any:
    async with slb.session.request(method, f"{at.api}{path}", json=body) as reply:
        assert reply.status < 300, await reply.text()
        return await reply.json()


async def set_up(slb: Commands, at: Serving, gpu: Gpu, ids: list[str], **config: Any) -> None:
    """These jobs wait for the GPU, and it has the first."""
    await ask(slb, at, "PUT", "/admin/model-configs/flux", config)
    await ask(slb, at, "POST", "/admin/register", {"model": "flux", "endpoint": gpu.endpoint})
    for id_ in ids:
        await ask(slb, at, "POST", "/queue/submit", {"model": "flux", "payload": id_, "job_id": id_})
    await eventually(lambda: gpu.begun[ids[0]] == 1)


async def test_priority_jobs_run_in_the_order_they_came(start: Begin) -> None:
    one, other, rng = start("one"), start("other"), Random(1)
    came: dict[str, list[str]] = {"high": [], "normal": []}
    for number in range(60):
        priority = rng.choice(["high", "normal"])
        await rng.choice([one, other]).submit(f"job-{number}", priority=priority)
        came[priority].append(f"job-{number}")
    taken = [(await rng.choice([one, other]).claim()).id for _ in range(60)]
    assert [id_ for id_ in taken if id_ in came["high"]] == came["high"]
    assert [id_ for id_ in taken if id_ in came["normal"]] == came["normal"]
    assert taken[0] == came["high"][0]


async def test_two_dispatchers_never_take_the_same_job(start: Begin) -> None:
    dispatchers = [start(name) for name in ("one", "other", "third")]
    ids = [f"job-{number}" for number in range(90)]
    await asyncio.gather(*(dispatchers[0].submit(id_) for id_ in ids))
    claims = [each.lane.claim(AT) for _ in range(32) for each in dispatchers]  # six more than there are jobs
    taken = [job for job in await asyncio.gather(*claims) if job is not None]
    assert sorted(job.id for job in taken) == sorted(ids)
    assert {job.attempts for job in taken} == {1}


async def test_waiting_for_a_slot_uses_up_no_attempt(slb: Commands, valkey: Valkey, gpu: Gpu) -> None:
    one, other = [await serve(slb, valkey.url) for _ in range(2)]
    gpu.answers = [(503, {"detail": "GPU busy"})] * 2  # it is busy with other callers' work
    ids = [f"job-{number}" for number in range(4)]
    await set_up(slb, one, gpu, ids, max_retries=0, retry_backoff="10ms")
    await eventually(lambda: gpu.running == 1)
    for at in (one, other):  # both have had calls in which they could have taken one
        for _ in range(5):
            stats = await ask(slb, at, "GET", "/queue/stats")
    flux = stats["models"]["flux"]
    assert (flux["processing"], flux["queued"] + flux["retrying"]) == (1, 3)  # it has let others go first
    jobs = [await ask(slb, one, "GET", f"/queue/jobs/{id_}") for id_ in ids]
    assert sorted(job["attempts"] for job in jobs) == [0, 0, 0, 1]
    gpu.go.set()
    for id_ in ids:
        url = f"{one.api}/queue/jobs/{id_}"
        ended = await slb.until_json(url, lambda job: "completed_at" in job)
        assert (ended["status"], ended["attempts"], ended["failures"]) == ("completed", 1, 0)


async def test_an_attempt_on_its_way_is_not_taken_from_its_dispatcher(start: Begin) -> None:
    """Its GPU reports no jobs: it has not come there yet. Nor is it taken from one that has just died."""
    one, other = start("one", lease=60.0), start("other", lease=60.0)
    await one.submit("job")
    job = await one.claim()
    assert await other.lane.silent(FRESH) == []
    assert await other.lane.idle(AT, FRESH) == 0
    one.task.cancel()
    assert await other.lane.idle(AT, FRESH) == 0
    assert await other.state(job.id) == "processing"
    await until(lambda: other.lane.idle(AT, 0.2), bool)  # with a shorter patience it is
    assert (await other.claim()).id == job.id


async def test_a_slot_is_not_freed_because_its_gpu_does_not_count_the_job_yet(
    slb: Commands, valkey: Valkey, gpu: Gpu
) -> None:
    one = await serve(slb, valkey.url)
    gpu.counts = False
    await set_up(slb, one, gpu, ["first", "second"], **SYNC)
    await ask(slb, one, "DELETE", "/queue/jobs/first")
    await eventually(lambda: gpu.looks >= 5)
    assert gpu.begun == {"first": 1}
    gpu.counts = True
    gpu.go.set()
    await slb.until_json(f"{one.api}/queue/jobs/second", lambda job: job["status"] == "completed")
    assert (gpu.begun, gpu.most) == ({"first": 1, "second": 1}, 1)


async def test_keys_is_never_called_while_jobs_run_through(slb: Commands, valkey: Valkey, gpu: Gpu) -> None:
    """By a user that has the documented rights and no others."""
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    one = await serve(slb, valkey.url.replace("unix://", "unix://slb:pw@"))
    gpu.go.set()
    gpu.answers = [(500, {"error": "out of memory"})]
    await set_up(slb, one, gpu, ["fails-once", "runs"], **SYNC, max_retries=1, retry_backoff="10ms")
    for id_ in ("fails-once", "runs"):
        await slb.until_json(f"{one.api}/queue/jobs/{id_}", lambda job: job["status"] == "completed")
    gpu.go.clear()
    await ask(slb, one, "POST", "/queue/submit", {"model": "flux", "payload": 1, "job_id": "cancelled"})
    await eventually(lambda: gpu.begun["cancelled"] == 1)
    await ask(slb, one, "DELETE", "/queue/jobs/cancelled")
    gpu.go.set()
    gpu.answers = [(500, {"error": "out of memory"})] * 2
    await ask(
        slb, one, "POST", "/queue/submit", {"model": "flux", "payload": 1, "job_id": "dead", "deadline": "1h"}
    )
    await slb.until_json(f"{one.api}/queue/jobs/dead", lambda job: job["status"] == "dead_lettered")
    await ask(slb, one, "POST", "/admin/dlq/dead/retry")
    await slb.until_json(f"{one.api}/queue/jobs/dead", lambda job: job["status"] == "completed")
    for path in (
        "/queue/jobs?model=flux",
        "/queue/jobs?model=flux&status=ended",
        "/queue/stats",
        "/admin/dlq?model=flux",
    ):
        await ask(slb, one, "GET", path)
    called = admin.info("commandstats")
    assert called["cmdstat_evalsha"]["calls"] > 0
    assert "cmdstat_keys" not in called
    denied = [name for name, each in called.items() if each["rejected_calls"]]
    assert set(denied) <= {"cmdstat_client|setinfo"}


async def test_no_ask_of_a_dispatcher_looks_through_all_keys(valkey: Valkey) -> None:
    admin: Any = valkey.admin
    admin.execute_command(
        "ACL", "SETUSER", "jobs", "on", ">pw", "~*", "&*", "+@all", "-keys", "-scan", "-randomkey"
    )
    async with beginning(valkey, valkey.url.replace("unix://", "unix://jobs:pw@")) as start:
        here = start()
        for id_ in "abc":
            await here.submit(id_, calls_back=1)
        job = await here.claim()
        assert await here.lane.finish(job, "complete", b"1")
        assert await here.lane.cancel("b") == "queued"
        job = await here.claim()
        assert await here.lane.note_remote(job, "remote")
        assert await here.lane.finish(job, "give_up", b"out of memory")
        for kind in ("queued", "retrying", "processing", "ended", "dead"):
            await here.lane.ids(kind, 0, 10)
        for due in await here.lane.due_callbacks(60, 10):
            assert await here.lane.callback_sent(due)
        assert await here.lane.revive("c")
        await here.lane.stats()
        await here.lane.silent(FRESH)
        await here.lane.bury("another")
        assert here.lane.up
