"""One instance's way to a script in Redis that decides for all instances: one batch in flight, and what is asked
meanwhile goes with the next. The quota router's asks and those of the jobs go so."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import structlog
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from slb.backoff import Backoff
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection, is_unmade
from slb.control.resp import Word, readable
from slb.control.retry import FIRST_PAUSE, LONGEST_PAUSE
from slb.control.script_line import settle
from slb.control.scripts import source
from slb.errors import RedisUnavailable, ScriptFailed
from slb.lifecycle import set_within

Ask = tuple[Any, ...]
Answer = list[Any]
"""Texts and whole numbers."""

Batch = list[tuple[Ask, asyncio.Future[Answer]]]
"""Asks, each with where its answer goes."""

_MOST_ASKS = 256
_MOST_WEIGHT = 12 << 20
"""Bytes of the asks of one batch and of their replies, at most: one that is longer than 16 MiB is not read."""
_MOST_FAULTS = 100
_NO_SERVICE = ("MISCONF", "NOREPLICAS", "BUSY")
"""How a refusal begins that is for Redis's own state, where it has no exception of its own."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AskTiming:
    """Seconds. A batch may take `deadline`; one is sent every `beat` at least, so that what is due is done while no
    caller asks. A Redis that does not answer is tried again at once, then after `backoff`, and twice as long each
    time up to `longest_backoff`."""

    beat: float = 1.0
    deadline: float = 1.0
    backoff: float = FIRST_PAUSE
    longest_backoff: float = LONGEST_PAUSE


class AskLane:
    """A kind of lane says how its asks are written and answered. `events`: the names under which it logs that Redis
    does not answer, that it does again, that the script failed, and that its keys were put right, each with
    `fields`; `owner`: whose script it is, for a person; `mend`: the script that puts its keys right, with what
    each of them is. `up`: whether the last batch was answered."""

    events: ClassVar[tuple[str, str, str, str]]
    owner: ClassVar[str]
    mend: ClassVar[tuple[str, str]]

    def __init__(
        self, connection: Connection, script: str, keys: Sequence[str], timing: AskTiming | None, **fields: str
    ) -> None:
        self._connection = connection
        self._line = connection.script_line(script, keys[0])
        self._keys = keys
        self._timing = timing or AskTiming()
        self._fields = fields
        self._pending: Batch = []
        self._wake = asyncio.Event()
        self._backoff = Backoff()
        self._flying: Batch = []
        self._is_closed = False
        self.up = True
        self.batches = 0
        self._faults: set[str] = set()

    def _args(self, asks: list[Ask]) -> list[Word]:
        """The script's arguments for a batch."""
        raise NotImplementedError

    def _answers(self, reply: Any) -> list[Answer]:
        """The answers to its asks, in their order."""
        raise NotImplementedError

    def _weight(self, ask: Ask) -> int:
        """Bytes of an ask and of its answer, at most."""
        return 0

    def _fault_in(self, answer: Answer) -> str | None:
        """What failed at this ask alone, where a script says so in its answer."""
        return None

    def _mend_args(self) -> list[Word]:
        """What `mend` takes besides."""
        return []

    def _lost(self) -> None:
        """The batch in flight may have been run, or may be yet: its reply is not known."""

    async def ask(self, *ask: Any) -> Answer:
        """The reply to one ask. Raises RedisUnavailable, ScriptFailed: then it may have been done or not."""
        if self._is_closed:
            raise RedisUnavailable("slb is stopping", reached=False)
        if not self.up:
            raise RedisUnavailable("Redis does not answer", reached=False)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending.append((ask, answer))
        self._wake.set()
        return await answer

    async def run(self) -> None:
        """Send batches until cancelled."""
        try:
            while True:
                if self.up and not self._pending:
                    self._wake.clear()
                    await set_within(self._wake, self._timing.beat)
                batch = self._flying = self._board()
                try:
                    replies = await self._send([ask for ask, _ in batch])
                except (RedisError, OSError, TimeoutError) as error:
                    await self._fail(batch, error)
                else:
                    self._settle(batch, replies)
                    await asyncio.sleep(0)  # what its callers ask upon their answers goes with the next
                raise_if_cancelled()
        finally:
            self._is_closed = True
            self._refuse([*self._flying, *self._pending], "slb is stopping")
            self._line.drop()

    def _board(self) -> Batch:
        """Asks whose callers have left meanwhile are not sent."""
        waiting = [each for each in self._pending if not each[1].done()]
        size, weight = 0, 0
        for ask, _ in waiting[:_MOST_ASKS]:
            weight += self._weight(ask)
            if size and weight > _MOST_WEIGHT:
                break
            size += 1
        self._pending = waiting[size:]
        return waiting[:size]

    async def _send(self, asks: list[Ask]) -> list[Answer]:
        try:
            answers = await self._run(asks)
        except (ResponseError, InvalidResponse) as error:
            if isinstance(error, InvalidResponse) or is_script_fault(error):
                await self._put_right()
            raise
        if any(self._fault_in(each) is not None for each in answers):
            await self._put_right()
        self.batches += 1
        return answers

    async def _run(self, asks: list[Ask]) -> list[Answer]:
        async with asyncio.timeout(self._timing.deadline):
            reply = await self._line.call(self._keys, self._args(asks))
        with readable():
            answers = self._answers(reply)
            if [type(each) for each in answers] != [list for _ in asks]:
                raise TypeError("not one reply to each ask")
        return answers

    async def _put_right(self) -> None:
        """The script has failed, by what another program has written maybe: a damaged key would fail all that come.
        In the worst case each batch does this."""
        name, kinds = self.mend
        with suppress(RedisError, OSError, TimeoutError), readable():
            script = self._connection.client.register_script(source("mend", name))
            mended = await script(keys=self._keys, args=[kinds, *self._mend_args()])
            if mended:
                _log.warning(self.events[3], damaged=mended, **self._fields)

    def _settle(self, batch: Batch, replies: list[Answer]) -> None:
        if not self.up:
            _log.info(self.events[1], **self._fields)
        self.up = True
        for (_, answer), reply in zip(batch, replies, strict=True):
            if (fault := self._fault_in(reply)) is not None:
                self._note(fault)
                settle(answer, ScriptFailed(f"{self.owner} script failed in Redis: {fault}"))
            else:
                settle(answer, reply)

    def _note(self, fault: str) -> None:
        """Once each: it may be met a thousand times a second."""
        if fault not in self._faults and len(self._faults) < _MOST_FAULTS:
            self._faults.add(fault)
            _log.error(self.events[2], error=fault, **self._fields)

    async def _fail(self, batch: Batch, error: Exception) -> None:
        """Where Redis does not answer the line is dropped: what it still owes answers no ask any more."""
        self._lost()
        if is_script_fault(error):
            self.up = True
            self._note(str(error))
            for _, answer in batch:
                settle(answer, ScriptFailed(f"{self.owner} script failed in Redis: {error}"))
            await asyncio.sleep(self._timing.backoff)
            return
        if self.up:
            _log.warning(self.events[0], error=str(error) or "no answer in time", **self._fields)
        self.up = False
        waiting, self._pending = self._pending, []
        why = str(error) or "no answer in time"
        self._refuse(batch, why, reached=not is_unmade(error))
        self._refuse(waiting, why, reached=False)
        self._line.drop()
        now, timing = asyncio.get_running_loop().time(), self._timing
        await asyncio.sleep(self._backoff.pause(now, timing.backoff, timing.longest_backoff))

    def _refuse(self, batch: Batch, why: str, reached: bool = True) -> None:
        for _, answer in batch:
            settle(answer, RedisUnavailable(f"Redis does not answer: {why}", reached))


def is_script_fault(error: Exception) -> bool:
    """Whether the script itself failed, in a Redis that is well: asking another way, or later, would not help."""
    is_refusal = type(error) is ResponseError  # what is wrong with Redis has mostly exceptions of its own
    return is_refusal and "script" in str(error) and not str(error).startswith(_NO_SERVICE)
