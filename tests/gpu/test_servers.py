"""`slb.gpu` in front of real servers: direct calls first, 503 to the dispatcher, and no slot is lost."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

import slb.gpu
from slb.gpu import GpuSlots
from tests.gpu.servers import Work, on_aiohttp, on_uvicorn
from tests.support.waiting import eventually, soon

DISPATCHER = {"X-Source": "dispatcher"}
Answer = tuple[int, Any]


class Gpu:
    """A server with one slot and room for two direct calls that wait."""

    def __init__(self, url: str, work: Work, session: ClientSession) -> None:
        self.work = work
        self._url = url
        self._session = session

    async def post(self, body: str, headers: dict[str, str] | None = None) -> Answer:
        async with self._session.post(f"{self._url}/generate", data=body, headers=headers) as reply:
            return reply.status, await reply.json(content_type=None) if reply.status != 500 else None

    async def direct(self, body: str) -> "asyncio.Task[Answer]":
        """A direct call, once it has a slot or waits."""
        slots = self.work.slots
        before = slots.active_jobs + slots.waiting
        task = asyncio.create_task(self.post(body))
        await eventually(lambda: slots.active_jobs + slots.waiting == before + 1)
        return task

    async def health(self) -> Any:
        async with self._session.get(f"{self._url}/health") as reply:
            return await reply.json()


@pytest.fixture(params=[on_uvicorn, on_aiohttp])
async def gpu(request: pytest.FixtureRequest) -> AsyncIterator[Gpu]:
    work = Work(GpuSlots(slots=1, direct_queue=2))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(request.param(work))
        session = await stack.enter_async_context(ClientSession())
        yield Gpu(url, work, session)


async def answers(*calls: "asyncio.Task[Answer]") -> list[Answer]:
    """What calls are answered."""
    return list(await asyncio.gather(*calls))


async def test_direct_calls_that_wait_are_served_before_the_dispatcher(gpu: Gpu) -> None:
    first, second, third = [await gpu.direct(name) for name in ("first", "second", "third")]
    for name, call in (("first", first), ("second", second), ("third", third)):
        assert await gpu.post("job", DISPATCHER) == (503, {"detail": "GPU busy"})
        gpu.work.end(name)
        assert await soon(call) == (200, {"result": name})
    gpu.work.end("job")
    await eventually(lambda: gpu.work.slots.active_jobs == 0)
    assert await gpu.post("job", DISPATCHER) == (200, {"result": "job"})
    assert gpu.work.begun == ["first", "second", "third", "job"]


async def test_the_dispatcher_gets_503_while_its_own_job_runs(gpu: Gpu) -> None:
    running = asyncio.create_task(gpu.post("job", DISPATCHER))
    await eventually(lambda: gpu.work.begun == ["job"])
    assert await gpu.post("other", DISPATCHER) == (503, {"detail": "GPU busy"})
    gpu.work.end("job")
    assert await soon(running) == (200, {"result": "job"})


async def test_a_direct_call_is_refused_where_the_queue_is_full(gpu: Gpu) -> None:
    calls = [await gpu.direct(name) for name in "abc"]
    assert await gpu.post("d") == (503, {"detail": "Queue full"})
    for name in "abc":
        gpu.work.end(name)
    assert await soon(answers(*calls)) == [(200, {"result": name}) for name in "abc"]


async def test_health_says_how_many_jobs_run_and_takes_no_slot(gpu: Gpu) -> None:
    calls = [await gpu.direct(name) for name in "ab"]
    assert await gpu.health() == {"active_jobs": 1, "slots": 1, "direct_waiting": 1}
    for name in "ab":
        gpu.work.end(name)
    await soon(asyncio.gather(*calls))
    await eventually(lambda: gpu.work.slots.active_jobs == 0)


async def test_a_waiting_client_that_leaves_frees_its_place(gpu: Gpu) -> None:
    running, leaving, staying = [await gpu.direct(name) for name in ("running", "leaving", "staying")]
    leaving.cancel()
    await eventually(lambda: gpu.work.slots.waiting == 1)
    gpu.work.end("running")
    gpu.work.end("staying")
    assert await soon(answers(running, staying)) == [(200, {"result": "running"}), (200, {"result": "staying"})]
    assert "leaving" not in gpu.work.begun
    await eventually(lambda: gpu.work.slots.active_jobs == 0)


async def test_a_body_that_came_while_its_call_waited_is_whole(gpu: Gpu) -> None:
    running = await gpu.direct("running")
    body = "long " + "x" * 500_000
    waiting = await gpu.direct(body)
    gpu.work.end("running")
    gpu.work.end("long")
    assert await soon(answers(running, waiting)) == [(200, {"result": "running"}), (200, {"result": "long"})]
    assert gpu.work.bytes[-1] == len(body)


async def test_a_handler_that_breaks_gives_its_slot_back(gpu: Gpu) -> None:
    assert (await gpu.post("fails"))[0] == 500
    await eventually(lambda: gpu.work.slots.active_jobs == 0)


async def test_a_kept_slot_is_held_beyond_the_answer(gpu: Gpu) -> None:
    assert await gpu.post("keeps", DISPATCHER) == (200, {"result": "keeps"})
    assert await gpu.post("job", DISPATCHER) == (503, {"detail": "GPU busy"})
    assert (await gpu.health())["active_jobs"] == 1
    gpu.work.kept[0].release()
    gpu.work.end("job")
    assert await gpu.post("job", DISPATCHER) == (200, {"result": "job"})


async def test_clients_that_leave_at_any_moment_leave_all_slots_free(gpu: Gpu) -> None:
    for turn in range(12):
        names = [f"{turn}-{number}" for number in range(3)]
        calls = [await gpu.direct(name) for name in names]
        for number, name in enumerate(names):
            gpu.work.end(name)  # one leaves just when the next has its turn
            if (turn + number) % 2:
                calls[(number + turn) % 3].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await eventually(lambda: gpu.work.slots.active_jobs == gpu.work.slots.waiting == 0)


def test_the_folder_works_without_the_rest_of_slb(tmp_path: Path) -> None:
    shutil.copytree(Path(slb.gpu.__file__).parent, tmp_path / "gpu_slots", ignore=shutil.ignore_patterns("__py*"))
    code = "import gpu_slots.asgi, gpu_slots.aiohttp, sys; assert 'slb' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
