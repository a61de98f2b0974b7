"""/queue/...: jobs are submitted, asked for and cancelled."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from aiohttp import web

from slb.api.bodies import body_of, read_exact_json
from slb.api.body_room import HELD
from slb.api.callers import is_there
from slb.api.endpoints import Endpoint, is_true
from slb.api.job_bodies import (
    LONGEST_WAIT,
    MOST_OF_MANY,
    MOST_OF_ONE,
    MOST_SUBMITTED,
    JobAnswer,
    JobCancelled,
    JobsAnswer,
    ManySubmitted,
    ModelStatsShown,
    RefusedShown,
    StatsShown,
    SubmitBody,
    SubmittedShown,
)
from slb.api.job_pages import page_of, shown
from slb.api.owners import check_seen, is_restricted, may_see, owner_in
from slb.api.parts import ApiParts, Jobs
from slb.api.replies import json_reply
from slb.errors import (
    AMBIGUOUS_JOB,
    BAD_REQUEST,
    BODY_TOO_LARGE,
    IDEMPOTENCY_REUSED,
    JOB_ENDED,
    NOT_READY,
    NOT_REPLICATED,
    PAYLOAD_TOO_LARGE,
    REDIS_DOWN,
    REQUEST_TIMEOUT,
    SCRIPT_FAILED,
    TOO_MANY_MODELS,
    UNKNOWN_JOB,
    UNKNOWN_MODEL,
    InvalidName,
    RedisUnavailable,
    Refused,
    ScriptFailed,
)
from slb.job import ENDED, JobRequest, JobShown, ModelConfig, ModelStats, Submitted, read_submitted
from slb.names import seconds

_KINDS = {
    "buffered": "buffered",
    "queued": "queued",
    "retrying": "retrying",
    "processing": "processing",
    "ended": "ended",
    "completed": "ended",
    "failed": "ended",
    "cancelled": "ended",
    "dead_lettered": "dead",
}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:@+-]{0,127}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*+)"')
"""An idempotency key as the IETF's draft has it, a string of RFC 9651. Most clients send it bare."""
_ESCAPED = re.compile(r"\\(.)")
_BARE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
"""Seconds, without a unit."""
_RESPOND_ASYNC = "respond-async"
_call = partial(Endpoint, rights=("jobs",))


class JobsEndpoint:
    """Decides nothing: see slb/jobs."""

    def __init__(self, parts: ApiParts, jobs: Jobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        away = (SCRIPT_FAILED, REDIS_DOWN)
        body = (BAD_REQUEST, REQUEST_TIMEOUT, BODY_TOO_LARGE, *away)
        job = (BAD_REQUEST, UNKNOWN_JOB, UNKNOWN_MODEL, *away)
        submit = (*body, NOT_REPLICATED, UNKNOWN_MODEL, TOO_MANY_MODELS, PAYLOAD_TOO_LARGE, IDEMPOTENCY_REUSED)
        named, model = "/queue/jobs/{id}", ("model",)
        shown_by = (*model, "wait", "payload")
        return [
            _call("POST", "/queue/submit", self.submit, SubmittedShown, SubmitBody, submit, status=202),
            _call(
                "POST", "/queue/submit-many", self.submit_many, ManySubmitted, list[SubmitBody], body, status=202
            ),
            _call("POST", "/queue/run", self.run, JobAnswer, SubmitBody, submit, query=("wait",)),
            _call("GET", "/queue/jobs", self.listed, JobsAnswer, None, job, query=(*model, "cursor", "status")),
            _call("GET", named, self.show, JobAnswer, None, (*job, AMBIGUOUS_JOB), query=shown_by),
            _call("DELETE", named, self.cancel, JobCancelled, None, (*job, AMBIGUOUS_JOB, JOB_ENDED), query=model),
            Endpoint("GET", "/queue/stats", self.stats, StatsShown, None, (NOT_READY, *away), ("jobs", "read")),
        ]

    # -- submitting

    async def submit(self, request: web.Request) -> web.Response:
        """Submit a job, 202 once it is in Redis.

        The same `job_id` (or `Idempotency-Key`) again is the same job, and never a second one; with another job it
        is refused. An id is of one model.
        """
        asked = await self._asked(request)
        submitted = await self._taken(request, asked)
        return json_reply(_submitted(submitted), 202)

    async def _taken(self, request: web.Request, asked: JobRequest) -> Submitted:
        """Raises Refused too where it is known, and another's."""
        submitted = await self._jobs.submit(asked)
        if not submitted.is_new and is_restricted(request, self._parts.settings):
            job = await self._jobs.show(submitted.id, asked.model)
            if not may_see(request, self._parts.settings)(job):
                raise Refused(IDEMPOTENCY_REUSED, f"job_id: {submitted.id!r} stands for another job")
        return submitted

    async def submit_many(self, request: web.Request) -> web.Response:
        """Submit up to 1,000 jobs at once, each with a verdict of its own.

        Where Redis is away for all of them, the answer is 503 `redis_down`. The body has at most 16 MiB.
        """
        data = await self._read(request, MOST_OF_MANY)
        if not isinstance(data, list) or len(data) > MOST_SUBMITTED:
            raise Refused(BAD_REQUEST, f"body: has to be a list of at most {MOST_SUBMITTED} jobs")
        verdicts = await asyncio.gather(*(self._verdict(request, each) for each in data))
        if verdicts and all(each.get("error") == REDIS_DOWN.name for each in verdicts):
            details = dict.fromkeys(str(each.get("detail")) for each in verdicts)  # those of unsure ones have ids
            raise Refused(REDIS_DOWN, "; ".join(details))
        return json_reply(ManySubmitted(jobs=verdicts), 202)

    async def _verdict(self, request: web.Request, data: object) -> SubmittedShown | RefusedShown:
        try:
            return _submitted(await self._taken(request, _request_of(body_of(SubmitBody, data), owner_in(request))))
        except Refused as error:
            return RefusedShown(error=error.reason.name, detail=error.detail)
        except RedisUnavailable as error:
            return RefusedShown(error=REDIS_DOWN.name, detail=str(error))
        except ScriptFailed as error:
            return RefusedShown(error=SCRIPT_FAILED.name, detail=str(error))

    async def run(self, request: web.Request) -> web.Response:
        """Submit a job and wait for its end.

        `wait` is at most 60s, which is also what holds without it, and a longer one is refused; a job that has not
        ended by then goes on, and is answered as it stands with 202. `Prefer: respond-async` makes this a submit.
        """
        wait = _wait(request.query.get("wait"), LONGEST_WAIT)
        asked = await self._asked(request)
        submitted, model = await self._taken(request, asked), asked.model
        del asked  # the payload is in Redis, and not kept here for as long as the job runs
        request[HELD].give_back()
        if _RESPOND_ASYNC in request.headers.get("Prefer", ""):
            return json_reply(_submitted(submitted), 202)
        found = await self._jobs.wait(submitted.id, model, wait, is_there(request))
        return json_reply(shown(found), 200 if found.state in ENDED else 202)

    async def _asked(self, request: web.Request) -> JobRequest:
        data = await self._read(request, MOST_OF_ONE)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return _request_of(body_of(SubmitBody, data), owner_in(request))
        id_, body = _id_of(key), body_of(SubmitBody, data)
        if body.job_id not in (None, id_):
            raise Refused(BAD_REQUEST, "job_id: is another one than Idempotency-Key")
        return _request_of(body.model_copy(update={"job_id": id_}), owner_in(request))

    async def _read(self, request: web.Request, most: int) -> Any:
        return await read_exact_json(request, self._parts.settings.head_timeout, most)

    # -- asking

    async def show(self, request: web.Request) -> web.Response:
        """One job, with its result once it has one.

        `wait` (such as 30s, or 30; over 60s it is refused) keeps the answer back until the job has ended. Without
        `model` all models are looked through; where several have a job of this id, the answer is 409 and names
        them. `eta`, while it waits, is in how many seconds it will have ended, as if no other job came; null where
        that cannot be known. With `payload=true` what was submitted is shown too.
        """
        wait, has_payload = _wait(request.query.get("wait"), 0.0), is_true(request, "payload")
        id_, model = request.match_info["id"], request.query.get("model", "")
        await self._check_seen(request, id_, model)
        found = await self._jobs.wait(id_, model, wait, is_there(request))
        answer = await with_eta(self._jobs, found)
        if has_payload:
            answer["payload"] = read_submitted(found.written).get("payload")
        return json_reply(answer)

    async def _check_seen(self, request: web.Request, id_: str, model: str) -> None:
        """Raises Refused where the job is another's, which is not to be waited for, nor cancelled."""
        if is_restricted(request, self._parts.settings):
            check_seen(request, self._parts.settings, await self._jobs.show(id_, model))

    async def listed(self, request: web.Request) -> web.Response:
        """Jobs by state, of one model the oldest first, or, without `model`, of all, model by model.

        `status` is buffered, queued, retrying, processing, dead_lettered, completed, failed or cancelled; ended is
        the last three together. A page of one of these three may be empty, and others follow.
        """
        status = request.query.get("status", "queued")
        if status not in _KINDS:
            raise Refused(BAD_REQUEST, f"status: has to be one of {', '.join(_KINDS)}")
        one = _KINDS[status] == "ended" != status
        is_seen = may_see(request, self._parts.settings)

        def is_wanted(job: JobShown) -> bool:
            return is_seen(job) and (not one or job.state == status)

        return await page_of(self._jobs, request, _KINDS[status], is_wanted)

    async def stats(self, _: web.Request) -> web.Response:
        """How many jobs of each model are where."""
        return json_reply(StatsShown(models=stats_shown(await self._jobs.stats(), self._jobs.models)))

    # -- changing

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a job; the call of one that runs is dropped."""
        id_ = request.match_info["id"]
        model = request.query.get("model", "")
        await self._check_seen(request, id_, model)
        was = await self._jobs.cancel(id_, model)
        return json_reply({"job_id": id_, "status": "cancelled", "was": was})


def stats_shown(stats: Mapping[str, ModelStats], configs: Mapping[str, ModelConfig]) -> dict[str, ModelStatsShown]:
    """By model; `configs`: what holds for those that are known."""
    return {
        model: ModelStatsShown(
            buffered=each.buffered,
            queued=each.queued,
            retrying=each.retrying,
            processing=each.processing,
            callbacks=each.callbacks,
            dead_lettered=each.dead,
            ended=each.ended,
            oldest=each.oldest or None,
            oldest_since=each.since or None,
            paused=model in configs and configs[model].paused,
            counts=each.counts,
        )
        for model, each in stats.items()
    }


async def with_eta(jobs: Jobs, job: JobShown) -> JobAnswer:
    """The same, with when it will have ended."""
    answer = shown(job)
    if job.state in ("queued", "retrying"):
        seconds_left = await jobs.eta(job)
        answer["eta"] = None if seconds_left is None else round(seconds_left, 1)
    return answer


def _id_of(key: str) -> str:
    """The job's id that an idempotency key stands for. Raises Refused where it is empty."""
    quoted = _QUOTED.fullmatch(key)
    text = _ESCAPED.sub(r"\1", quoted[1]) if quoted else key
    if not text:
        raise Refused(BAD_REQUEST, "Idempotency-Key: is empty")
    if _ID.fullmatch(text):
        return text
    return f"key:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _submitted(job: Submitted) -> SubmittedShown:
    return SubmittedShown(job_id=job.id, status=job.state, position=job.position, is_new=job.is_new)


def _request_of(body: SubmitBody, owner: str) -> JobRequest:
    return JobRequest(
        model=body.model,
        payload=body.payload,
        id=body.job_id or "",
        priority=body.priority,
        callback_url=body.callback_url or "",
        metadata=body.metadata,
        deadline=body.deadline or 0.0,
        max_retries=body.max_retries,
        owner=owner,
    )


def _wait(text: str | None, otherwise: float) -> float:
    try:
        wait = otherwise if text is None else float(text) if _BARE.fullmatch(text) else seconds(text)
    except InvalidName as error:
        raise Refused(BAD_REQUEST, f"wait: {error}") from None
    if wait > LONGEST_WAIT:  # cut, its caller would take a job that runs for one that is late
        raise Refused(BAD_REQUEST, f"wait: is over {LONGEST_WAIT:g}s, the longest: ask again after that")
    return wait
