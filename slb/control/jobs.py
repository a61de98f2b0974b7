"""One instance's way to the jobs of one model in Redis: how its asks are sent, many in one batch."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from slb.control import keys
from slb.control.ask_lane import Answer, Ask, AskTiming, Batch
from slb.control.connection import Connection
from slb.control.job_asks import NOT_REPLICATED, OF_AN_END, JobAsks
from slb.control.job_replies import Pulse, read_pulse
from slb.control.resp import Word
from slb.control.scripts import jobs_source
from slb.job import MOST_PAYLOAD, ModelConfig

REPLICA_WITHIN = 0.5
"""Seconds that a replica may take to have a job. What else is asked of the model's jobs waits meanwhile."""
LEASE = 10.0
"""Seconds after which the jobs of an instance that sends no batch begin elsewhere."""
_MOST_BATCHES = 2**52
"""Numbers above 2**53 are not exact in Lua."""
_FAULT = "!fault"
_TAKEN = (["new"], ["known"])


class JobLane(JobAsks):
    """`running` gives the attempts that this instance runs, id and token: after a batch whose reply was lost,
    others that Redis has under its name begin again. `on_pulse` is called with each reply. With `needs_replica` a
    job is taken once a replica of Redis has it. `dispatches`: whether this instance calls GPUs."""

    events = ("jobs_alone", "jobs_shared", "jobs_script_failed", "jobs_mended")
    owner = "the jobs'"
    mend = ("jobs_mend", "----hszz--zzzzzhhszzh")

    def __init__(
        self,
        connection: Connection,
        model: str,
        holder: str,
        running: Callable[[], Iterable[tuple[str, str]]],
        on_pulse: Callable[[Pulse], None],
        timing: AskTiming | None = None,
        lease: float = LEASE,
        needs_replica: bool = False,
        dispatches: bool = True,
    ) -> None:
        names = keys.job_keys(model)
        super().__init__(connection, jobs_source(), names, timing, model=model)
        self.model = model
        self.config = ModelConfig()
        self._holder = holder
        self._running = running
        self._on_pulse = on_pulse
        self._lease = round(lease * 1000)
        self._needs_replica = needs_replica
        self._dispatches = int(dispatches)
        self._batch = 0
        self._is_unsure = False
        self._pulse = Pulse({}, None, ())

    async def _send(self, asks: list[Ask]) -> list[Answer]:
        answers = await super()._send(asks)
        if self._needs_replica and any(name == "submit" for name, *_ in asks):
            async with asyncio.timeout(2 * REPLICA_WITHIN):
                is_replicated = await self._line.replicated(1, REPLICA_WITHIN)
            if not is_replicated:
                return [
                    [NOT_REPLICATED] if ask[0] == "submit" and answer[:1] in _TAKEN else answer
                    for ask, answer in zip(asks, answers, strict=True)
                ]
        return answers

    def _mend_args(self) -> list[Word]:
        return [self.config.weights]

    def _args(self, asks: list[Ask]) -> list[Word]:
        self._batch += 1
        self._is_unsure = self._is_unsure or self._line.is_cut  # it may be another Redis, or have older data
        if self._is_unsure:
            asks = [("hold", "\n".join(map(" ".join, self._running()))), *asks]
        config = self.config
        kept = (round(config.result_ttl * 1000), config.weights, config.finished_limit)
        head = (self._holder, self._batch, self._lease, *kept, self._dispatches, len(asks))
        return [*head, *chain.from_iterable((name, len(given), *given) for name, *given in asks)]

    def _answers(self, reply: Any) -> list[Answer]:
        if reply[0] == "late":  # the newest is this one: another program has written that number
            self._batch = max(self._batch, min(int(reply[1]), _MOST_BATCHES))
            raise ValueError("a newer batch of this holder has been run")
        _, queued, due, dropped, answers, left = reply
        self._pulse = read_pulse(queued, due, dropped, left)
        has_faults = any(
            each[:1] == [_FAULT] for each in answers
        )  # then something may have been claimed all the same
        answers, self._is_unsure = answers[1:] if self._is_unsure else answers, has_faults
        return list(answers)

    def _settle(self, batch: Batch, replies: list[Answer]) -> None:
        super()._settle(batch, replies)
        self._on_pulse(self._pulse)

    def _fault_in(self, answer: Answer) -> str | None:
        return answer[1] if answer[:1] == [_FAULT] else None

    def _weight(self, ask: Ask) -> int:
        name, *given = ask
        if name == "finish":  # what else it has is short
            return len(given[3])
        if name == "claim":  # the script answers all claims of a batch with three MiB at most
            return 0
        sent = sum(len(each) for each in given if isinstance(each, str | bytes))
        if name == "callbacks":
            return sent + int(given[1]) * OF_AN_END
        if name == "reported":
            return sent + MOST_PAYLOAD
        return sent + (min(2 * given[1], OF_AN_END) if name == "show" else 0)

    def _lost(self) -> None:
        self._is_unsure = True
