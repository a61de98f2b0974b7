"""One holder's batches, as they go to Redis."""

import asyncio
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import Any

import orjson
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.batch import Batch, ticket_name
from slb.control.granted import MOST_GRANTS
from slb.control.lane_timing import LaneTiming
from slb.control.resp import Word, readable
from slb.control.script_line import ScriptLine
from slb.control.wire import OnReply


class BatchLine:
    """Runs `lua/ledger.lua`. `new_holder` makes the names leases are held under; `start`: where the search among
    equals begins. `sent`: when the last batch was sent, in seconds of the event loop's clock."""

    def __init__(self, pool: str, line: ScriptLine, new_holder: Callable[[], str], start: int) -> None:
        self.holder = new_holder()
        self.sent = 0.0
        self._pool = pool
        self._line = line
        self._new_holder = new_holder
        self._start = start
        self._keys = keys.pool_keys(pool)
        self._loop = asyncio.get_running_loop()

    @property
    def is_cut(self) -> bool:
        """Whether its connection has ended, and no batch was sent since."""
        return self._line.is_cut

    def rename(self) -> None:
        self.holder = self._new_holder()

    def send(self, batch: Batch, timing: LaneTiming, on_reply: OnReply) -> None:
        """`on_reply` gets what `read` reads, in the event loop's turn that it comes in."""
        self._line.send(self._keys, self._args(batch, timing), on_reply)

    def read(self, batch: Batch, reply: Any) -> dict[str, Any]:
        """What Redis replied to it. Raises RedisError."""
        if isinstance(reply, RedisError):
            raise reply
        self._start = (self._start + len(batch.asks)) % (1 << 30)
        return _read(reply, len(batch.asks))

    async def run(self, batch: Batch, timing: LaneTiming) -> dict[str, Any]:
        return self.read(batch, await self._line.call(self._keys, self._args(batch, timing)))

    def _args(self, batch: Batch, timing: LaneTiming) -> tuple[Word, ...]:
        data = batch.encode(
            self.holder,
            self._start,
            lease=int(timing.lease * 1000),
            life=int(timing.life * 1000),
            patience=int(timing.patience * 1000),
        )
        self.sent = self._loop.time()
        if not batch.only_took or len(batch.took) > MOST_GRANTS:
            return data, keys.GRANTED_CHANNEL, self._pool
        took = chain.from_iterable((ticket_name(self.holder, key), member) for key, member in batch.took.items())
        return data, keys.GRANTED_CHANNEL, self._pool, self.holder, batch.seq, *took

    def drop(self) -> None:
        self._line.drop()


_numbers = itemgetter("late", "holders", "pushed", "queued", "jobs", "number", "last", "now")
_LARGEST = 1e16
"""The script makes 2**53 of a score that cannot be; in JSON of 14 digits that is a little more."""


def _read(text: str, asks: int) -> dict[str, Any]:
    """Raises InvalidResponse."""
    with readable():
        reply: dict[str, Any] = _decoded(text)
        if not isinstance(reply.setdefault("epoch", ""), str):
            raise TypeError("an epoch that is no text")
        if "granted" in reply:
            _check(reply, asks)
        "".join(reply.get("unknown", ()))
    return reply


def _decoded(text: str) -> Any:
    """Bytes that are no text, which only another program can have written into a key, become question marks."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.loads(text.encode(errors="replace"))


def _check(reply: dict[str, Any], asks: int) -> None:
    """All of a reply is checked before any of it is used. Raises TypeError, LookupError, ValueError."""
    answers, seen = reply["answers"], reply.get("seen") or {}
    numbers, texts = [*_numbers(reply), *seen.values()], []
    for answer in answers:
        if type(answer) is list:
            number, position = answer
            numbers += number, position
        else:
            texts.append(answer)
    for ticket, member in reply["granted"]:
        texts += ticket, member
    if max(map(abs, numbers)) > _LARGEST:
        raise ValueError("a number that is too large")
    "".join(texts)  # raises TypeError where one is no text
    if len(answers) != asks or "differs" not in reply:
        raise ValueError(f"{len(answers)} answers to {asks} asks")
