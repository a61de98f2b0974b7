"""What the jobs' script publishes of each move, while somebody follows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from slb.control import keys
from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.control.job_news import follow_jobs, read_move
from slb.control.jobs import JobLane
from slb.job import Claimed, JobShown, Submission
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon

QUICK = AskTiming(beat=0.05, deadline=5.0, backoff=0.02)


class Follower:
    def __init__(self) -> None:
        self.moves: list[JobShown] = []
        self.begun = asyncio.Event()

    @property
    def states(self) -> list[tuple[str, int]]:
        return [(each.state, each.token) for each in self.moves]


@pytest.fixture
async def connection(valkey: Valkey) -> AsyncIterator[Connection]:
    made = Connection(valkey.url, Metrics())
    yield made
    await made.aclose()


@pytest.fixture
async def follower(connection: Connection) -> AsyncIterator[Follower]:
    found = Follower()
    task = asyncio.create_task(follow_jobs(connection, found.moves.append, found.begun.set))
    await soon(found.begun.wait())
    yield found
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
async def lane(connection: Connection) -> AsyncIterator[JobLane]:
    """Of the model `a:b`."""
    async with AsyncExitStack() as stack:
        made = JobLane(connection, "a:b", "here", list, lambda pulse: None, QUICK)
        task = asyncio.create_task(made.run())
        stack.push_async_callback(asyncio.wait, [task])
        stack.callback(task.cancel)
        yield made


async def submit(lane: JobLane, id_: str = "one", written: bytes = b'{"payload":1,"metadata":[7]}') -> None:
    assert await lane.submit(Submission(lane.model, id_, "normal", "d" * 32, written, 0, False)) is not None


async def claim(lane: JobLane) -> Claimed:
    job = await lane.claim("10.0.0.1:80")
    assert job is not None
    return job


async def test_each_move_is_published_with_the_job_as_it_was_then(lane: JobLane, follower: Follower) -> None:
    assert not await lane.watch(60)
    assert await lane.watch(60)
    await submit(lane)
    await lane.finish(await claim(lane), "retry", b"out of memory", 0.0)
    await lane.finish(await claim(lane), "give_up", b"out of memory")
    assert await lane.revive("one")
    await lane.finish(await claim(lane), "complete", b'{"url":"x"}')
    wanted = [
        *(("queued", 0), ("processing", 1), ("retrying", 1), ("queued", 1), ("processing", 2)),
        *(("dead_lettered", 2), ("queued", 2), ("processing", 3), ("completed", 3)),
    ]
    await eventually(lambda: len(follower.moves) >= len(wanted))
    assert follower.states == wanted
    first, began, failed, *_, revived, _, last = follower.moves
    assert (first.id, first.model, first.position, first.written) == (
        *("one", "a:b", 0),
        '{"payload":1,"metadata":[7]}',
    )
    assert (began.member, began.attempts, began.ended) == ("10.0.0.1:80", 1, 0.0)
    assert (failed.error, failed.failures) == ("out of memory", 1)
    assert (revived.error, revived.ended) == ("", 0.0)
    assert last == await lane.show("one")


async def test_where_nobody_follows_nothing_is_published(lane: JobLane, follower: Follower, valkey: Valkey) -> None:
    await submit(lane, "before")
    assert not await lane.watch(0.05)
    watched = keys.job_keys("a:b")[-2]
    assert watched.endswith(":watched")
    await eventually(lambda: valkey.admin.exists(watched) == 0)
    await submit(lane, "after")
    assert not await lane.watch(60)
    await submit(lane, "now")
    await eventually(lambda: bool(follower.moves))
    assert [each.id for each in follower.moves] == ["now"]


async def test_what_is_large_is_left_out(lane: JobLane, follower: Follower) -> None:
    await lane.watch(60)
    await submit(lane, written=b'{"payload":"%b"}' % (b"x" * 9000))
    await lane.finish(await claim(lane), "complete", b'"%b"' % (b"x" * 9000))
    await eventually(lambda: len(follower.moves) == 3)
    assert [(each.written, each.result) for each in follower.moves] == [("", "")] * 3


async def test_jobs_go_on_where_nothing_may_be_published_or_the_key_is_damaged(
    lane: JobLane, valkey: Valkey
) -> None:
    valkey.admin.sadd(keys.job_keys("a:b")[-1], "x")
    await submit(lane)
    await lane.finish(await claim(lane), "complete", b"1")
    assert not await lane.watch(60)
    assert await lane.watch(60)


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", '["m","i"]', "[" * 9000, '["m","i",' + "1," * 14 + "1]", "7" * 200_000]
)
def test_what_others_publish_is_passed_over(text: str) -> None:
    assert read_move(text) is None
