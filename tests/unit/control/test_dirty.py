"""What is still to be read: each name once, in the order it was first marked."""

import asyncio

from slb.control import keys
from slb.control.dirty import BATCH, Batch, Dirty

MOST = 5000
MEMBER = "10.0.0.1:80"


def test_a_path_that_is_marked_again_and_again_is_read_once_with_all_its_keys() -> None:
    dirty = Dirty()
    for key in (keys.route_key("/b"), keys.settings_key("/b"), keys.route_key("/a"), keys.route_key("/b")):
        dirty.mark(key)
    dirty.mark(keys.upstream_key(MEMBER))
    batch = dirty.take()
    assert batch == Batch(["/b", "/a"], [MEMBER])
    assert batch.keys() == ["slb_b", "slb:route:/b", "slb_a", "slb:route:/a", "slb:upstream:10.0.0.1:80"]
    assert not dirty
    assert dirty.take() == Batch([], [])


def test_names_that_are_nothing_of_ours_are_left_to_full_syncs() -> None:
    dirty = Dirty()
    for key in ("slb_a/../b", "slb:upstream:no member", "slb:route:no path", "another program's"):
        dirty.mark(key)
    assert not dirty


def test_a_key_is_looked_at_up_to_the_longest_that_can_be_ours() -> None:
    dirty = Dirty()
    dirty.mark("slb:route:/" + "a" * (keys.LONGEST - len("slb:route:/") + 1))
    assert not dirty
    longest = "/" + "a" * (keys.LONGEST - len("slb:route:/"))
    dirty.mark(keys.settings_key(longest))
    assert dirty.take().paths == [longest]


def test_names_are_taken_a_few_at_once_those_first_that_have_waited_longest() -> None:
    dirty = Dirty()
    paths = [f"/{number}" for number in range(BATCH + 1)]
    for path in paths:
        dirty.mark(keys.route_key(path))
    assert dirty.take().paths == paths[:-1]
    assert dirty
    assert dirty.take().paths == paths[-1:]
    assert not dirty


def test_so_many_names_that_all_is_read_are_not_kept_until_it_has_begun() -> None:
    dirty = Dirty()
    for number in range(MOST):
        dirty.mark(keys.route_key(f"/{number}"))
    is_all = [dirty.all]
    for key in (keys.route_key("/more"), keys.upstream_key(MEMBER)):
        dirty.mark(key)
        is_all.append(dirty.all)
    assert is_all == [False, True, True]
    assert dirty.take().members == []
    dirty.clear()
    assert (bool(dirty), dirty.all, dirty.take()) == (False, False, Batch([], []))


async def test_it_can_be_waited_for_until_something_is_dirty() -> None:
    dirty = Dirty()
    waiting = asyncio.create_task(dirty.wait())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    dirty.mark(keys.upstream_key(MEMBER))
    await waiting
