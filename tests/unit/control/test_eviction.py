"""Removals are distinguished from evictions by Redis's notifications and its count of evicted keys."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.eviction import Evictions
from slb.control.history import Snapshot
from slb.model import RouteRecord

A, B = "10.1.1.1:1", "10.2.2.2:2"
KEY = keys.route_key("/a")
ENTRY = keys.membership("/a", A)
SETTINGS = keys.settings_key("/a")
LESS = Snapshot({"/a": RouteRecord(frozenset({B}), {"policy": "p2c"})})
"""What is found: A is missing, and so is every setting but one."""
NOTHING = Snapshot()
MOST_REMOVALS = 5000


class PlayedRedis:
    """`evicted`: how many keys it has evicted so far; None where it does not let us see that."""

    def __init__(self) -> None:
        self.evicted: int | None = 0

    async def clients(self) -> list["PlayedRedis"]:
        return [self]

    async def info(self, section: str) -> dict[str, int]:
        assert section == "stats"
        if self.evicted is None:
            raise ResponseError("NOPERM")
        return {"evicted_keys": self.evicted}


@pytest.fixture
def redis() -> PlayedRedis:
    return PlayedRedis()


@pytest.fixture
def evictions(redis: PlayedRedis) -> Evictions:
    return Evictions(cast("Any", SimpleNamespace(servers=redis)))


@pytest.mark.parametrize("event", ["del", "expired", "rename_from"])
def test_a_key_that_was_removed_is_no_eviction(evictions: Evictions, event: str) -> None:
    assert not evictions.was_removed(ENTRY, NOTHING)
    evictions.notified(KEY, event)
    assert evictions.was_removed(ENTRY, NOTHING)
    assert evictions.was_removed(ENTRY, LESS)
    assert not evictions.was_removed(keys.membership("/b", A), NOTHING)


@pytest.mark.parametrize("event", ["srem", "spop"])
def test_a_member_that_was_removed_is_no_eviction_while_others_are_left(evictions: Evictions, event: str) -> None:
    """Where none is left, the key may have been evicted afterwards."""
    evictions.notified(KEY, event)
    assert evictions.was_removed(ENTRY, LESS)
    assert not evictions.was_removed(ENTRY, NOTHING)


def test_a_field_that_was_removed_is_no_eviction_while_others_are_left(evictions: Evictions) -> None:
    evictions.notified(SETTINGS, "hdel")
    assert evictions.was_removed(keys.field_entry(SETTINGS, "retries"), LESS)
    assert not evictions.was_removed(keys.field_entry(SETTINGS, "retries"), NOTHING)


def test_an_event_that_removes_nothing_is_none(evictions: Evictions) -> None:
    evictions.notified(KEY, "evicted")
    assert not evictions.was_removed(ENTRY, NOTHING)


@pytest.mark.parametrize(("event", "is_removed"), [("del", False), ("srem", True)])
async def test_a_key_that_is_written_again_was_not_removed_but_what_it_lost_was(
    evictions: Evictions, event: str, is_removed: bool
) -> None:
    evictions.notified(KEY, event)
    evictions.notified(KEY, "sadd")
    assert evictions.was_removed(ENTRY, LESS) is is_removed
    evictions.notified(KEY, event)
    await evictions.begin()
    evictions.notified(KEY, "sadd")
    assert evictions.was_removed(ENTRY, LESS) is is_removed


async def test_removals_are_remembered_until_all_that_is_known_was_found(evictions: Evictions) -> None:
    evictions.notified(KEY, "del")
    await evictions.begin()
    assert evictions.was_removed(ENTRY, NOTHING)
    await evictions.begin()
    assert evictions.was_removed(ENTRY, NOTHING)
    evictions.settled()
    assert not evictions.was_removed(ENTRY, NOTHING)


async def test_removals_before_a_look_that_finds_no_eviction_are_forgotten(
    redis: PlayedRedis, evictions: Evictions
) -> None:
    await evictions.begin()
    evictions.notified(KEY, "del")
    redis.evicted = 1
    assert await evictions.look()
    assert evictions.was_removed(ENTRY, NOTHING)
    redis.evicted = 0
    assert not await evictions.look()
    assert not evictions.was_removed(ENTRY, NOTHING)


def test_of_very_many_removals_the_last_are_remembered(evictions: Evictions) -> None:
    for number in range(MOST_REMOVALS):
        evictions.notified(keys.route_key(f"/{number}"), "del")
    assert evictions.was_removed(keys.membership("/0", A), NOTHING)
    evictions.notified(KEY, "del")
    assert evictions.was_removed(ENTRY, NOTHING)
    assert not evictions.was_removed(keys.membership("/0", A), NOTHING)


async def test_a_redis_has_evicted_while_its_count_is_another_than_when_all_was_there(
    redis: PlayedRedis, evictions: Evictions
) -> None:
    redis.evicted = 5
    assert not await evictions.begin(), "what it evicted before this instance came is not missing here"
    redis.evicted = 6
    assert (await evictions.begin(), evictions.happened) == (True, True)
    evictions.settled()
    assert (await evictions.look(), evictions.happened) == (False, False)
    redis.evicted = 0
    assert not await evictions.begin(), "it is another Redis, which has evicted nothing"


async def test_what_is_evicted_while_the_table_is_read_may_be_missing_after_it(
    redis: PlayedRedis, evictions: Evictions
) -> None:
    await evictions.begin()
    redis.evicted = 1
    evictions.settled()
    assert await evictions.look()


async def test_where_the_count_cannot_be_seen_nothing_has_been_evicted(
    redis: PlayedRedis, evictions: Evictions
) -> None:
    redis.evicted = None
    assert not await evictions.begin()
    assert not await evictions.look()


async def test_an_eviction_that_was_notified_counts_until_nothing_is_missing(
    evictions: Evictions, redis: PlayedRedis
) -> None:
    """The server may have started again since, with a count of 0."""
    redis.evicted = 3
    assert not await evictions.begin()
    evictions.settled()
    evictions.notified(KEY, "evicted")
    redis.evicted = 0
    assert await evictions.look()
    assert await evictions.begin()
    evictions.notified(KEY, "evicted")
    evictions.settled()
    assert await evictions.look(), "one came while the table was read"
    assert await evictions.begin()
    evictions.settled()
    assert not await evictions.look()
