"""Who has a slot of a GPU, and who waits: direct calls first, the dispatcher's only where none waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.gpu.line import Arrival, Line
from slb.gpu.slots import GpuBusy, GpuSlots, QueueFull


def test_direct_calls_run_while_there_are_slots_then_wait_then_are_refused() -> None:
    line: Line[str] = Line(slots=2, direct_queue=1)
    arrivals = [line.arrive(call, from_dispatcher=False) for call in "abcd"]
    assert arrivals == [Arrival.RUNS, Arrival.RUNS, Arrival.WAITS, Arrival.FULL]
    assert (line.running, line.waiting) == (2, 1)


def test_a_call_of_the_dispatcher_is_refused_while_all_slots_are_taken() -> None:
    line: Line[str] = Line(slots=1, direct_queue=10)
    assert line.arrive("a", from_dispatcher=True) is Arrival.RUNS
    assert line.arrive("b", from_dispatcher=True) is Arrival.BUSY
    assert line.leave("a") is None
    assert line.arrive("b", from_dispatcher=True) is Arrival.RUNS


def test_the_queue_of_direct_calls_is_drained_in_order_before_the_dispatcher_has_a_slot() -> None:
    line: Line[str] = Line(slots=1, direct_queue=10)
    for call in "abc":
        line.arrive(call, from_dispatcher=False)
    assert line.leave("a") == "b"
    assert line.arrive("job", from_dispatcher=True) is Arrival.BUSY
    assert line.leave("b") == "c"
    assert line.arrive("job", from_dispatcher=True) is Arrival.BUSY
    assert line.leave("c") is None
    assert line.arrive("job", from_dispatcher=True) is Arrival.RUNS


def test_one_that_waits_no_more_frees_its_place_and_none_else() -> None:
    line: Line[str] = Line(slots=1, direct_queue=2)
    for call in "abc":
        line.arrive(call, from_dispatcher=False)
    assert line.leave("b") is None
    assert line.arrive("d", from_dispatcher=False) is Arrival.WAITS
    assert [line.leave("a"), line.leave("c"), line.leave("d")] == ["c", "d", None]


@given(st.integers(1, 3), st.integers(0, 3), st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans())))
def test_no_slot_is_used_twice_and_none_is_idle_while_a_call_waits(
    slots: int, direct_queue: int, steps: list[tuple[int, bool, bool]]
) -> None:
    line: Line[int] = Line(slots, direct_queue)
    here: set[int] = set()
    for call, comes, from_dispatcher in steps:
        if not comes:
            line.leave(call)
            here.discard(call)
        elif call not in here and line.arrive(call, from_dispatcher) in (Arrival.RUNS, Arrival.WAITS):
            here.add(call)
        assert line.running + line.waiting == len(here)
        assert line.running <= slots
        assert line.waiting <= direct_queue
        assert line.waiting == 0 or line.running == slots


@pytest.mark.parametrize(("slots", "direct_queue"), [(0, 10), (1, -1)])
def test_numbers_that_make_no_sense_are_refused(slots: int, direct_queue: int) -> None:
    with pytest.raises(ValueError, match="has to be"):
        GpuSlots(slots, direct_queue)


async def test_a_place_that_is_released_twice_gives_back_one_slot() -> None:
    slots = GpuSlots(slots=1, direct_queue=2)
    first, second, third = (slots.arrive(None) for _ in range(3))
    first.release()
    first.release()
    await second.turn()
    assert (slots.health(), third.has_slot) == ({"active_jobs": 1, "slots": 1, "direct_waiting": 1}, False)


def test_the_refusals_say_what_a_caller_can_do() -> None:
    slots = GpuSlots(slots=1, direct_queue=0)
    slots.arrive("dispatcher")
    with pytest.raises(GpuBusy, match="GPU busy"):
        slots.arrive("dispatcher")
    with pytest.raises(QueueFull, match="Queue full"):
        slots.arrive("Dispatcher of somebody else")
