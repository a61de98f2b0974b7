"""A job as it is shown, and pages of them, of one model or of all."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

from slb.api.job_bodies import JobAnswer, JobsAnswer
from slb.api.parts import Jobs
from slb.api.replies import json_reply
from slb.errors import BAD_REQUEST, UNKNOWN_MODEL, Refused
from slb.job import JobShown, read_submitted

MOST_LISTED = 200
"""Jobs on one page."""
_HAVE_PROGRESS = ("processing", "failed", "cancelled", "dead_lettered")
"""States in which what stands as progress is of the latest attempt, and all there is."""
_OF_ONE = re.compile(r"[0-9]{1,9}")
_OF_ALL = re.compile(r"([0-9]{1,9}):(.{1,128})")
"""The cursor of a page of all models: the place in one model's queue, and that model."""


async def page_of(
    jobs: Jobs, request: web.Request, kind: str, is_wanted: Callable[[JobShown], bool] = lambda job: True
) -> web.Response:
    """The page that `request` asks for, of a model's jobs or, where it names none, of all models', of those that
    `is_wanted`; `kind` as in `JobLane.ids`. Raises Refused."""
    if model := request.query.get("model"):
        found, more = await _of_one(jobs, request, model, kind)
    else:
        found, more = await _of_all(jobs, kind, *_place_of(request))
    return json_reply(JobsAnswer(jobs=[shown(each) for each in found if is_wanted(each)], cursor=more))


async def _of_one(jobs: Jobs, request: web.Request, model: str, kind: str) -> tuple[Sequence[JobShown], str | None]:
    cursor = request.query.get("cursor", "0")
    if not _OF_ONE.fullmatch(cursor):
        raise Refused(BAD_REQUEST, "cursor: is none that slb gave")
    first = int(cursor)
    found, is_more = await jobs.listed(model, kind, first, MOST_LISTED)
    return found, str(first + MOST_LISTED) if is_more else None


async def _of_all(jobs: Jobs, kind: str, model: str, first: int) -> tuple[list[JobShown], str | None]:
    """A page from that place on, and the cursor of the next one. A model that has gone is left out."""
    found: list[JobShown] = []
    for each in await jobs.names():
        if each < model:
            continue
        start, room = first if each == model else 0, MOST_LISTED - len(found)
        its: Sequence[JobShown] = ()
        is_more = False
        with gone_is_empty():
            its, is_more = await jobs.listed(each, kind, start, room)
        found += its
        if is_more:
            return found, f"{start + room}:{each}"
    return found, None


def _place_of(request: web.Request) -> tuple[str, int]:
    """The model and the place in its queue at which a page of all models begins. Raises Refused."""
    cursor = request.query.get("cursor")
    if cursor is None:
        return "", 0
    match = _OF_ALL.fullmatch(cursor)
    if match is None:
        raise Refused(BAD_REQUEST, "cursor: is none that slb gave for all models")
    return match[2], int(match[1])


def _progress_of(written: str) -> Mapping[str, Any]:
    """Another program may have written it."""
    try:
        found = orjson.loads(written)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def gone_is_empty() -> Iterator[None]:
    """A model that has gone since it was named had no jobs."""
    try:
        yield
    except Refused as error:
        if error.reason is not UNKNOWN_MODEL:
            raise


def shown(job: JobShown) -> JobAnswer:
    """What stands in every answer about a job, and in its callback."""
    written = read_submitted(job.written)
    answer: JobAnswer = {
        "job_id": job.id,
        "model": job.model,
        "status": job.state,
        "priority": job.priority,
        "attempts": job.attempts,
        "failures": job.failures,
        "submitted_at": job.submitted,
    }
    if job.position >= 0:
        answer["position"] = job.position
    if job.begun:
        answer["started_at"] = job.begun
        answer["upstream"] = job.member
    if job.on:
        answer["ran_on"] = job.on
    if job.ended:
        answer["completed_at"] = job.ended
    if job.progress and job.state in _HAVE_PROGRESS:
        told = _progress_of(job.progress)
        if "progress" in told:
            answer["progress"] = told["progress"]
        if "output" in told:
            answer["output"] = told["output"]
    if job.error:
        answer["error"] = job.error
    if job.busy:
        answer["busy_answers"] = job.busy
    if job.result:
        answer["result"] = orjson.Fragment(job.result)
    if "metadata" in written:
        answer["metadata"] = written["metadata"]
    if job.task_retries >= 0:
        answer["task_retries"] = job.task_retries
    if job.callback_attempts:
        answer["callback_attempts"] = job.callback_attempts
        if job.callback_error:
            answer["callback_error"] = job.callback_error
    return answer
