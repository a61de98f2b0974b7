"""One connection to Redis that runs one script, call after call: what the hot path speaks through."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from slb.control.endpoint import again
from slb.control.resp import Word, pack, pack_words
from slb.control.wire import OnReply, Wire


@dataclass(slots=True, eq=False)
class _Call:
    """`answer`: the future that a task awaits, if any. `forgotten`: the error where Redis lacked the script."""

    command: bytes
    on_reply: OnReply
    answer: asyncio.Future[Any] | None
    forgotten: NoScriptError | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether its caller is cancelled: it is not to be sent again."""
        return self.answer is not None and self.answer.done()


class ScriptLine:
    """Made without being connected; a call connects where that is needed. Calls may be made while others are under
    way: they run in the order they were made, and the end of the connection ends all of them. It has no deadline of
    its own, and no call is run twice: the caller bounds the call, and drops the line where it has not ended.
    `on_forgotten` is called when Redis has answered a call with NOSCRIPT."""

    def __init__(self, new_wire: Callable[[], Wire], source: str) -> None:
        self._new_wire = new_wire
        self._load = pack("SCRIPT", "LOAD", source)
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._wire: Wire | None = None
        self._under_way = 0
        self._keys: Sequence[str] = ()
        self._head = b""
        self._forgotten: list[_Call] = []
        self._held: list[_Call] = []
        self._not_loaded: RedisError | None = None
        self.on_forgotten: Callable[[], None] = lambda: None

    @property
    def is_cut(self) -> bool:
        """Whether its connection has ended, and nothing was sent since."""
        return self._wire is not None and self._wire.lost is not None

    async def call(self, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """The script's reply. Raises RedisError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(keys, args, lambda reply: settle(answer, reply), answer)
        return await answer

    async def replicated(self, replicas: int, seconds: float) -> bool:
        """Whether so many replicas of Redis have, within that time, all that was written by calls that have ended.
        Raises RedisError: another connection would know nothing of these calls."""
        if self._wire is None or self._wire.lost is not None:
            raise RedisConnectionError("the connection has ended meanwhile")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wire.send(pack("WAIT", replicas, round(seconds * 1000)), lambda reply: settle(answer, reply))
        return int(await answer) >= replicas

    def send(
        self,
        keys: Sequence[str],
        args: Sequence[Word],
        on_reply: OnReply,
        answer: asyncio.Future[Any] | None = None,
    ) -> None:
        """Call the script: `on_reply` gets its reply, or a RedisError; the first call on a connection loads the
        script. Where Redis drops it later, it is loaded again, and calls that did not run are sent again, but for
        those whose `answer` is there already."""
        call = _Call(self._command(keys, args), on_reply, answer)
        wire = self._wire
        if wire is None or wire.lost is not None:
            wire = self._wire = self._new_wire()
            wire.send(self._load, self._loaded)
        if self._forgotten or self._held:
            self._held.append(call)
        else:
            self._send(wire, call)

    def _command(self, keys: Sequence[str], args: Sequence[Word]) -> bytes:
        """The keys are the same in each call, and packed once."""
        if keys is not self._keys:
            self._keys, self._head = keys, pack_words("EVALSHA", self._sha, len(keys), *keys)
        return b"*%d\r\n%b%b" % (3 + len(keys) + len(args), self._head, pack_words(*args))

    def drop(self) -> None:
        """Close the connection: calls under way fail, and their replies are never read."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _send(self, wire: Wire, call: _Call) -> None:
        self._under_way += 1
        wire.send(call.command, lambda reply: self._replied(wire, call, reply))

    def _loaded(self, reply: Any) -> None:
        self._not_loaded = reply if isinstance(reply, RedisError) else None

    def _replied(self, wire: Wire, call: _Call, reply: Any) -> None:
        self._under_way -= 1
        if isinstance(reply, NoScriptError) and self._not_loaded is not None:
            reply = again(self._not_loaded)
        if isinstance(reply, NoScriptError) and call.forgotten is None:
            call.forgotten = reply
            self._forgotten.append(call)
            self.on_forgotten()
        else:
            self._overtaken()
            call.on_reply(reply)
        if not self._under_way and (self._forgotten or self._held):
            self._send_again(wire)

    def _overtaken(self) -> None:
        """A later call has run, since another instance loaded the script: earlier ones must not run after it."""
        for earlier in self._forgotten:
            earlier.on_reply(earlier.forgotten)
        self._forgotten.clear()

    def _send_again(self, wire: Wire) -> None:
        """All that were under way came back: they go together, in their order, and behind the script."""
        waiting = [*self._forgotten, *self._held]
        self._forgotten.clear()
        self._held.clear()
        wire.send(self._load, self._loaded)
        for call in waiting:
            if not call.is_cancelled:
                self._send(wire, call)


def settle(answer: asyncio.Future[Any], reply: Any) -> None:
    """Give a reply, or an error, to its caller. One that was cancelled needs none."""
    if answer.done():
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
