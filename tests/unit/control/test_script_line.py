"""What a script's calls send where Redis has forgotten it, on a wire that the test answers for."""

import asyncio
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, RedisError

from slb.control.endpoint import again
from slb.control.script_line import ScriptLine
from slb.control.wire import OnReply, Wire

LOAD = "load"


class FakeWire:
    """`sent`: `load`, or the last argument of each call."""

    def __init__(self) -> None:
        self.lost: RedisError | None = None
        self.sent: list[str] = []
        self.expected: list[OnReply] = []

    def send(self, commands: bytes, *on_reply: OnReply) -> None:
        words = commands.split(b"\r\n")
        self.sent.append(LOAD if b"LOAD" in words else words[-2].decode())
        self.expected.extend(on_reply)
        if self.lost is not None:
            self._end()

    def reply(self, *replies: Any) -> None:
        """To what was sent first."""
        for each in replies:
            self.expected.pop(0)(each)

    def close(self) -> None:
        self.lost = RedisConnectionError("closed")
        self._end()

    def _end(self) -> None:
        expected, self.expected = self.expected, []
        for on_reply in expected:
            on_reply(again(cast("RedisError", self.lost)))


class Rig:
    """A line, and the wires it made."""

    def __init__(self) -> None:
        self.wires: list[FakeWire] = []
        self.line = ScriptLine(self._new_wire, "return 1")

    def _new_wire(self) -> Wire:
        self.wires.append(FakeWire())
        return cast("Wire", self.wires[-1])

    @property
    def wire(self) -> FakeWire:
        """The last one."""
        return self.wires[-1]

    async def call(self, name: str) -> asyncio.Task[Any]:
        """Made, and not answered yet."""
        task = asyncio.create_task(self.line.call([], [name]))
        await asyncio.sleep(0)
        return task

    async def loaded(self) -> None:
        """A first call has been answered."""
        first = await self.call("first")
        self.wire.reply("sha", "done")
        assert await first == "done"
        self.wire.sent.clear()


def forgot() -> NoScriptError:
    """What Redis answers to a script it does not have."""
    return NoScriptError("No matching script.")


async def test_the_first_call_brings_the_script_along() -> None:
    rig = Rig()
    one = await rig.call("one")
    assert rig.wire.sent == [LOAD, "one"]
    rig.wire.reply("sha", "1")
    assert await one == "1"
    two = await rig.call("two")
    assert rig.wire.sent == [LOAD, "one", "two"]
    rig.wire.reply("2")
    assert await two == "2"


async def test_a_call_that_was_forgotten_goes_again_behind_the_script() -> None:
    rig = Rig()
    await rig.loaded()
    one = await rig.call("one")
    rig.wire.reply(forgot())
    assert rig.wire.sent == ["one", LOAD, "one"]
    rig.wire.reply("sha", "1")
    assert await one == "1"


async def test_a_call_that_is_forgotten_twice_has_failed() -> None:
    rig = Rig()
    await rig.loaded()
    one = await rig.call("one")
    rig.wire.reply(forgot(), "sha", forgot())
    with pytest.raises(NoScriptError):
        await one
    assert rig.wire.sent == ["one", LOAD, "one"]


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_calls_error_states_why_its_script_could_not_be_loaded(is_first: bool) -> None:
    rig = Rig()
    if not is_first:
        await rig.loaded()
    one = await rig.call("one")
    if not is_first:
        rig.wire.reply(forgot())
    rig.wire.reply(NoPermissionError("no"), forgot())
    with pytest.raises(NoPermissionError):
        await one
    assert rig.wire.sent[-2:] == [LOAD, "one"]


async def test_the_end_of_the_connection_ends_a_call_and_the_next_makes_another() -> None:
    rig = Rig()
    await rig.loaded()
    one = await rig.call("one")
    rig.wire.reply(forgot())
    rig.wire.close()
    with pytest.raises(RedisConnectionError):
        await one
    two = await rig.call("two")
    assert len(rig.wires) == 2
    assert rig.wire.sent == [LOAD, "two"]
    rig.line.drop()
    with pytest.raises(RedisConnectionError):
        await two
