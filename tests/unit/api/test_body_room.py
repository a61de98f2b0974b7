"""How many bytes of bodies are held at once: who has room, who waits for it, and who is refused."""

import asyncio
import io
import zlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.api.body_room import UNCOUNTED, BodyRoom
from slb.api.parts import ApiParts
from slb.config import Settings
from slb.control.connection import Connection
from slb.errors import OVERLOADED, Refused
from tests.support.waiting import eventually, patience, soon, until
from tests.unit.api.conftest import Api, ApiMaker
from tests.unit.api.jobs_rig import api_of_jobs

LONG = 60.0
BODY = 4 * UNCOUNTED


async def entered(work: Awaitable[None], room: BodyRoom) -> asyncio.Task[None]:
    """A task that has room, or waits for it."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    assert isinstance(task, asyncio.Task)
    return task


async def test_what_does_not_fit_waits_in_order_and_smaller_ones_do_not_pass_it() -> None:
    room = BodyRoom(most=10, share=10)
    await room.take("a", 8, 0, LONG)
    large = await entered(room.take("b", 9, 0, LONG), room)
    small = await entered(room.take("c", 1, 0, LONG), room)
    assert (room.taken, room.waiting) == (8, 2)
    room.give_back("a", 8)
    await soon(asyncio.gather(large, small))
    assert room.taken == 10


async def test_an_address_that_has_its_share_is_passed_by_others() -> None:
    room = BodyRoom(most=10, share=4)
    await room.take("a", 3, 0, LONG)
    greedy = await entered(room.take("a", 2, 0, LONG), room)
    await soon(room.take("b", 4, 0, LONG))
    assert not greedy.done()
    room.give_back("a", 3)
    await soon(greedy)


async def test_a_body_longer_than_all_room_is_taken_alone_and_one_that_grows_may_too() -> None:
    room = BodyRoom(most=10, share=4)
    await soon(room.take("a", 20, 0, LONG))
    other = await entered(room.take("b", 1, 0, LONG), room)
    assert not other.done()
    await soon(room.take("a", 20, 20, LONG))
    room.give_back("a", 40)
    await soon(other)


async def test_what_waits_too_long_is_refused_and_no_longer_in_the_way() -> None:
    room = BodyRoom(most=10, share=10, most_waiting=2)
    await room.take("a", 8, 0, LONG)
    large = await entered(room.take("b", 9, 0, 0.05), room)
    small = await entered(room.take("c", 1, 0, LONG), room)
    with pytest.raises(Refused) as refused:
        await room.take("d", 1, 0, LONG)
    assert (refused.value.reason, "2 bodies wait" in refused.value.detail) == (OVERLOADED, True)
    await soon(small)
    with pytest.raises(Refused) as refused:
        await large
    assert refused.value.reason == OVERLOADED
    assert (room.taken, room.waiting) == (9, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12), st.booleans()), max_size=30))
def test_all_room_is_given_back_once_whoever_leaves_in_whatever_state(steps: list[tuple[str, int, bool]]) -> None:
    async def run() -> None:
        room = BodyRoom(most=10, share=5)
        tasks: list[tuple[str, int, asyncio.Task[None]]] = []
        for peer, count, leaves in steps:
            tasks.append((peer, count, await entered(room.take(peer, count, 0, LONG), room)))
            assert room.taken <= max(10, max(each for _, each, _ in tasks))
            if leaves:
                await end(room, *tasks.pop(Random(count).randrange(len(tasks))))
        for each in tasks:
            await end(room, *each)
        assert (room.taken, room.waiting, room._taken_by) == (0, 0, {})

    async def end(room: BodyRoom, peer: str, count: int, task: asyncio.Task[None]) -> None:
        if task.done():
            room.give_back(peer, count)
            return
        task.cancel()  # granted in this turn maybe
        await asyncio.wait([task])

    asyncio.run(run())


async def test_one_that_is_cancelled_in_the_turn_that_grants_it_gives_its_room_back() -> None:
    room = BodyRoom(most=10, share=10)
    await room.take("a", 10, 0, LONG)
    waits = await entered(room.take("b", 10, 0, LONG), room)
    room.give_back("a", 10)
    waits.cancel()
    await asyncio.wait([waits])
    assert room.taken == 0


# -- before an API


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """With room for one body of BODY bytes."""
    parts.body_room = BodyRoom(most=BODY, share=BODY)
    parts.settings = of_timeout(tmp_path, 1.0)
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        yield api


def of_timeout(folder: Path, seconds: float) -> Settings:
    return Settings.model_validate({"data_dir": folder, "head_timeout": f"{patience(seconds)}s"})


def body_of(length: int) -> bytes:
    """A submit of so many bytes."""
    empty = orjson.dumps({"model": "flux", "payload": ""})
    return orjson.dumps({"model": "flux", "payload": "x" * (length - len(empty))})


@asynccontextmanager
async def stalled(api: Api, *fields: str, sent: bytes = b"") -> AsyncIterator[asyncio.StreamReader]:
    """A submit whose body does not come whole."""
    reader, writer = await asyncio.open_connection(api.host, api.port)
    lines = ["POST /queue/submit HTTP/1.1", f"Host: 127.0.0.1:{api.port}", *fields]
    writer.write("\r\n".join([*lines, "\r\n"]).encode() + sent)
    yield reader
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_body_for_which_there_is_no_room_waits_until_one_that_does_not_come_is_given_up(jobs: Api) -> None:
    room = jobs.parts.body_room
    async with stalled(jobs, f"Content-Length: {BODY}") as reader:
        await eventually(lambda: room.taken == BODY)
        waiting = asyncio.create_task(jobs.call("POST", "/queue/submit", io.BytesIO(body_of(BODY))))
        await eventually(lambda: room.waiting == 1)
        small = await jobs.call("POST", "/queue/submit", io.BytesIO(body_of(UNCOUNTED)))
        assert small.status == 202  # it needs none
        assert not waiting.done()
        assert b" 408 " in await soon(reader.readline())
    answer = await soon(waiting)
    assert answer.status == 202, answer.json
    await eventually(lambda: room.taken == 0)


async def test_where_there_is_no_room_for_long_that_is_the_answer_before_the_body_is_read(
    serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path
) -> None:
    parts.body_room = room = BodyRoom(most=BODY, share=BODY)
    parts.settings = of_timeout(tmp_path, 1.0)
    async with api_of_jobs(serve, connection, parts, tmp_path) as jobs:
        await room.take("elsewhere", BODY, 0, LONG)
        async with stalled(jobs, f"Content-Length: {BODY}") as reader:
            head = await soon(reader.readuntil(b"\r\n\r\n"))
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1\r\n" in head
            assert b'"overloaded"' in await soon(reader.readuntil(b"}"))
        room.give_back("elsewhere", BODY)


@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_of_unknown_length_needs_room_as_it_grows(jobs: Api, packed: bool) -> None:
    room, text = jobs.parts.body_room, body_of(BODY)
    fields = ["Transfer-Encoding: chunked"]
    if packed:
        text = zlib.compress(text, 0)  # no shorter: how long it is unpacked is known at its end
        fields = [f"Content-Length: {len(text)}", "Content-Encoding: deflate"]
    sent = text[: BODY - UNCOUNTED - 1000]
    async with stalled(jobs, *fields, sent=sent if packed else b"%x\r\n%s" % (len(text), sent)):
        await eventually(lambda: room.taken == BODY - UNCOUNTED)
    await eventually(lambda: room.taken == 0)


async def test_a_caller_that_waits_for_its_job_holds_no_room(jobs: Api) -> None:
    waiting = asyncio.create_task(jobs.call("POST", "/queue/run", io.BytesIO(body_of(BODY))))
    found = await until(lambda: jobs.call("GET", "/queue/jobs?model=flux"), lambda answer: answer.json["jobs"])
    assert not waiting.done()
    assert jobs.parts.body_room.taken == 0
    await jobs.call("DELETE", f"/queue/jobs/{found.json['jobs'][0]['job_id']}")
    assert (await soon(waiting)).json["status"] == "cancelled"
