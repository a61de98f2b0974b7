"""One instance's way to the jobs of one model in Redis. `lua/jobs.lua` lists the asks and their replies."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import orjson

from slb.control import keys
from slb.control.ask_lane import Answer, Ask, AskLane, AskTiming, Batch
from slb.control.connection import Connection
from slb.control.resp import Word
from slb.control.scripts import jobs_source
from slb.errors import NotReplicated
from slb.job import (
    MOST_KEPT,
    MOST_PAYLOAD,
    Buffered,
    Claimed,
    JobShown,
    Line,
    ModelConfig,
    ModelStats,
    Submission,
    Submitted,
    Waiting,
)

REPLICA_WITHIN = 0.5
"""Seconds that a replica may take to have a job. What else is asked of the model's jobs waits meanwhile."""
LEASE = 10.0
"""Seconds after which the jobs of an instance that sends no batch begin elsewhere."""
_FAULT, _NOT_REPLICATED = "!fault", "!not replicated"
_ADRIFT = "@"
"""Stands before the model, as `lua/jobs_state.lua` names the lines of jobs that nobody follows."""
_TAKEN = (["new"], ["known"])
_OF_A_JOB, _OF_AN_END = MOST_KEPT, MOST_KEPT + MOST_PAYLOAD
"""Bytes that a claim is answered with at most, and a job with its result."""


class Left(NamedTuple):
    """What a GPU runs on its own for a job that was cancelled: the job, where, the fallback model whose GPU that is
    ("" for the job's own), and the GPU's id of it."""

    id: str
    member: str
    on: str
    remote: str


class Pulse(NamedTuple):
    """What each reply has besides its answers. `queued`: how many wait for a slot, by the fallback model that they
    have gone on at, "" for their own; `adrift`: how many GPUs run on their own that nobody follows, by the same;
    `due`: seconds until something is due, None where nothing is; `dropped`: attempts of
    this holder's that were cancelled, id and token; `left`: what is to be cancelled at GPUs, which nobody else is
    told."""

    queued: Mapping[str, int]
    due: float | None
    dropped: tuple[tuple[str, str], ...]
    left: tuple[Left, ...] = ()
    adrift: Mapping[str, int] = {}


class JobLane(AskLane):
    """`running` gives the attempts that this instance runs, id and token: after a batch whose reply was lost,
    others that Redis has under its name begin again. `on_pulse` is called with each reply. With `needs_replica` a
    job is taken once a replica of Redis has it. `dispatches`: whether this instance calls GPUs."""

    events = ("jobs_alone", "jobs_shared", "jobs_script_failed")
    owner = "the jobs'"

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
        super().__init__(connection.script_line(jobs_source(), names[0]), names, timing, model=model)
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

    # -- asks

    async def submit(self, job: Submission) -> Submitted | None:
        """What has become of it; None where its id stands for another job. Raises NotReplicated too."""
        flags = (int(job.calls_back), int(job.is_buffered))
        given = (job.id, job.priority, job.digest, job.written, job.deadline, *flags)
        verdict, *rest = await self.ask("submit", *given)
        if verdict == _NOT_REPLICATED:
            raise NotReplicated(
                "the job is in Redis, and no replica of it has answered in time that it has the job"
            )
        if verdict == "mismatch":
            return None
        if verdict == "new":
            return Submitted(job.id, True, "buffered" if job.is_buffered else "queued", rest[0])
        known = await self.show(job.id, 0) if rest[0] == "queued" else None
        return Submitted(job.id, False, *((known.state, known.position) if known is not None else (rest[0], -1)))

    async def claim(self, member: str, on: str = "", sources: Iterable[str] = ("",)) -> Claimed | None:
        """The next job of those that are at one of the models `sources`, to be run at `member`, which is of the
        model `on` ("" for their own, in both); None where none waits."""
        answer = await self.ask("claim", member, on, *sources)
        if not answer:
            return None
        id_, token, attempts, failures, remote, at, waited, written = answer
        counts = (int(attempts), int(failures))
        return Claimed(self.model, id_, token, *counts, remote, at, written, on, max(0, waited) / 1000)

    async def adopt(self, on: str) -> Claimed | None:
        """The next job that a GPU of the model `on` runs on its own and nobody follows, to be followed where it
        runs; None where there is none."""
        return await self.claim("", on, (_ADRIFT + on,))

    async def note_remote(self, job: Claimed, remote: str) -> bool:
        """Keep the GPU's id of what it runs, "" where it runs nothing any more. Whether the attempt is still this
        instance's."""
        return (await self.ask("remote", job.id, job.token, remote)) == [1]

    async def report(self, id_: str, token: str, text: bytes) -> bool | None:
        """Keep a GPU's own word of how an attempt goes, for the instance that follows it. Whether it is the latest
        one and has not ended; None where there is no such job."""
        answer = await self.ask("report", id_, token, text)
        return answer == [1] if answer else None

    async def reported(self, id_: str) -> str | None:
        """What the GPU has reported of the latest attempt, if anything."""
        answer = await self.ask("reported", id_)
        return answer[0] if answer else None

    async def finish(
        self,
        job: Claimed,
        move: str,
        text: str | bytes = b"",
        seconds: float = 0.0,
        on: str = "",
        *,
        ago: float = 0.0,
    ) -> bool:
        """How an attempt ended, so many seconds `ago`, by `lua/jobs_attempts.lua`. Whether it was still this
        instance's to end."""
        given = (job.id, job.token, move, text, round(seconds * 1000), on)
        age = round(ago * 1000)
        return (await self.ask("finish", *given, *((age,) if age > 0 else ()))) == [1]

    async def cancel(self, id_: str) -> str | None:
        """The state it was in; None where there is no such job."""
        answer = await self.ask("cancel", id_)
        return answer[0] if answer else None

    async def revive(self, id_: str) -> bool:
        """Let a dead one begin again. Whether there was one."""
        return (await self.ask("revive", id_)) == [1]

    async def remove(self, id_: str) -> bool:
        """Forget a dead one. Whether there was one."""
        return (await self.ask("remove", id_)) == [1]

    async def show(self, id_: str, most: int = _OF_AN_END) -> JobShown | None:
        """One job; None where there is none. What was submitted and its result where each has at most so many
        bytes."""
        answer = await self.ask("show", id_, most)
        return read_shown(id_, self.model, answer) if answer else None

    async def line(self, id_: str) -> Line | None:
        """Where a job stands that waits for a slot; None where it does not."""
        answer = await self.ask("line", id_)
        if not answer:
            return None
        class_, position, mean, running, classes, since = answer
        return Line(
            class_,
            position,
            float(mean) / 1000 if mean else None,
            running,
            tuple(each / 1000 for each in since),
            tuple(Waiting(name, float(passed), size) for name, passed, size in classes),
        )

    async def watch(self, seconds: float) -> bool:
        """Have each move of a job published for so long, on `keys.JOBS_CHANNEL`. Whether each was before it."""
        return (await self.ask("watch", round(seconds * 1000), keys.JOBS_CHANNEL)) == [1]

    async def ids(self, kind: str, first: int, most: int) -> list[str]:
        """Jobs that are `buffered`, `queued`, `retrying`, `processing`, `ended` or `dead`, the oldest first."""
        return await self.ask("list", kind, first, most)

    async def stats(self) -> ModelStats:
        """How many are where."""
        answer = await self.ask("stats")
        buffered, queued, retrying, processing, callbacks, dead, ended, oldest, since, *counts = answer
        counted = dict(zip(counts[::2], map(int, counts[1::2]), strict=True))
        waiting = (buffered, queued, retrying, processing, callbacks, dead, ended)
        return ModelStats(*waiting, oldest, _seconds(since), counted)

    async def due_callbacks(self, hold: float, most: int) -> list[JobShown]:
        """Those that are to be sent now; no other instance takes them for `hold` seconds."""
        rows = await self.ask("callbacks", round(hold * 1000), most)
        return [read_shown(row[0], self.model, row[1:]) for row in rows]

    async def callback_sent(self, job: JobShown, error: str = "", again: float | None = None) -> bool:
        """The callback of a job, as `due_callbacks` gave it, was delivered; or failed with `error`: it is due
        `again` in so many seconds, or given up (None). Whether it was to be sent yet."""
        ms = -1 if not error else -2 if again is None else round(again * 1000)
        return (await self.ask("sent", job.id, round(job.ended * 1000), job.attempts, error, ms)) == [1]

    async def may_look(self, member: str, seconds: float) -> bool:
        """Whether this instance is to ask a GPU how many jobs it runs; no other is for so long."""
        return (await self.ask("look", member, round(seconds * 1000))) == [1]

    async def silent(self, seconds: float) -> list[str]:
        """GPUs at which instances that have sent no batch for so long run jobs."""
        return await self.ask("silent", round(seconds * 1000))

    async def idle(self, member: str, seconds: float) -> int:
        """This GPU runs nothing: what such instances run there begins again. How many."""
        (lost,) = await self.ask("idle", member, round(seconds * 1000))
        return int(lost)

    async def buffered(self, hold: float, most: int) -> list[Buffered]:
        """Those whose tasks are to be made or looked for; no other instance takes them for `hold` seconds."""
        rows = await self.ask("buffered", round(hold * 1000), most)
        return [Buffered(id_, number, int(tasks)) for id_, number, tasks in rows]

    async def note_task(self, job: Buffered, tasks: int, look: float) -> bool:
        """So many tasks were made for it; the last is to be looked for in so many seconds. Whether it waits yet."""
        return (await self.ask("tasked", job.id, tasks, round(look * 1000))) == [1]

    async def release(self, id_: str, retries: int | None = None) -> str | None:
        """Let a job wait for a slot, whose task was sent for the time after `retries`, or is not waited for. The
        state it is in then; None where there is no such job."""
        answer = await self.ask("release", id_, "" if retries is None else retries)
        return answer[0] if answer else None

    async def withhold(self, id_: str, look: float) -> bool:
        """Let a job that was never begun wait for its task again, which is to be looked for in so many seconds.
        Whether it does."""
        return (await self.ask("withhold", id_, round(look * 1000))) == [1]

    async def bury(self, holder: str) -> None:
        """That instance is dead."""
        await self.ask("bury", holder)

    # -- batches

    async def _send(self, asks: list[Ask]) -> list[Answer]:
        answers = await super()._send(asks)
        if self._needs_replica and any(name == "submit" for name, *_ in asks):
            async with asyncio.timeout(2 * REPLICA_WITHIN):
                is_replicated = await self._line.replicated(1, REPLICA_WITHIN)
            if not is_replicated:
                return [
                    [_NOT_REPLICATED] if ask[0] == "submit" and answer[:1] in _TAKEN else answer
                    for ask, answer in zip(asks, answers, strict=True)
                ]
        return answers

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
        if reply == ["late"]:  # what holds another number under this name is newer
            raise ValueError("a newer batch of this holder has been run")
        _, queued, due, dropped, answers, left = reply
        waiting = dict(zip(queued[::2], queued[1::2], strict=True))
        adrift = {on.removeprefix(_ADRIFT): waiting.pop(on) for on in [*waiting] if on.startswith(_ADRIFT)}
        in_vain = tuple(Left(*orjson.loads(each)) for each in left)
        ended = tuple(_attempt(each) for each in dropped)
        self._pulse = Pulse(waiting, due / 1000 if due >= 0 else None, ended, in_vain, adrift)
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
        if name == "claim":
            return _OF_A_JOB
        sent = sum(len(each) for each in given if isinstance(each, str | bytes))
        if name == "callbacks":
            return sent + int(given[1]) * _OF_AN_END
        if name == "reported":
            return sent + MOST_PAYLOAD
        return sent + (min(2 * given[1], _OF_AN_END) if name == "show" else 0)

    def _lost(self) -> None:
        self._is_unsure = True


class JobModels:
    """What is set on the models, in Redis for all instances. All raise RedisUnavailable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> dict[str, dict[str, Any]]:
        """What was set on each model that anything was set on. What cannot be read is left out."""
        async with self._connection.answering() as redis:
            stored = await redis.hgetall(keys.JOB_MODELS)
        return {model: fields for model, text in stored.items() if isinstance(fields := _object(text), dict)}

    async def put(self, model: str, fields: dict[str, Any]) -> None:
        async with self._connection.answering() as redis:
            await redis.hset(keys.JOB_MODELS, model, orjson.dumps(fields))

    async def delete(self, model: str) -> bool:
        async with self._connection.answering() as redis:
            return bool(await redis.hdel(keys.JOB_MODELS, model))


def _object(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _attempt(text: str) -> tuple[str, str]:
    id_, _, token = text.rpartition(" ")
    return id_, token


def _seconds(milliseconds: str) -> float:
    return int(milliseconds or 0) / 1000


def read_shown(id_: str, model: str, row: list[Any]) -> JobShown:
    """`row`: what the ask `show` replies. Raises ValueError, TypeError where it is none."""
    state, priority, attempts, failures, begun, ended, error, member, sent, sent_error, on, *more = row
    retries, submitted, position, written, result, moves = more
    return JobShown(
        id=id_,
        model=model,
        state=state,
        priority=priority,
        attempts=int(attempts),
        failures=int(failures),
        begun=_seconds(begun),
        ended=_seconds(ended),
        error=error,
        member=member,
        on=on,
        callback_attempts=int(sent or 0),
        callback_error=sent_error,
        task_retries=int(retries or -1),
        submitted=_seconds(submitted),
        position=position,
        written=written,
        result=result,
        moves=int(moves),
    )
