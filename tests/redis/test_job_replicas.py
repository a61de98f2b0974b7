"""Jobs that are taken once a replica of Redis has them."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from slb.control import keys
from slb.errors import NotReplicated, RedisUnavailable
from tests.redis.jobs_rig import MODEL, Begin
from tests.support.acl import acl_rules
from tests.support.ports import closed_port
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

JOB = keys.job_keys(MODEL)[0]


@pytest.fixture
def primary() -> Iterator[Valkey]:
    port = closed_port().rpartition(":")[2]
    with closing(Valkey(port=port, repl_diskless_sync_delay="0")) as server:
        yield server


@pytest.fixture
def replica(primary: Valkey) -> Iterator[Valkey]:
    with closing(Valkey()) as server:
        server.admin.replicaof("127.0.0.1", str(primary.admin.config_get("port")["port"]))
        yield server


async def until_follows(replica: Valkey) -> None:
    await eventually(lambda: replica.admin.info("replication")["master_link_status"] == "up")


async def test_what_was_acknowledged_is_there_when_the_replica_takes_over(
    begin: Begin, primary: Valkey, replica: Valkey
) -> None:
    await until_follows(replica)
    here = begin(url=primary.url, needs_replica=True)
    ids = [f"job{number}" for number in range(200)]
    taken: list[str] = []

    async def submit(id_: str) -> None:
        await here.submit(id_)
        taken.append(id_)
        if len(taken) == 150:
            primary.kill()

    replies = await asyncio.gather(*map(submit, ids), return_exceptions=True)
    assert all(reply is None or isinstance(reply, RedisUnavailable) for reply in replies)
    replica.admin.replicaof("NO", "ONE")
    other = begin("other", url=replica.url)
    assert {await other.state(id_) for id_ in taken} == {"queued"}


async def test_without_a_replica_that_answers_a_job_is_not_taken_and_all_else_goes_on(
    begin: Begin, primary: Valkey, replica: Valkey
) -> None:
    await until_follows(replica)
    here = begin(url=primary.url, needs_replica=True)
    assert await here.submit("one") == "new"
    replica.freeze()
    try:
        with pytest.raises(NotReplicated):
            await here.submit("two")
        assert here.lane.up
        job = await here.claim()
        assert await here.lane.finish(job, "complete", b"1")
    finally:
        replica.thaw()
    await eventually(lambda: replica.admin.exists(JOB + "two") == 1)
    assert await here.submit("two") == "queued"  # the same job, which is taken now
    assert (await here.lane.stats()).counts["submitted"] == 2


async def test_where_there_is_no_replica_no_job_is_taken(begin: Begin) -> None:
    here = begin(needs_replica=True)
    for _ in range(2):
        with pytest.raises(NotReplicated):
            await here.submit("one")
    assert await here.submit("one", digest="other") == "mismatch"


async def test_the_documented_acl_is_enough_for_jobs(begin: Begin, valkey: Valkey) -> None:
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    here = begin(url=valkey.url.replace("unix://", "unix://slb:pw@"), needs_replica=True)
    with pytest.raises(NotReplicated):
        await here.submit("one", calls_back=1, deadline=60_000)
    job = await here.claim()
    assert await here.lane.note_remote(job, "remote-1")
    assert await here.lane.finish(job, "fall", b"it failed", on="small")
    assert await here.lane.finish(await here.claim("small"), "retry", b"it failed")
    assert await here.lane.finish(await here.claim("small"), "give_up", b"it failed")
    assert await here.lane.ids("dead", 0, 1) == ["one"]
    assert await here.lane.revive("one")
    job = await here.claim()
    other = begin("other", url=valkey.url.replace("unix://", "unix://slb:pw@"))
    await other.lane.bury("a")
    job = await other.claim()
    assert await other.lane.cancel("one") == "processing"
    (due,) = await other.lane.due_callbacks(60, 1)
    assert await other.lane.callback_sent(due)
    with pytest.raises(NotReplicated):
        await here.submit("two")
    here.lane._lost()  # it asks for what it holds
    assert (await here.claim()).id == "two"
    assert await here.state("two") == "processing"
