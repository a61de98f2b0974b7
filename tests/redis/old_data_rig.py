"""A Redis that comes back with the data of some time ago, and the instances that follow it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from slb.control import keys
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


@pytest.fixture
def snapshots() -> Iterator[Valkey]:
    """A Valkey that comes back with what its last SAVE has."""
    server = Valkey(appendonly="no")
    yield server
    server.close()


async def known(follower: Follower, valkey: Valkey) -> None:
    """All is read, and Redis has the key that shows that it has its data."""
    await follower.synced()
    await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)), what="a generation")
    await eventually(lambda: bool(follower.changes.history.generation), what="it known")


async def numbered(follower: Follower, valkey: Valkey) -> None:
    """It has the number of each change: what it shows may have been read a moment before its number."""
    logged: Any = valkey.admin.zrange(keys.CHANGES, -1, -1, withscores=True)
    last, changes = logged[0][1], follower.changes
    await eventually(lambda: changes.read_to >= last and not changes.waiting, what="all numbers known")


async def resting(follower: Follower) -> None:
    """All is read, and nothing is being read: the sync waits for the next event."""
    event = follower.sync.dirty._event
    await eventually(lambda: not event.is_set() and bool(vars(event)["_waiters"]), what="at rest")


async def back_from_snapshot(valkey: Valkey, *followers: Follower) -> None:
    for each in followers:
        await numbered(each, valkey)
    valkey.kill()
    await asyncio.gather(*(follower.up(False) for follower in followers))
    valkey.start()
    await asyncio.gather(*(follower.up(True) for follower in followers))


def members(valkey: Valkey, key: str) -> set[str]:
    return set(valkey.admin.smembers(key))  # type: ignore[arg-type]
