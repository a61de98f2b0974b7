"""Which side of a tunnel is read from, and whose end is looked for meanwhile: the transports are played."""

import asyncio
from typing import Any, cast

import pytest

from slb.proxy.tunnel import Tunnel
from slb.upstreams.deadlines import NEVER, Wheel

IDLE = 60.0


class Side:
    """A transport: whether it is read from, and the protocol it has been given."""

    def __init__(self) -> None:
        self.is_read = False
        self.protocol: Any

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def close(self) -> None:
        """The other side has ended."""

    abort = close


class Scene:
    """A tunnel at second 0."""

    def __init__(self) -> None:
        self.client, self.upstream = Side(), Side()
        self.ended: list[tuple[int, int]] = []
        one, other = (cast("asyncio.Transport", each) for each in (self.client, self.upstream))
        self.tunnel = Tunnel(one, other, Wheel(lambda: 0.0), IDLE, lambda up, down: self.ended.append((up, down)))
        self.tunnel.open()

    @property
    def is_looking(self) -> bool:
        """Whether the kernel is asked for the end of a side that is not read from."""
        return self.tunnel.unread.due < NEVER


@pytest.mark.parametrize("full", ["client", "upstream"])
def test_the_other_side_is_not_read_from_while_one_takes_no_more_and_its_end_is_looked_for(full: str) -> None:
    scene = Scene()
    sides = [scene.client, scene.upstream]
    one, other = sides if full == "client" else reversed(sides)
    assert (one.is_read, other.is_read, scene.is_looking) == (True, True, False)
    one.protocol.pause_writing()
    assert (one.is_read, other.is_read, scene.is_looking) == (True, False, True)
    one.protocol.resume_writing()
    assert (one.is_read, other.is_read, scene.is_looking) == (True, True, False)


def test_a_side_that_has_ended_is_not_looked_for_any_more() -> None:
    scene = Scene()
    scene.client.protocol.pause_writing()
    scene.upstream.protocol.connection_lost(None)
    assert not scene.is_looking
    scene.client.protocol.connection_lost(None)
    assert scene.ended == [(0, 0)]
    assert scene.tunnel.due == NEVER
