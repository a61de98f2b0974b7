"""What is asked of the jobs of one model in Redis. `lua/jobs.lua` lists the asks and their replies."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from redis.exceptions import InvalidResponse

from slb.control import keys
from slb.control.ask_lane import AskLane
from slb.control.job_replies import ADRIFT, read_buffered, read_claimed, read_line, read_shown, read_stats
from slb.control.resp import readable
from slb.errors import NotReplicated, ScriptFailed
from slb.job import (
    MOST_KEPT,
    MOST_PAYLOAD,
    Buffered,
    Claimed,
    JobShown,
    Line,
    ModelStats,
    Submission,
    Submitted,
)

NOT_REPLICATED = "!not replicated"
"""The answer to a submit whose job no replica of Redis has."""
LATER = "later"
"""The answer to a claim that is to be asked again."""
OF_AN_END = MOST_KEPT + MOST_PAYLOAD
"""Bytes that a job with its result is answered with at most."""

_T = TypeVar("_T")


class JobAsks(AskLane):
    """All raise RedisUnavailable, ScriptFailed. `model`: whose jobs these are."""

    model: str

    def _read(self, read: Callable[..., _T], *given: Any) -> _T:
        """What a reply says. Another program may have written into what it was made of."""
        try:
            with readable():
                return read(*given)
        except InvalidResponse as error:
            raise ScriptFailed(f"what Redis has of the jobs of {self.model} is damaged: {error}") from error

    def _read_rows(self, read: Callable[[list[Any]], _T], rows: list[list[Any]]) -> list[_T]:
        """The same of each; one that is damaged is noted, and keeps no other from being read."""
        found = []
        for row in rows:
            try:
                found.append(self._read(read, row))
            except ScriptFailed as error:
                self._note(str(error))
        return found

    async def submit(self, job: Submission) -> Submitted | None:
        """What has become of it; None where its id stands for another job. Raises NotReplicated too."""
        flags = (int(job.calls_back), int(job.is_buffered))
        given = (job.id, job.priority, job.digest, job.written, job.deadline, *flags)
        verdict, *rest = await self.ask("submit", *given)
        if verdict == NOT_REPLICATED:
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
        sources = tuple(sources)
        while (answer := await self.ask("claim", member, on, *sources)) == [LATER]:
            pass
        return self._read(read_claimed, self.model, on, answer) if answer else None

    async def adopt(self, on: str) -> Claimed | None:
        """The next job that a GPU of the model `on` runs on its own and nobody follows, to be followed where it
        runs; None where there is none."""
        return await self.claim("", on, (ADRIFT + on,))

    async def note_remote(self, job: Claimed, remote: str) -> bool:
        """Keep the GPU's id of what it runs, "" where it runs nothing any more. Whether the attempt is still this
        instance's."""
        return (await self.ask("remote", job.id, job.token, remote)) == [1]

    async def note_progress(self, job: Claimed, progress: bytes) -> None:
        """Keep how far an attempt has come, where it is still this instance's."""
        await self.ask("progress", job.id, job.token, progress)

    async def report(self, id_: str, token: str, end: bytes, progress: bytes) -> bool | None:
        """Keep a GPU's own word of how an attempt ended, for the instance that follows it, or how far it has come;
        neither where it is empty. Whether it is the latest one and has not ended; None where there is no such
        job."""
        answer = await self.ask("report", id_, token, end, progress)
        return answer == [1] if answer else None

    async def reported(self, id_: str) -> str | None:
        """How the latest attempt ended, where its GPU has reported that."""
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
        """Let a dead or failed one begin again. Whether there was one."""
        return (await self.ask("revive", id_)) == [1]

    async def remove(self, id_: str) -> bool:
        """Forget a dead or failed one. Whether there was one."""
        return (await self.ask("remove", id_)) == [1]

    async def show(self, id_: str, most: int = OF_AN_END) -> JobShown | None:
        """One job; None where there is none. What was submitted and its result where each has at most so many
        bytes."""
        answer = await self.ask("show", id_, most)
        return self._read(read_shown, id_, self.model, answer) if answer else None

    async def line(self, id_: str) -> Line | None:
        """Where a job stands that waits for a slot; None where it does not."""
        answer = await self.ask("line", id_)
        return self._read(read_line, answer) if answer else None

    async def watch(self, seconds: float) -> bool:
        """Have each move of a job published for so long, on `keys.JOBS_CHANNEL`. Whether each was before it."""
        return (await self.ask("watch", round(seconds * 1000), keys.JOBS_CHANNEL)) == [1]

    async def ids(self, kind: str, first: int, most: int) -> list[str]:
        """Jobs that are `buffered`, `queued`, `retrying`, `processing`, `ended` or `dead`, the oldest first."""
        return await self.ask("list", kind, first, most)

    async def stats(self) -> ModelStats:
        """How many are where."""
        return self._read(read_stats, await self.ask("stats"))

    async def due_callbacks(self, hold: float, most: int) -> list[JobShown]:
        """Those that are to be sent now; no other instance takes them for `hold` seconds."""
        rows = await self.ask("callbacks", round(hold * 1000), most)
        return self._read_rows(lambda row: read_shown(row[0], self.model, row[1:]), rows)

    async def callback_sent(self, job: JobShown, error: str = "", again: float | None = None) -> bool:
        """The callback of a job, as `due_callbacks` gave it, was delivered; or failed with `error`: it is due
        `again` in so many seconds, or given up (None). Whether it was to be sent yet."""
        ms = -1 if not error else -2 if again is None else round(again * 1000)
        return (await self.ask("sent", job.id, round(job.ended * 1000), job.attempts, error, ms)) == [1]

    async def put_off_callback(self, id_: str, seconds: float) -> None:
        """It is due again in so many seconds, and was not tried."""
        await self.ask("put_off", id_, round(seconds * 1000))

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
        return self._read_rows(read_buffered, rows)

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
