"""Which slots of a model's GPUs jobs have, and when one goes over from a job to the next. Redis is played."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slb.admission.gates import Gates
from slb.balance.upstream import Handle
from slb.job import CLASS
from slb.jobs.slots import Slots
from tests.support.virtual_time import in_virtual_time
from tests.unit.admission.gate_rig import CAPPED, PATH, QUEUED, Setup
from tests.unit.routing.mirror_rig import A, B

BRIEF = 0.249
"""Seconds after which a slot that was granted at 0 goes over yet."""
NEWS = 0.049
"""Seconds for which Redis's last answer counts yet."""


class Jobs:
    """Jobs that wait for slots of A and B, and the slots that they got, each with since when it is held."""

    def __init__(self, **settings: str) -> None:
        self.setup = Setup(A, B, **(settings or QUEUED))
        self.got: list[tuple[Handle, float]] = []
        gates = cast("Gates", SimpleNamespace(of=lambda route: self.setup.gate))
        mirror = self.setup.mirror
        self.slots = Slots(PATH, gates, mirror, lambda *slot: self.got.append(slot), lambda: None)

    async def begin(self, wanted: int = 5) -> tuple[Handle, float]:
        """The first job has a slot of A, granted now, and `wanted` wait."""
        self.slots.want(wanted)
        self.setup.lane.grant(A)
        return self.got.pop()

    def is_told(self, queued: int = 0, of_jobs: int = 0) -> None:
        """Redis says how many wait now."""
        reply = {"queued": queued, "jobs": of_jobs, "number": False}
        self.setup.lane.state.follow(reply, asyncio.get_running_loop().time())


def test_a_slot_goes_from_a_brief_job_to_the_next_without_the_ledger() -> None:
    async def act() -> None:
        jobs = Jobs()
        handle, since = await jobs.begin()
        asked = len(jobs.setup.lane.asked)
        for _ in range(3):
            await asyncio.sleep(BRIEF / 3)
            jobs.is_told()
            jobs.slots.ended(handle, since)
            assert jobs.got.pop() == (handle, since)
        assert (jobs.setup.lane.released, len(jobs.setup.lane.asked)) == ([], asked)
        await asyncio.sleep(0.01)
        jobs.is_told()
        jobs.slots.ended(handle, since)
        assert (jobs.setup.lane.released, len(jobs.setup.lane.asked)) == ([A], asked + 1)
        assert (jobs.got, handle.upstream.inflight) == ([], 0)

    in_virtual_time(act)


def test_a_slot_that_is_granted_anew_may_go_over_again() -> None:
    async def act() -> None:
        jobs = Jobs()
        handle, since = await jobs.begin()
        await asyncio.sleep(1)
        jobs.slots.ended(handle, since)
        jobs.setup.lane.grant(A)
        handle, since = jobs.got.pop()
        await asyncio.sleep(BRIEF)
        jobs.is_told()
        jobs.slots.ended(handle, since)
        assert jobs.got == [(handle, since)]

    in_virtual_time(act)


def _a_request_waits(jobs: Jobs) -> None:
    jobs.is_told(queued=3, of_jobs=2)


def _redis_is_late(jobs: Jobs) -> None:
    jobs.setup.lane.state.late = True


def _no_job_waits(jobs: Jobs) -> None:
    jobs.slots.want(0)


def _the_gpu_was_busy(jobs: Jobs) -> None:
    jobs.slots.was_busy(A)


def _the_gpu_has_left(jobs: Jobs) -> None:
    jobs.setup.route(B, **QUEUED)


def _the_gpu_is_ejected(jobs: Jobs) -> None:
    (gpu,) = jobs.setup.live(A)
    gpu.available = False
    jobs.setup.mirror.table.routes[PATH].refresh()


def _nothing_may_queue(jobs: Jobs) -> None:
    jobs.setup.route(A, B, **CAPPED)


@pytest.mark.parametrize(
    "change",
    [
        _a_request_waits,
        _redis_is_late,
        _no_job_waits,
        _the_gpu_was_busy,
        _the_gpu_has_left,
        _the_gpu_is_ejected,
        _nothing_may_queue,
    ],
)
def test_a_slot_is_given_back_at_once_where(change: Any) -> None:
    async def act() -> None:
        jobs = Jobs()
        handle, since = await jobs.begin()
        change(jobs)
        jobs.slots.ended(handle, since)
        assert (jobs.got, jobs.setup.lane.released) == ([], [A])

    in_virtual_time(act)


def test_jobs_that_wait_here_or_at_other_instances_keep_no_slot_from_going_over() -> None:
    async def act() -> None:
        jobs = Jobs()
        handle, since = await jobs.begin()
        for place, ask in enumerate(jobs.setup.lane.asked):
            ask.queued(place)
        assert jobs.setup.gate.waiting == {(PATH, CLASS): 1}
        jobs.is_told(queued=5, of_jobs=5)
        jobs.slots.ended(handle, since)
        assert jobs.got == [(handle, since)]

    in_virtual_time(act)


def test_what_redis_has_not_said_for_a_while_is_not_believed() -> None:
    async def act() -> None:
        jobs = Jobs()
        handle, since = await jobs.begin()
        await asyncio.sleep(NEWS)
        jobs.slots.ended(handle, since)
        assert jobs.got.pop() == (handle, since)
        await asyncio.sleep(0.002)
        jobs.setup.lane.in_flight = True
        jobs.slots.ended(handle, since)
        assert jobs.got.pop() == (handle, since), "Redis is about to say more"
        jobs.setup.lane.in_flight = False
        jobs.slots.ended(handle, since)
        assert (jobs.got, jobs.setup.lane.released) == ([], [A])

    in_virtual_time(act)


def test_one_gpu_alone_is_waited_for_and_the_place_goes_with_who_waits() -> None:
    async def act() -> None:
        jobs = Jobs()
        waits = asyncio.create_task(jobs.slots.at(A))
        await asyncio.sleep(0)
        (ask,) = jobs.setup.lane.asked
        assert ask.avoid == (B,)
        waits.cancel()
        await asyncio.wait([waits])
        assert jobs.setup.lane.left == [ask]

    in_virtual_time(act)


def test_a_slot_that_comes_as_its_waiter_leaves_is_given_back() -> None:
    async def act() -> None:
        jobs = Jobs()
        waits = asyncio.create_task(jobs.slots.at(A))
        await asyncio.sleep(0)
        jobs.setup.lane.grant(A)
        waits.cancel()
        await asyncio.wait([waits])
        assert (jobs.setup.lane.released, jobs.setup.lane.left) == ([A], [])

    in_virtual_time(act)


def test_places_for_more_slots_than_there_are_jobs_are_given_up() -> None:
    async def act() -> None:
        jobs = Jobs()
        jobs.slots.want(2)
        asked = list(jobs.setup.lane.asked)
        assert len(asked) == 2
        jobs.slots.want(1)
        assert len(jobs.setup.lane.left) == 1
        jobs.slots.want(0)
        assert set(jobs.setup.lane.left) == set(asked)

    in_virtual_time(act)
