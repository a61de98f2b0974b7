"""Which GPUs are asked how many jobs they run, and when. The lane, the slots and the GPUs are played."""

import asyncio
from random import Random
from typing import cast

import pytest

from slb.balance.upstream import Handle
from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable
from slb.job import ModelConfig
from slb.jobs.gpu_call import Answer, GpuRequest
from slb.jobs.lock_sync import LockSync
from slb.observe.jobs import JobCounts
from tests.support.virtual_time import in_virtual_time
from tests.unit.routing.mirror_rig import A, B, make_mirror, record, replace

INTERVAL = 5.0
LEFT = "10.9.9.9:80"


class Played:
    """Lane, slots and GPUs. `silent`: where instances that do not call run jobs; `active`: what each GPU says;
    `asked`: the GPUs that were asked; `idle_at`: those whose attempts were taken back; `polled`:
    what is answered to the next polls."""

    def __init__(self) -> None:
        self.model = "flux"
        self.config = ModelConfig(health_endpoint="/health", sync_interval=INTERVAL)
        self.silent_at: list[str] = []
        self.active = {A: 0, B: 0}
        self.asked: list[str] = []
        self.wished: list[str] = []
        self.idle_at: list[str] = []
        self.away = False
        self.polled: list[Answer] = []
        self.polls = 0
        self.mirror = make_mirror()
        replace(self.mirror, {"/jobs/flux": record(A, B)})
        lane = cast("JobLane", self)
        self.sync = LockSync(lane, self.mirror, self.call, self, JobCounts(), Random(1))

    async def silent(self, seconds: float) -> list[str]:
        if self.away:
            raise RedisUnavailable("away")
        return self.silent_at

    async def may_look(self, member: str, seconds: float) -> bool:
        self.wished.append(member)
        return True

    async def in_flight(self, member: str) -> int | None:
        return 1

    async def idle(self, member: str, seconds: float) -> int:
        self.idle_at.append(member)
        return 1

    async def call(self, request: GpuRequest) -> Answer:
        member = request.upstream.member
        if request.target != "/health":
            self.polls += 1
            return self.polled.pop(0)
        self.asked.append(member)
        return Answer(200, b'{"active_jobs": %d}' % self.active[member])

    def hold(self, member: str, is_polled: bool = False) -> Handle:
        """A slot of that GPU is held back, whose attempt began long ago."""
        upstream = self.mirror.upstream(member)
        assert upstream is not None
        handle = Handle(upstream)
        poll = GpuRequest(upstream, "GET", "/status/x", {}, b"", 30.0, 100)
        self.sync.give_up(handle, "job", -60.0, poll if is_polled else None)
        return handle

    def holds_any(self) -> bool:
        return self.sync.holds_any

    async def turns(self, count: int = 1) -> None:
        """So many looks are due meanwhile."""
        task = asyncio.create_task(self.sync.run())
        await asyncio.sleep(1.1 * INTERVAL * count)
        task.cancel()
        await asyncio.wait([task])


def test_a_gpu_is_asked_where_slots_are_held_back_or_instances_are_silent_and_no_other_is() -> None:
    async def act() -> None:
        played = Played()
        await played.turns()
        assert played.asked == []
        played.silent_at = [B]
        played.hold(A)
        await played.turns()
        assert sorted(played.asked) == [A, B]
        assert played.idle_at == [B, B]  # its attempts, and its slots
        assert not played.holds_any()

    in_virtual_time(act)


def test_a_gpu_frees_its_own_slots_and_no_others() -> None:
    async def act() -> None:
        played = Played()
        played.active = {A: 0, B: 1}
        handles = {member: played.hold(member) for member in (A, B)}
        await played.turns()
        assert [handles[member].upstream.inflight for member in (A, B)] == [0, 1]

    in_virtual_time(act)


def test_a_gpu_that_has_left_is_not_asked() -> None:
    async def act() -> None:
        played = Played()
        played.silent_at = [LEFT]
        await played.turns()
        assert (played.asked, played.wished, played.idle_at) == ([], [], [])

    in_virtual_time(act)


def test_a_gpu_that_runs_something_keeps_what_silent_instances_had() -> None:
    async def act() -> None:
        played = Played()
        played.silent_at, played.active = [A], {A: 1, B: 0}
        played.hold(A)
        await played.turns()
        assert (played.asked, played.idle_at) == ([A], [])
        assert played.holds_any()

    in_virtual_time(act)


def test_a_slot_is_free_once_its_time_is_over_or_its_gpu_has_left_or_nobody_can_be_asked() -> None:
    async def act() -> None:
        played = Played()
        played.config = played.config.model_copy(update={"max_processing_time": 3 * INTERVAL})
        played.active = {A: 1, B: 1}
        for member in (A, B):
            played.hold(member)
        replace(played.mirror, {"/jobs/flux": record(A)})
        await played.turns()
        assert played.holds_any()  # of A
        await played.turns(3)
        assert not played.holds_any()
        played.hold(A)
        played.config = ModelConfig(sync_interval=INTERVAL)
        await played.turns()
        assert not played.holds_any()

    in_virtual_time(act)


def test_looks_go_on_after_redis_was_away() -> None:
    async def act() -> None:
        played = Played()
        played.silent_at, played.away = [A], True
        task = asyncio.create_task(played.sync.run())
        await asyncio.sleep(2 * INTERVAL)
        assert played.asked == []
        played.away = False
        await asyncio.sleep(2 * INTERVAL)
        assert A in played.asked
        task.cancel()
        await asyncio.wait([task])

    in_virtual_time(act)


RUNS, GONE, ODD = Answer(200, b'{"status":"running"}'), Answer(404, b""), Answer(200, b"<html>")


@pytest.mark.parametrize(
    ("answers", "end"),
    [
        ([RUNS, ODD, Answer(200, b'{"status":"done"}')], 3),
        ([RUNS, Answer(200, b'{"status":"FAILED"}')], 2),
        ([GONE, RUNS, GONE, GONE], 4),
        ([RUNS] * 20, 12),
    ],
)
def test_without_a_health_endpoint_a_gpu_that_was_polled_is_polled_until_it_says_an_end_or_the_time_is_over(
    answers: list[Answer], end: int
) -> None:
    async def act() -> None:
        played = Played()
        played.config = ModelConfig(sync_interval=INTERVAL, max_poll_time=60.0)
        played.polled = list(answers)
        played.hold(A, is_polled=True)
        task = asyncio.create_task(played.sync.run())
        async with asyncio.timeout(900):
            while played.holds_any():
                await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert abs(played.polls - end) <= (2 if end > 4 else 0)
        assert not played.asked

    in_virtual_time(act)
