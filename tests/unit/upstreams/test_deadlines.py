"""The wheel: nothing expires early, and nothing later than one tick."""

import asyncio
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.upstreams.deadlines import TICK, Timed, Wheel
from tests.support.memory import kept_of
from tests.support.waiting import soon


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Item(Timed):
    """Notes when it expired."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.expiries: list[float] = []
        self._clock = clock

    def expired(self) -> None:
        self.expiries.append(self._clock.now)


def turn(wheel: Wheel, clock: Clock, seconds: float) -> None:
    """Let `seconds` pass, with a look at each tick."""
    end = clock.now + seconds
    while clock.now < end - TICK / 2:
        clock.now += TICK
        wheel.tick()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wheel(clock: Clock) -> Wheel:
    return Wheel(clock)


@pytest.fixture
def item(clock: Clock) -> Item:
    return Item(clock)


_actions = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), st.integers(0, 3), st.floats(0, 3)),
        st.tuples(st.just("arm"), st.integers(0, 3), st.sampled_from([-1.0, 0.0, TICK, 0.15, 102.4, 250.0])),
        st.tuples(st.just("disarm"), st.integers(0, 3), st.just(0.0)),
        st.tuples(st.just("forget"), st.integers(0, 3), st.just(0.0)),
        st.tuples(st.just("turn"), st.just(0), st.floats(0, 5)),
        st.tuples(st.just("freeze"), st.just(0), st.sampled_from([0.01, 1.0, 103.0, 300.0])),
    ),
    max_size=25,
)


@given(_actions, st.floats(0, 1e6))
def test_the_wheel_does_what_a_list_of_deadlines_would(
    actions: list[tuple[str, int, float]], started: float
) -> None:
    """Against the plainest reference: after each tick, what is due has expired once, and nothing else has."""
    clock = Clock(started)
    wheel = Wheel(clock)
    items = [Item(clock) for _ in range(4)]
    due = [math.inf] * 4
    expired = [0] * 4

    def look() -> None:
        wheel.tick()
        for number, item in enumerate(items):
            if len(item.expiries) > expired[number]:
                assert due[number] <= clock.now, "expired early"
                due[number] = math.inf
                expired[number] += 1
            assert due[number] > clock.now - TICK - 1e-6, "still waiting a tick after it was due"
            assert len(item.expiries) == expired[number], "expired twice"

    for action, number, seconds in actions:
        if action == "arm":
            due[number] = clock.now + seconds
            wheel.arm(items[number], due[number])
            due[number] = max(due[number], clock.now)
        elif action == "disarm":
            due[number] = math.inf
            items[number].due = math.inf
        elif action == "forget":
            due[number] = math.inf
            wheel.forget(items[number])
        elif action == "freeze":
            clock.now += seconds
            look()
        else:
            for _ in range(int(seconds / TICK)):
                clock.now += TICK
                look()


def test_a_deadline_that_is_put_off_again_and_again_expires_at_the_last(
    wheel: Wheel, clock: Clock, item: Item
) -> None:
    for _ in range(10):
        wheel.arm(item, clock.now + 1)
        turn(wheel, clock, 0.5)
    assert item.expiries == []
    turn(wheel, clock, 0.6)
    assert len(item.expiries) == 1


def test_a_deadline_is_over_once_it_has_expired(wheel: Wheel, clock: Clock, item: Item) -> None:
    wheel.arm(item, clock.now + 0.1)
    turn(wheel, clock, 300)
    assert len(item.expiries) == 1
    assert item.due == math.inf


def test_an_item_disarmed_by_the_one_before_it_does_not_expire(wheel: Wheel, clock: Clock) -> None:
    class Disarming(Item):
        other: Item

        def expired(self) -> None:
            super().expired()
            self.other.due = math.inf

    first, second = Disarming(clock), Disarming(clock)
    first.other, second.other = second, first
    for each in (first, second):
        wheel.arm(each, clock.now + 0.1)
    turn(wheel, clock, 1)
    assert len(first.expiries) + len(second.expiries) == 1


def test_an_item_may_arm_itself_anew_when_it_expires(wheel: Wheel, clock: Clock) -> None:
    class Repeating(Item):
        def expired(self) -> None:
            super().expired()
            wheel.arm(self, clock.now + 1)

    item = Repeating(clock)
    wheel.arm(item, clock.now + 1)
    turn(wheel, clock, 5.5)
    assert len(item.expiries) == 5


def test_a_forgotten_item_is_held_no_longer(wheel: Wheel, clock: Clock, item: Item) -> None:
    wheel.arm(item, clock.now + 1)
    assert item in kept_of(wheel, Item)
    wheel.forget(item)
    assert item not in kept_of(wheel, Item)
    wheel.forget(item)
    turn(wheel, clock, 2)
    assert item.expiries == []


def test_deadlines_of_many_turns_of_the_wheel_are_kept(wheel: Wheel, clock: Clock, item: Item) -> None:
    started = clock.now
    wheel.arm(item, started + 3600)
    turn(wheel, clock, 3700)
    assert len(item.expiries) == 1
    assert started + 3600 <= item.expiries[0] <= started + 3600 + 2 * TICK


def test_no_deadline_at_all_needs_no_place_on_the_wheel(wheel: Wheel, item: Item) -> None:
    wheel.arm(item, math.inf)
    assert not kept_of(wheel, Item)


async def test_a_started_wheel_turns_by_itself_until_it_is_stopped() -> None:
    loop = asyncio.get_running_loop()
    expired = asyncio.Event()

    class Waking(Timed):
        def expired(self) -> None:
            expired.set()

    wheel = Wheel(time.monotonic)
    wheel.start(loop)
    assert kept_of(wheel, asyncio.TimerHandle)
    wheel.arm(Waking(), time.monotonic() + 0.01)
    await soon(expired.wait())
    wheel.stop()
    assert not kept_of(wheel, asyncio.TimerHandle)
    wheel.stop()


async def test_one_that_fails_at_its_deadline_takes_no_others_and_is_reported(clock: Clock, wheel: Wheel) -> None:
    class Failing(Timed):
        def expired(self) -> None:
            raise RuntimeError("broken")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    items = [Item(clock) for _ in range(8)]
    for timed in (*items[:4], Failing(), Failing(), *items[4:]):
        wheel.arm(timed, clock.now + 1)
    late = Item(clock)
    wheel.arm(late, clock.now + 1 + TICK)
    turn(wheel, clock, 1.5)
    assert [len(each.expiries) for each in (*items, late)] == [1] * 9
    assert [str(context["exception"]) for context in reported] == ["broken", "broken"]
    assert all("Failing" in context["message"] for context in reported)


def test_a_slot_gives_back_the_room_of_a_crowd_that_has_left(wheel: Wheel, clock: Clock) -> None:
    empty = sum(map(sys.getsizeof, kept_of(wheel, set)))
    crowd = [Item(clock) for _ in range(5000)]
    for item in crowd:
        wheel.arm(item, clock.now + 1)
    assert sum(map(sys.getsizeof, kept_of(wheel, set))) > empty
    turn(wheel, clock, 2)
    assert all(item.expiries for item in crowd)
    assert sum(map(sys.getsizeof, kept_of(wheel, set))) == empty


class Loop:
    """An event loop that does nothing by itself: `turns` are what it was asked to call."""

    def __init__(self, clock: Clock) -> None:
        self.time = clock
        self.turns: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        self.turns.append((self.time() + seconds, partial(call, *args)))


def test_a_process_that_stood_still_reads_before_deadlines_pass(wheel: Wheel, clock: Clock, item: Item) -> None:
    """What came meanwhile is read behind the timers of one turn of the loop, and before those of the next."""
    loop = Loop(clock)
    wheel.start(cast("asyncio.AbstractEventLoop", loop))
    wheel.arm(item, clock() + 5.0)
    clock.now += 36.0
    loop.turns.pop()[1]()
    assert not item.expiries, "nothing that came in 36 s has been read"
    ((due, turn),) = loop.turns
    clock.now = due
    turn()
    assert item.expiries
