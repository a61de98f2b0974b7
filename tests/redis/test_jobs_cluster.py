"""The jobs' script in a server of a Redis Cluster that has all slots: it refuses a call whose keys are in two."""

from collections.abc import Iterator

import pytest
from redis import Redis

from slb.control import keys
from slb.job import ModelConfig
from tests.redis.jobs_rig import AT, MODEL, Begin
from tests.support.ports import closed_port
from tests.support.valkey import Valkey
from tests.support.waiting import wait_until


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """One node, which has all slots."""
    ports = {name: closed_port().partition(":")[2] for name in ("port", "cluster_port")}
    server = Valkey(cluster_enabled="yes", bind="127.0.0.1", **ports)
    try:
        server.admin.cluster("addslotsrange", 0, 16383)
        wait_until(lambda: server.admin.cluster("info")["cluster_state"] == "ok", 10.0, "a cluster that is up")
        yield server
    finally:
        server.close()


def slots_of(redis: Redis) -> dict[int, list[str]]:
    """All keys, by their slots."""
    found: dict[int, list[str]] = {}
    for key in redis.scan_iter():
        found.setdefault(redis.cluster("keyslot", key), []).append(key)
    return found


def test_all_keys_of_a_model_are_in_one_slot(valkey: Valkey) -> None:
    assert len({valkey.admin.cluster("keyslot", key) for key in keys.job_keys(MODEL)}) == 1
    assert len({valkey.admin.cluster("keyslot", key + "job1") for key in keys.job_keys(MODEL)}) == 1


async def test_a_job_runs_and_is_called_back_with_all_its_keys_in_one_slot(valkey: Valkey, begin: Begin) -> None:
    here = begin()
    here.lane.config = ModelConfig(result_ttl=60.0)
    assert await here.submit("one", calls_back=1) == "new"
    assert await here.submit("two", deadline=60_000) == "new"
    first = await here.claim()
    assert await here.lane.finish(first, "retry", b"it failed", 30.0)
    second = await here.claim()
    assert await here.lane.note_remote(second, "remote-2")
    assert await here.lane.finish(second, "give_up", b"it failed")
    assert await here.lane.cancel("one") == "retrying"
    (due,) = await here.lane.due_callbacks(60.0, 10)
    assert await here.lane.callback_sent(due)
    assert await here.lane.revive("two")
    third = await here.claim()
    assert await here.lane.finish(third, "complete", b'"done"')
    shown = await here.lane.show("two")
    assert shown is not None
    assert (shown.state, shown.result, await here.lane.claim(AT)) == ("completed", '"done"', None)
    (stored,) = slots_of(valkey.admin).values()
    assert all(key.startswith(f"slb:{{jobs:{MODEL}}}:") for key in stored)


async def test_what_a_dead_instance_ran_begins_again_in_a_cluster(begin: Begin) -> None:
    one, other = begin("a"), begin("b")
    await one.submit("one")
    await one.claim()
    await other.lane.bury("a")
    assert (await other.claim()).attempts == 2
