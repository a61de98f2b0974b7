"""/admin/dlq: the jobs that were given up, until they begin again or are removed."""

import asyncio
import time
from collections.abc import Callable

from aiohttp import web

from slb.api.changes import note
from slb.api.endpoints import Endpoint
from slb.api.job_bodies import JobRemoved, JobsAnswer, Revived
from slb.api.job_pages import MOST_LISTED, gone_is_empty, page_of
from slb.api.owners import may_see
from slb.api.parts import ApiParts, Jobs
from slb.api.replies import json_reply
from slb.errors import AMBIGUOUS_JOB, BAD_REQUEST, REDIS_DOWN, SCRIPT_FAILED, UNKNOWN_JOB, UNKNOWN_MODEL, Refused
from slb.job import JobShown


class DeadJobsEndpoint:
    """Decides nothing: see slb/jobs."""

    def __init__(self, parts: ApiParts, jobs: Jobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        reasons = (BAD_REQUEST, UNKNOWN_JOB, UNKNOWN_MODEL, SCRIPT_FAILED, REDIS_DOWN)
        path, one, model = "/admin/dlq", "/admin/dlq/{id}", ("model",)
        page = (*model, "cursor", "error")
        some, of_one = (*model, "error"), (*reasons, AMBIGUOUS_JOB)
        return [
            Endpoint("GET", path, self.listed, JobsAnswer, None, reasons, ("jobs",), query=page),
            Endpoint("POST", f"{path}/retry-all", self.retry_all, Revived, None, reasons, query=some),
            Endpoint("POST", f"{one}/retry", self.retry, Revived, None, of_one, query=model),
            Endpoint("DELETE", one, self.remove, JobRemoved, None, of_one, query=model),
        ]

    async def listed(self, request: web.Request) -> web.Response:
        """Jobs that were given up: the dead-letter queue.

        Of one model, or, without `model`, of all, model by model. With `error`, those of each page whose error has
        that text in it, in any case: a page may be empty, and others follow.
        """
        has_error, is_seen = _has_error(request), may_see(request, self._parts.settings)
        return await page_of(self._jobs, request, "dead", lambda job: is_seen(job) and has_error(job))

    async def retry(self, request: web.Request) -> web.Response:
        """Let a dead or failed job begin again."""
        id_ = request.match_info["id"]
        if not await self._jobs.revive(id_, request.query.get("model", "")):
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no dead or failed job")
        note(self._parts, request, "job_retried", id_, request.query.get("model", ""))
        return json_reply(Revived(retried=1))

    async def retry_all(self, request: web.Request) -> web.Response:
        """Let all dead jobs begin again, of one model, or, without `model`, of all.

        With `error`, those whose error has that text in it.
        """
        is_wanted, until = _has_error(request), time.time()
        retried = 0
        if model := request.query.get("model"):
            retried = await self._retried(model, is_wanted, until)
        else:
            for each in await self._jobs.names():
                with gone_is_empty():
                    retried += await self._retried(each, is_wanted, until)
        if retried:
            note(self._parts, request, "job_retried", f"{retried} jobs", model or "of all models")
        return json_reply(Revived(retried=retried))

    async def _retried(self, model: str, is_wanted: Callable[[JobShown], bool], until: float) -> int:
        """How many of a model's dead jobs begin again, of those that died before `until`."""
        retried, first = 0, 0
        while True:
            found, is_more = await self._jobs.listed(model, "dead", first, MOST_LISTED)
            # others have died again meanwhile
            wanted = [each for each in found if each.ended < until and is_wanted(each)]
            revived = sum(await asyncio.gather(*(self._jobs.revive(each.id, model) for each in wanted)))
            retried, first = retried + revived, first + MOST_LISTED - revived
            if not is_more:
                return retried

    async def remove(self, request: web.Request) -> web.Response:
        """Forget a dead or failed job: its id is free again."""
        id_ = request.match_info["id"]
        if not await self._jobs.remove(id_, request.query.get("model", "")):
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no dead or failed job")
        note(self._parts, request, "job_removed", id_, request.query.get("model", ""))
        return json_reply(JobRemoved(job_id=id_, removed=True))


def _has_error(request: web.Request) -> Callable[[JobShown], bool]:
    """Whether a job's error has the text that the query names."""
    text = request.query.get("error", "").casefold()
    return lambda job: text in job.error.casefold()
