"""What is posted is written once, at the end of the turn, in the order it was posted."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from slb.upstreams.outbox import Outbox


class Sink:
    """The writing half of a transport. `on_write` is called with each write, as a full buffer's callbacks are."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closing = False
        self.on_write: Callable[[bytes], None] = lambda data: None

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        assert not self.closing
        self.written.append(data)
        self.on_write(data)


def post(outbox: Outbox, sink: Sink, data: bytes) -> None:
    outbox.post(cast("asyncio.Transport", sink), data)


async def end_of_turn() -> None:
    """What was scheduled before this call has run when it returns."""
    await asyncio.sleep(0)


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=4)), max_size=20))
def test_each_transport_gets_what_was_posted_to_it_in_that_order(posts: list[tuple[int, bytes]]) -> None:
    async def play() -> None:
        outbox, sinks = Outbox(), [Sink() for _ in range(4)]
        for number, data in posts:
            post(outbox, sinks[number], data)
        assert not any(sink.written for sink in sinks)
        await end_of_turn()
        for number, sink in enumerate(sinks):
            assert sink.written == [data for to, data in posts if to == number]

    asyncio.run(play())


async def test_a_turn_that_posts_much_wakes_once() -> None:
    outbox, sink = Outbox(), Sink()
    wakes: list[Callable[[], None]] = []
    outbox._call_soon = wakes.append
    for _ in range(3):
        post(outbox, sink, b"a")
    assert len(wakes) == 1
    wakes.pop()()
    post(outbox, sink, b"b")
    assert len(wakes) == 1


async def test_a_transport_that_is_closing_takes_nothing_and_keeps_nothing_from_others() -> None:
    outbox, closing, other = Outbox(), Sink(), Sink()
    post(outbox, closing, b"lost")
    post(outbox, other, b"kept")
    closing.closing = True
    await end_of_turn()
    assert (closing.written, other.written) == ([], [b"kept"])


async def test_flushing_again_writes_nothing_again() -> None:
    outbox, sink = Outbox(), Sink()
    post(outbox, sink, b"once")
    outbox.flush()
    outbox.flush()
    await end_of_turn()
    assert sink.written == [b"once"]


async def test_what_is_posted_after_a_flush_in_the_same_turn_is_written_too() -> None:
    outbox, sink = Outbox(), Sink()
    post(outbox, sink, b"first")
    outbox.flush()
    post(outbox, sink, b"second")
    await end_of_turn()
    assert sink.written == [b"first", b"second"]


async def test_what_is_posted_while_flushing_is_written_behind_the_rest() -> None:
    """A write can fill a buffer, and the callback of that may write."""
    outbox, one, other = Outbox(), Sink(), Sink()
    one.on_write = lambda data: post(outbox, other, b"because") if data == b"cause" else None
    post(outbox, one, b"cause")
    post(outbox, other, b"before")
    await end_of_turn()
    await end_of_turn()
    assert (one.written, other.written) == ([b"cause"], [b"before", b"because"])


async def test_a_flush_from_within_a_flush_loses_nothing() -> None:
    """The callback of a full buffer may close a connection, which flushes."""
    outbox, one, other = Outbox(), Sink(), Sink()
    one.on_write = lambda data: outbox.flush()
    post(outbox, one, b"cause")
    post(outbox, other, b"kept")
    await end_of_turn()
    assert (one.written, other.written) == ([b"cause"], [b"kept"])


async def test_a_write_that_fails_cuts_its_connection_keeps_nothing_from_others_and_is_reported() -> None:
    def fails(data: bytes) -> None:
        raise RuntimeError("broken transport")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    outbox, broken, other = Outbox(), Sink(), Sink()
    broken.on_write = fails
    post(outbox, broken, b"lost")
    post(outbox, other, b"kept")
    post(outbox, broken, b"behind the gap")
    await end_of_turn()
    assert (broken.written, other.written) == ([b"lost"], [b"kept"])
    assert broken.closing
    assert [str(context["exception"]) for context in reported] == ["broken transport"]
    post(outbox, other, b"woken again")
    await end_of_turn()
    assert other.written == [b"kept", b"woken again"]
