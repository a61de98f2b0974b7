"""Traffic while Redis comes back with the data of some time ago."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from slb.control import keys
from tests.process.commands import Commands, Serving
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until

OLD, NEW, GONE = "/old", "/new", "/gone"


@pytest.fixture
def snapshots() -> Iterator[Valkey]:
    """A Valkey that comes back with what its last SAVE has, and has a generation: no instance waits for one."""
    server = Valkey(appendonly="no")
    server.admin.set(keys.GENERATION, "of this Redis")
    yield server
    server.close()


async def change(slb: Commands, serving: Serving, method: str, path: str, member: str) -> None:
    async with slb.session.request(
        method, f"{serving.api}/register", json={"path": path, "target": member}
    ) as reply:
        assert reply.status == 200, await reply.text()


async def test_no_request_fails_and_the_table_is_right_when_redis_comes_back_from_a_snapshot(
    slb: Commands, snapshots: Valkey
) -> None:
    _, member = await slb.upstream("a")
    one, other = [await slb.until_ready(await slb.serve(redis=snapshots.url)) for _ in range(2)]
    await change(slb, one, "POST", OLD, member)
    await change(slb, one, "POST", GONE, member)
    for serving in (one, other):
        await slb.until_status(f"{serving.url}{GONE}", 200)
    snapshots.admin.save()
    await change(slb, one, "POST", NEW, member)
    await change(slb, other, "DELETE", GONE, member)
    for serving in (one, other):
        await slb.until_status(f"{serving.url}{NEW}", 200)
        await slb.until_status(f"{serving.url}{GONE}", 404)

    async def ask(serving: Serving) -> None:
        while not is_over.is_set():
            for path in (OLD, NEW, GONE):
                seen[path, (await slb.get(f"{serving.url}{path}"))[0]] += 1

    seen: Counter[tuple[str, int]] = Counter()
    is_over = asyncio.Event()
    asking = [asyncio.create_task(ask(serving)) for serving in (one, other)]
    snapshots.kill()
    for serving in (one, other):
        await until_up(slb, serving, False)
    snapshots.start()
    await eventually(lambda: snapshots.admin.exists("slb_new", "slb_gone") == 1, timeout=5)
    for serving in (one, other):
        await until_up(slb, serving, True)
    before = seen.total()
    await eventually(lambda: seen.total() > before + 50)
    is_over.set()
    await asyncio.gather(*asking)
    assert seen.keys() == {(OLD, 200), (NEW, 200), (GONE, 404)}
    assert snapshots.admin.smembers("slb_new") == {member}
    assert not snapshots.admin.exists("slb_gone")
    assert "redis_came_back_behind" in one.process.log.read_text() + other.process.log.read_text()


@pytest.mark.parametrize("loss", ["some", "all"])
async def test_a_setting_changed_as_soon_as_redis_is_back_leaves_the_cap_and_the_drain_flag_alone(
    slb: Commands, snapshots: Valkey, loss: str
) -> None:
    member = "10.0.0.1:80"
    one, other = [await slb.until_ready(await slb.serve(redis=snapshots.url)) for _ in range(2)]
    await change(slb, one, "POST", OLD, member)
    snapshots.admin.save()
    await patch(slb, one, f"/routes{OLD}", {"max_inflight": 5})
    await patch(slb, one, f"/upstreams/{member}", {"drain": True})
    for serving in (one, other):
        await until_drained_and_capped(slb, serving)
    if loss == "some":
        snapshots.kill()
        snapshots.start()
    else:
        snapshots.admin.flushall()
    await patch(slb, other, f"/routes{OLD}", {"retries": 2})
    stored = {"max_inflight": "5", "retries": "2"}
    await eventually(lambda: snapshots.admin.hgetall("slb:route:/old") == stored, timeout=10)
    await eventually(lambda: snapshots.admin.hget(f"slb:upstream:{member}", "drain") == "true", timeout=10)
    for serving in (one, other):
        await until_drained_and_capped(slb, serving)


async def patch(slb: Commands, serving: Serving, path: str, changes: dict[str, object]) -> None:
    """Asked again while Redis is away: the first answer is at once after it is back."""

    async def ask() -> tuple[int, str]:
        async with slb.session.request("PATCH", serving.api + path, json=changes) as reply:
            return reply.status, await reply.text()

    status, text = await until(ask, lambda answer: answer[0] != 503)
    assert status in {200, 202}, text


async def until_drained_and_capped(slb: Commands, serving: Serving) -> None:
    await slb.until_json(
        f"{serving.api}/routes{OLD}",
        lambda route: route["settings"]["max_inflight"] == 5 and all(each["drain"] for each in route["members"]),
    )


async def until_up(slb: Commands, serving: Serving, expected: bool) -> None:
    """Wait until this instance shows that Redis answers, or does not."""
    await slb.until_json(f"{serving.api}/status", lambda status: status["redis"]["up"] is expected)
