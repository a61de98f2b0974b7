"""One connection to Redis that runs one script, call after call: what the hot path speaks through."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from slb.control.endpoint import again
from slb.control.resp import Word, pack, pack_words
from slb.control.wire import OnReply, Wire


class ScriptLine:
    """Made without being connected; a call connects where that is needed. One call at a time: the next is made once
    it has been answered, or the line was dropped. It has no deadline of its own, and no call is run twice: the
    caller bounds the call, and drops the line where it has not ended."""

    def __init__(self, new_wire: Callable[[], Wire], source: str) -> None:
        self._new_wire = new_wire
        self._load = pack("SCRIPT", "LOAD", source)
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._wire: Wire | None = None
        self._keys: Sequence[str] = ()
        self._head = b""
        self._not_loaded: RedisError | None = None

    @property
    def is_cut(self) -> bool:
        """Whether its connection has ended, and nothing was sent since."""
        return self._wire is not None and self._wire.lost is not None

    async def call(self, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """The script's reply. Raises RedisError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(keys, args, lambda reply: settle(answer, reply))
        return await answer

    async def replicated(self, replicas: int, seconds: float) -> bool:
        """Whether so many replicas of Redis have, within that time, all that was written by calls that have ended.
        Raises RedisError: another connection would know nothing of these calls."""
        if self._wire is None or self._wire.lost is not None:
            raise RedisConnectionError("the connection has ended meanwhile")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wire.send(pack("WAIT", replicas, round(seconds * 1000)), lambda reply: settle(answer, reply))
        return int(await answer) >= replicas

    def send(self, keys: Sequence[str], args: Sequence[Word], on_reply: OnReply) -> None:
        """Call the script: `on_reply` gets its reply, or a RedisError. The first call on a connection loads it."""
        wire, is_new = self._wire, self._wire is None or self._wire.lost is not None
        if wire is None or is_new:
            wire = self._wire = self._new_wire()
        self._send(wire, self._command(keys, args), on_reply, loads=is_new)

    def _send(self, wire: Wire, command: bytes, on_reply: OnReply, loads: bool) -> None:
        """Where Redis has dropped the script since it was loaded, nothing was run: load it, and call once more."""

        def replied(reply: Any) -> None:
            is_unknown = isinstance(reply, NoScriptError)
            if is_unknown and not loads:
                self._send(wire, command, on_reply, loads=True)
            else:
                on_reply(again(self._not_loaded) if is_unknown and self._not_loaded else reply)

        if loads:
            wire.send(self._load, self._loaded)
        wire.send(command, replied)

    def _loaded(self, reply: Any) -> None:
        self._not_loaded = reply if isinstance(reply, RedisError) else None

    def _command(self, keys: Sequence[str], args: Sequence[Word]) -> bytes:
        """The keys are the same in each call, and packed once."""
        if keys is not self._keys:
            self._keys, self._head = keys, pack_words("EVALSHA", self._sha, len(keys), *keys)
        return b"*%d\r\n%b%b" % (3 + len(keys) + len(args), self._head, pack_words(*args))

    def drop(self) -> None:
        """Close the connection: a call under way fails, and its reply is never read."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def settle(answer: asyncio.Future[Any], reply: Any) -> None:
    """Give a reply, or an error, to its caller. One that was cancelled needs none."""
    if answer.done():
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
