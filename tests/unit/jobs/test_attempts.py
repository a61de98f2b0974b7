"""One attempt, from its slot to its end. The lane and the slots are stand-ins."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, UPSTREAM_TIMEOUT, Reason, Refused
from slb.job import Claimed, ModelConfig
from slb.jobs.attempts import Attempt, Attempts
from slb.jobs.gpu_call import Answer, Caller, GpuRequest
from slb.jobs.verdict import Move
from slb.model import Upstream
from slb.observe.jobs import JobCounts

JOB = Claimed("flux", "one", "1.1", 1, 0, "", "", '{"payload":1}')


class Rig:
    """`told`: the ends that were counted; `freed`: slots that are free, or held back; `times`: whether its GPU is
    left alone for a while."""

    def __init__(self, call: Caller) -> None:
        self.told: list[str] = []
        self.freed: list[str] = []
        self.times: list[str] = []

        def was_busy(member: str, asks: float) -> float:
            self.times.append("busy")
            return max(asks, 1.0)

        slots = SimpleNamespace(
            was_busy=was_busy,
            had_time=lambda member: self.times.append("had time"),
            ended=lambda handle, since: self.freed.append("free"),
        )
        parts: dict[str, Any] = {
            "lane": SimpleNamespace(config=ModelConfig()),
            "mirror": None,
            "counts": JobCounts(),
            "others": None,
            "seeking": SimpleNamespace(slots_of=lambda on: slots, has_gpu=lambda on: False),
            "telling": SimpleNamespace(remote=None, reported=None, heard=None),
            "sync": SimpleNamespace(give_up=lambda handle, id_, began, poll: self.freed.append("held back")),
        }
        parts["counts"].ended = lambda model, outcome, seconds: self.told.append(outcome)
        self.attempts = Attempts(call=call, rng=Random(1), **parts)
        self.handle: Any = SimpleNamespace(upstream=LiveUpstream(Upstream.of("10.0.0.1:80")))

    def begin(self, job: Claimed = JOB) -> tuple[Attempt, "asyncio.Task[Any]"]:
        attempt = Attempt(job, None)
        task: asyncio.Task[Any] = asyncio.create_task(self.attempts.run(attempt, self.handle, 0.0))
        attempt.task = task
        return attempt, task


@pytest.mark.parametrize("is_dropped", [True, False])
async def test_an_attempt_that_is_cut_off_goes_back_and_counts_only_where_redis_ended_it(is_dropped: bool) -> None:
    called = asyncio.Event()

    async def hangs(request: GpuRequest) -> Answer:
        called.set()
        await asyncio.Event().wait()
        raise AssertionError

    rig = Rig(hangs)
    attempt, task = rig.begin()
    await called.wait()
    if is_dropped:
        attempt.drop()
    else:
        task.cancel()
    assert (await task).name == "back"
    assert rig.told == (["dropped"] if is_dropped else [])
    assert rig.freed == ["held back"]  # the GPU may run it on


async def test_an_attempt_whose_outcome_is_on_its_way_is_not_cut_off() -> None:
    attempt, task = Rig(no_call).begin()
    attempt.is_written = True
    attempt.drop()
    assert (attempt.is_dropped, task.cancelling()) == (False, 0)
    task.cancel()


async def no_call(request: GpuRequest) -> Answer:
    raise AssertionError


@pytest.mark.parametrize(
    ("reason", "freed"), [(UPSTREAM_TIMEOUT, "held back"), (UPSTREAM_CONNECT, "free"), (None, "free")]
)
async def test_a_slot_is_held_back_where_its_gpu_may_run_the_job_on(reason: Reason | None, freed: str) -> None:
    async def call(request: GpuRequest) -> Answer:
        if reason is not None:
            raise Refused(reason, "x")
        return Answer(200, orjson.dumps({"status": "success", "result": 7}))

    rig = Rig(call)
    attempt, task = rig.begin()
    move = await task
    assert (move.name, rig.freed) == ("complete" if reason is None else "retry", [freed])
    assert attempt.runs_on is (freed == "held back")


@pytest.mark.parametrize(
    ("status", "move", "time"),
    [
        (503, "busy", "busy"),
        (404, "retry", "busy"),
        (401, "retry", "busy"),
        (302, "retry", "busy"),
        (500, "retry", "had time"),
        (422, "fail", "had time"),
        (200, "complete", "had time"),
    ],
)
async def test_a_gpu_that_refuses_what_another_may_take_is_left_alone_for_a_while(
    status: int, move: str, time: str
) -> None:
    async def call(request: GpuRequest) -> Answer:
        assert [each for each in (200, 404, 422, 500) if request.speaks_against(each)] == [404, 500]
        return Answer(status, b"{}")

    rig = Rig(call)
    _, task = rig.begin()
    assert ((await task).name, rig.times) == (move, [time])


async def test_a_job_that_gpus_are_busy_for_again_and_again_says_nothing_of_them() -> None:
    async def call(request: GpuRequest) -> Answer:
        return Answer(503, b"no", "7")

    rig = Rig(call)
    _, task = rig.begin(JOB._replace(busy=1))
    assert (await task, rig.times) == (Move("put_off", b"status 503: no", 7.0), [])
    _, task = rig.begin()
    move = await task
    assert (move.name, move.seconds, rig.times) == ("put_off", 14.0, ["busy"])
    _, task = rig.begin(JOB._replace(busy=ModelConfig().max_busy_answers))
    assert (await task).name == "give_up"
