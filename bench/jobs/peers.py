"""The Python peers as their documents show them, in environments of their own: `python peers.py NAME REDIS GPU
AT_ONCE work|submit|results WORDS...`. Timeouts are those of the comparison after a crash."""

import json
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import uvloop

NAME, REDIS, GPU, AT_ONCE, VERB, *WORDS = sys.argv[1:]
PAYLOAD = json.loads(os.environ["PAYLOAD"])
TIMEOUT, IDLE, SWEEP, RETRIES = 5, 4, 2, 3
Verbs = Sequence[Callable[..., Coroutine[Any, Any, Any]]]
"""Work, for ever; submit one job by its id; the result of a job."""

_session: list[aiohttp.ClientSession] = []


async def run(job: str, payload: dict[str, str]) -> str:
    """A job, in all of them."""
    if not _session:
        _session.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    async with _session[0].post(f"{GPU}?{job}", json=payload) as reply:
        return await reply.text()


def saq() -> Verbs:
    from saq import Queue, Worker

    queue = Queue.from_url(REDIS)

    async def run_it(context: dict[str, Any], *, job: str, payload: dict[str, str]) -> str:
        return await run(job, payload)

    async def work() -> None:
        timers: Any = {"sweep": SWEEP}
        await Worker(queue, [("run", run_it)], concurrency=int(AT_ONCE), timers=timers).start()

    async def submit(job: str) -> None:
        await queue.enqueue("run", key=job, timeout=TIMEOUT, retries=RETRIES, job=job, payload=PAYLOAD)

    async def result(job: str) -> Any:
        found = await queue.job(job)
        return found and found.result

    return work, submit, result


def arq() -> Verbs:
    from arq import Worker, create_pool, func
    from arq.connections import RedisSettings
    from arq.jobs import Job

    settings = RedisSettings.from_dsn(REDIS)
    pools: list[Any] = []

    async def run_it(context: dict[Any, Any], job: str, payload: dict[str, str]) -> str:
        return await run(job, payload)

    async def pool() -> Any:
        if not pools:
            pools.append(await create_pool(settings))
        return pools[0]

    async def work() -> None:
        functions = [func(run_it, name="run")]
        await Worker(functions, redis_settings=settings, max_jobs=int(AT_ONCE), job_timeout=TIMEOUT).async_run()

    async def submit(job: str) -> None:
        await (await pool()).enqueue_job("run", job, PAYLOAD, _job_id=job)

    async def result(job: str) -> Any:
        found = await Job(job, await pool()).result_info()
        return found and found.result

    return work, submit, result


def taskiq() -> Verbs:
    from taskiq.api import run_receiver_task
    from taskiq.kicker import AsyncKicker
    from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

    backend: Any = RedisAsyncResultBackend(REDIS)
    broker: Any = RedisStreamBroker(REDIS, consumer_id="0", idle_timeout=IDLE * 1000).with_result_backend(backend)
    task = broker.task(task_name="run")(run)

    async def work() -> None:
        broker.is_worker_process = True
        await run_receiver_task(broker, run_startup=True, max_async_tasks=int(AT_ONCE))

    async def submit(job: str) -> None:
        await AsyncKicker(task.task_name, broker, {}).with_task_id(job).kiq(job, PAYLOAD)

    async def result(job: str) -> Any:
        return (await backend.get_result(job)).return_value if await backend.is_result_ready(job) else None

    return work, submit, result


def streaq() -> Verbs:
    from streaq import Worker

    worker: Any = Worker(redis_url=REDIS, concurrency=int(AT_ONCE), idle_timeout=IDLE)
    task = worker.task(timeout=TIMEOUT, name="run")(run)

    async def submit(job: str) -> None:
        async with worker:
            enqueued = task.enqueue(job, PAYLOAD)
            enqueued.id = job
            await enqueued

    async def result(job: str) -> Any:
        async with worker:
            with suppress(TimeoutError):
                found = await worker.result_by_id(job, timeout=1)
                return found.result if found.success else None

    return worker.run_async, submit, result


async def main() -> None:
    work, submit, result = {"SAQ": saq, "arq": arq, "taskiq": taskiq, "streaq": streaq}[NAME]()
    if VERB == "work":
        await work()
    elif VERB == "submit":
        for number in range(1, int(WORDS[1]) + 1):
            await submit(f"{WORDS[0]}{number}")
    else:
        found = {job: await result(job) for job in WORDS}
        print(json.dumps({job: text for job, text in found.items() if isinstance(text, str)}))  # or how it failed
    for session in _session:
        await session.close()


if __name__ == "__main__":
    uvloop.run(main())
