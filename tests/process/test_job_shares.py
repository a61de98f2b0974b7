"""Jobs and requests that draw on the same slots: who is served how often."""

import asyncio

import pytest

from tests.process.commands import Serving
from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.support.gpus import Gpu

ONLINE, POOL = "/generate", f"/jobs/{MODEL}"
CALLERS = 8
ROUNDS = 12
"""Requests of each caller."""


async def shared(jobs: Dispatchers, gpu: Gpu, **of_jobs: str) -> Serving:
    """An instance whose route /generate has the slot of the model's GPU."""
    one = await jobs.serve()
    await jobs.register(one, gpu)
    queues = {"policy": "least_inflight", "max_inflight": 1, "when_full": "queue", "pool": POOL}
    await jobs.ask("PATCH", f"{one.api}/routes{ONLINE}", queues)
    if of_jobs:
        await jobs.ask("PATCH", f"{one.api}/routes{POOL}", of_jobs)
    target = gpu.endpoint.removesuffix("/generate")
    await jobs.ask("POST", f"{one.api}/register", {"path": ONLINE, "target": target})
    return one


async def online(jobs: Dispatchers, at: Serving) -> None:
    for _ in range(ROUNDS):
        await jobs.ask("POST", f"{at.url}{ONLINE}", {"online": True})


@pytest.mark.parametrize(("of_jobs", "least", "most"), [({}, 6, 22), ({"priorities": "jobs=1"}, 60, 120)])
async def test_jobs_have_their_share_beside_requests_that_come_first(
    jobs: Dispatchers, gpu: MakeGpu, of_jobs: dict[str, str], least: int, most: int
) -> None:
    here = await gpu()
    one = await shared(jobs, here, **of_jobs)
    ids = [f"job-{number}" for number in range(150)]
    await asyncio.gather(*(jobs.submit(one, id_) for id_ in ids[:32]))
    calls = [asyncio.create_task(online(jobs, one)) for _ in range(CALLERS)]
    await asyncio.gather(*(jobs.submit(one, id_) for id_ in ids[32:]))
    await asyncio.gather(*calls)
    first, last = (here.order.index("online"), len(here.order) - here.order[::-1].index("online"))
    while_both_waited = [each for each in here.order[first:last] if each != "online"]
    assert least <= len(while_both_waited) <= most, here.order
    await jobs.until_ended(one, ids)
    assert here.most == 1
