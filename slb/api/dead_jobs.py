"""/admin/dlq: the jobs that were given up, until they begin again or are removed."""

import asyncio
import time
from collections.abc import Callable

from aiohttp import web

from slb.api.endpoints import Endpoint
from slb.api.job_bodies import JobRemoved, JobsAnswer, Revived
from slb.api.jobs import MOST_LISTED, page_of
from slb.api.parts import Jobs
from slb.api.replies import json_reply
from slb.errors import BAD_REQUEST, REDIS_DOWN, SCRIPT_FAILED, UNKNOWN_JOB, UNKNOWN_MODEL, Refused
from slb.job import JobShown


class DeadJobsEndpoint:
    """Decides nothing: see slb/jobs."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        reasons = (BAD_REQUEST, UNKNOWN_JOB, UNKNOWN_MODEL, SCRIPT_FAILED, REDIS_DOWN)
        path, one, model = "/admin/dlq", "/admin/dlq/{id}", ("model",)
        some = (*model, "error")
        return [
            Endpoint("GET", path, self.listed, JobsAnswer, None, reasons, query=(*model, "cursor", "error")),
            Endpoint("POST", f"{path}/retry-all", self.retry_all, Revived, None, reasons, query=some),
            Endpoint("POST", f"{one}/retry", self.retry, Revived, None, reasons, query=model),
            Endpoint("DELETE", one, self.remove, JobRemoved, None, reasons, query=model),
        ]

    async def listed(self, request: web.Request) -> web.Response:
        """Jobs of one model that were given up: the dead-letter queue.

        With `error`, those of each page whose error has that text in it, in any case: a page may be empty, and
        others follow.
        """
        return await page_of(self._jobs, request, "dead", _has_error(request))

    async def retry(self, request: web.Request) -> web.Response:
        """Let a dead job begin again."""
        id_ = request.match_info["id"]
        if not await self._jobs.revive(id_, request.query.get("model", "")):
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no dead job")
        return json_reply(Revived(retried=1))

    async def retry_all(self, request: web.Request) -> web.Response:
        """Let all dead jobs of a model begin again; with `error`, those whose error has that text in it."""
        model, is_wanted = request.query.get("model", ""), _has_error(request)
        retried, first, until = 0, 0, time.time()
        while True:
            found, is_more = await self._jobs.listed(model, "dead", first, MOST_LISTED)
            # others have died again meanwhile
            wanted = [each for each in found if each.ended < until and is_wanted(each)]
            revived = sum(await asyncio.gather(*(self._jobs.revive(each.id, model) for each in wanted)))
            retried, first = retried + revived, first + MOST_LISTED - revived
            if not is_more:
                return json_reply(Revived(retried=retried))

    async def remove(self, request: web.Request) -> web.Response:
        """Forget a dead job."""
        id_ = request.match_info["id"]
        if not await self._jobs.remove(id_, request.query.get("model", "")):
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no dead job")
        return json_reply(JobRemoved(job_id=id_, removed=True))


def _has_error(request: web.Request) -> Callable[[JobShown], bool]:
    """Whether a job's error has the text that the query names."""
    text = request.query.get("error", "").casefold()
    return lambda job: text in job.error.casefold()
