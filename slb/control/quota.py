"""One instance's way to the quota router in Redis: one batch in flight; what comes meanwhile joins the next.
`lua/quota.lua` lists the asks and their replies."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from redis.exceptions import RedisError, ResponseError

from slb.backoff import Backoff
from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection, is_unmade
from slb.control.resp import readable
from slb.control.retry import FIRST_PAUSE, LONGEST_PAUSE
from slb.control.script_line import ScriptLine, settle
from slb.control.scripts import quota_source
from slb.errors import RedisUnavailable, ScriptFailed
from slb.lifecycle import set_within

Ask = tuple[Any, ...]
Answer = list[Any]
"""Texts and whole numbers."""

_MOST_ASKS = 256
_FAILED = "failed"
_OURS = "the quota router's script failed in Redis"
_MOST_FAULTS = 100
_NO_SERVICE = ("MISCONF", "NOREPLICAS", "BUSY")
"""How a refusal begins that is for Redis's own state, where it has no exception of its own."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QuotaTiming:
    """Seconds. A batch may take `deadline`; one is sent every `beat` at least, so that leases lapse while no caller
    asks. A Redis that does not answer is tried again at once, then after `backoff` to `longest_backoff`."""

    beat: float = 1.0
    deadline: float = 1.0
    backoff: float = FIRST_PAUSE
    longest_backoff: float = LONGEST_PAUSE


class QuotaLane:
    """`rules`: what each batch has besides its asks. `on_reply` gets whether Redis has lost its data since the
    reply before, and how many tasks were reclaimed. `up`: whether the last batch was answered."""

    def __init__(
        self,
        connection: Connection,
        rules: dict[str, int],
        on_reply: Callable[[bool, int], None] = lambda is_lost, reclaimed: None,
        timing: QuotaTiming | None = None,
    ) -> None:
        self._line: ScriptLine = connection.script_line(quota_source())
        self._rules = rules
        self._on_reply = on_reply
        self._timing = timing or QuotaTiming()
        self._pending: list[tuple[Ask, asyncio.Future[Answer]]] = []
        self._wake = asyncio.Event()
        self._keys = keys.quota_keys()
        self._backoff = Backoff()
        self.up = True
        self.batches = 0
        self._faults: set[str] = set()
        self._since = ""

    async def ask(self, *ask: Any) -> Answer:
        """The reply to one ask. Raises RedisUnavailable, ScriptFailed: then it may have been done or not."""
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
                batch = self._board()
                try:
                    replies = await self._send([ask for ask, _ in batch])
                except (RedisError, OSError, TimeoutError) as error:
                    await self._fail(batch, error)
                else:
                    self._settle(batch, replies)
                raise_if_cancelled()
        finally:
            self._refuse(self._board(), "slb is stopping")
            self._line.drop()

    def _board(self) -> list[tuple[Ask, asyncio.Future[Answer]]]:
        """Asks whose callers have left meanwhile are not sent."""
        waiting = [each for each in self._pending if not each[1].done()]
        self._pending = waiting[_MOST_ASKS:]
        return waiting[:_MOST_ASKS]

    async def _send(self, asks: list[Ask]) -> list[Answer]:
        wanted = orjson.dumps({**self._rules, "asks": asks})
        async with asyncio.timeout(self._timing.deadline):
            reply = await self._line.call(self._keys, [wanted])
        with readable():
            _, since, reclaimed, replies = reply
            if [type(each) for each in (since, reclaimed, *replies)] != [str, int, *(list for _ in asks)]:
                raise TypeError("not one reply to each ask")
        self.batches += 1
        is_lost = self._since not in ("", since)
        self._since = since
        self._on_reply(is_lost, int(reclaimed))
        answers: list[Answer] = replies
        return answers

    def _settle(self, batch: list[tuple[Ask, asyncio.Future[Answer]]], replies: list[Answer]) -> None:
        if not self.up:
            _log.info("quota_shared")
        self.up = True
        for (_, answer), reply in zip(batch, replies, strict=True):
            if reply and reply[0] == _FAILED:
                self._note(reply[1])
                settle(answer, ScriptFailed(f"{_OURS}: {reply[1]}"))
            else:
                settle(answer, reply)

    def _note(self, fault: str) -> None:
        """Once each: it may be met a thousand times a second."""
        if fault not in self._faults and len(self._faults) < _MOST_FAULTS:
            self._faults.add(fault)
            _log.error("quota_script_failed", error=fault)

    async def _fail(self, batch: list[tuple[Ask, asyncio.Future[Answer]]], error: Exception) -> None:
        """Where Redis does not answer the line is dropped: what it still owes answers no ask any more."""
        if is_script_fault(error):
            self._note(str(error))
            for _, answer in batch:
                settle(answer, ScriptFailed(f"{_OURS}: {error}"))
            return
        if self.up:
            _log.warning("quota_alone", error=str(error) or "no answer in time")
        self.up = False
        waiting, self._pending = self._pending, []
        self._refuse([*batch, *waiting], str(error) or "no answer in time", reached=not is_unmade(error))
        self._line.drop()
        now, timing = asyncio.get_running_loop().time(), self._timing
        await asyncio.sleep(self._backoff.pause(now, timing.backoff, timing.longest_backoff))

    def _refuse(self, batch: list[tuple[Ask, asyncio.Future[Answer]]], why: str, reached: bool = True) -> None:
        for _, answer in batch:
            settle(answer, RedisUnavailable(f"Redis does not answer: {why}", reached))


def is_script_fault(error: Exception) -> bool:
    """Whether the script itself failed, in a Redis that is well: asking another way, or later, would not help."""
    is_refusal = type(error) is ResponseError  # what is wrong with Redis has mostly exceptions of its own
    return is_refusal and "script" in str(error) and not str(error).startswith(_NO_SERVICE)
