"""What a Redis that has its data lacks of what an instance has, and why."""

from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from slb.control import keys
from slb.control.behind import Behind, behind, undoes
from slb.control.eviction import Evictions
from slb.control.history import History, Snapshot
from slb.model import RouteRecord

A, B = "10.1.1.1:1", "10.2.2.2:2"
OF_A, OF_B = keys.membership("/a", A), keys.membership("/a", B)
NOW = 17.0


def table(*members: str, floor: int = 5, last: int = 20, **numbers: int) -> Snapshot:
    """The route `/a`; `numbers`: `a` and `b` of its members A and B."""
    of = {{"a": OF_A, "b": OF_B}[name]: number for name, number in numbers.items()}
    records = {"/a": RouteRecord(frozenset(members))} if members else {}
    return Snapshot(records, history=History(of, floor, last))


def evictions(happened: bool = False, removed: str = "") -> Evictions:
    played = SimpleNamespace(happened=happened, was_removed=lambda entry, found: entry == removed)
    return cast("Evictions", cast("Any", played))


async def test_a_redis_that_has_all_lacks_nothing() -> None:
    good = table(A, B, a=10, b=11)
    assert await behind(good, table(A, B, a=10, b=11), evictions(), NOW) is None
    assert await behind(good, table(A, a=10, b=12), evictions(), NOW) is None, "B has left since"


async def test_a_redis_with_older_numbers_came_back_with_older_data() -> None:
    found = await behind(table(A, B, a=10, b=11), table(A, a=10), evictions(), NOW)
    assert found is not None
    assert (set(found.lost), found.floor, found.write_at, found.evicted) == ({OF_B}, 5, NOW, 0)
    assert (found.lost[OF_B].value, found.lost[OF_B].number) == (True, 11)


async def test_what_is_missing_under_the_number_that_is_known_was_evicted_where_redis_has_evicted() -> None:
    good, lacking = table(A, B, a=10, b=11), table(A, a=10, b=11)
    assert await behind(good, lacking, evictions(), NOW) is None
    assert await behind(good, lacking, evictions(True, removed=OF_B), NOW) is None
    found = await behind(good, lacking, evictions(True), NOW)
    assert found is not None
    assert (set(found.lost), found.evicted) == ({OF_B}, 1)


async def test_a_log_that_was_evicted_is_counted_with_all_that_stood_in_it() -> None:
    found = await behind(table(A, a=10), Snapshot({"/a": RouteRecord(frozenset({A}))}), evictions(True), NOW)
    assert found is not None
    assert (set(found.lost), found.evicted) == ({OF_A}, 1)


async def test_older_data_and_evictions_are_both_made_up_for() -> None:
    found = await behind(table(A, B, a=10, b=11), table(a=10), evictions(True), NOW)
    assert found is not None
    assert (set(found.lost), found.evicted) == ({OF_A, OF_B}, 2)


async def test_what_differs_without_a_newer_change_is_written_back_by_an_instance_that_has_less() -> None:
    good, found = table(A, a=10), table(A, B)
    good.history.of[OF_B] = 11
    assert await undoes(good, found, History({}, 5, 20))
    assert await undoes(good, found, History({OF_B: 10}, 5, 20))
    assert not await undoes(good, found, History({OF_B: 11}, 5, 20))
    assert not await undoes(good, found, History({}, 11, 20))
    assert not await undoes(good, table(A), History({}, 5, 20))


async def test_what_was_changed_by_hand_undoes_nothing() -> None:
    assert not await undoes(table(A, a=10), table(A, B), History({}, 5, 20))


def test_the_log_shows_which_of_the_two_it_was() -> None:
    with capture_logs() as logs:
        Behind({OF_A: cast("Any", None)}, 5, NOW, 0).log("redis://x")
        Behind({OF_A: cast("Any", None)}, 5, NOW, 3).log("redis://x")
    logged = [(line["event"], line["changes"], line["redis"]) for line in logs]
    assert logged == [("redis_came_back_behind", 1, "redis://x"), ("redis_evicted", 3, "redis://x")]
