"""Long work gives way to others, and not more often than it has to."""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Iterator

import pytest

from slb.control.slices import SLICE, Slices, rested, same_objects, step_through


class Clock:
    """Seconds, as the test sets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def gives_way(work: Awaitable[object]) -> bool:
    """Whether others run before it has ended."""
    ran: list[bool] = []
    asyncio.get_running_loop().call_soon(ran.append, True)
    await work
    return bool(ran)


async def test_work_gives_way_once_a_slice_is_used_up_and_then_has_another() -> None:
    clock = Clock()
    slices = Slices(clock, length=2.0)
    assert not await gives_way(slices.rest())
    clock.now = 1.9
    assert not await gives_way(slices.rest())
    clock.now = 2.0
    assert await gives_way(slices.rest())
    clock.now = 3.9
    assert not await gives_way(slices.rest())
    clock.now = 4.0
    assert await gives_way(slices.rest())


async def test_a_generator_is_run_to_its_end_and_gives_way_after_each_step() -> None:
    assert await gives_way(step_through([None]))
    assert not await gives_way(step_through([]))


async def test_what_is_gone_through_comes_without_the_steps_that_found_nothing() -> None:
    assert [each async for each in rested(["a", None, "", None])] == ["a", ""]


async def test_going_through_gives_way_once_a_slice_is_used_up_also_while_nothing_is_found() -> None:
    def slow_steps() -> Iterator[None]:
        until = time.perf_counter() + SLICE
        while time.perf_counter() < until:
            pass
        yield None

    async def go_through(steps: Iterable[None]) -> None:
        async for _ in rested(steps):
            pass

    assert await gives_way(go_through(slow_steps()))


@pytest.mark.parametrize(("other", "same"), [("ab", True), ("ac", False), ("a", False), ("abc", False)])
async def test_two_mappings_are_the_same_where_they_have_the_same_objects(other: str, same: bool) -> None:
    objects = {name: object() for name in "abc"}
    one, two = ({name: objects[name] for name in names} for names in ("ab", other))
    assert await same_objects(one, two, Slices()) is same
    assert not await same_objects({"a": []}, {"a": []}, Slices()), "equal is not enough"


async def test_a_long_comparison_gives_way() -> None:
    slices = Slices(Clock(), length=0.0)
    many = {str(number): number for number in range(10)}
    assert await gives_way(same_objects(many, dict(many), slices))
