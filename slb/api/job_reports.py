"""/tasks/callback: what GPUs report of the jobs that they run on their own."""

import re

import orjson
from aiohttp import web

from slb.api.bodies import read_json
from slb.api.callers import HOLDER
from slb.api.covered import check_covered
from slb.api.endpoints import Endpoint
from slb.api.job_bodies import ReportShown
from slb.api.owners import check_seen, is_restricted
from slb.api.parts import ApiParts, Jobs
from slb.api.replies import json_reply
from slb.errors import (
    AMBIGUOUS_JOB,
    BAD_REQUEST,
    BODY_TOO_LARGE,
    REDIS_DOWN,
    REQUEST_TIMEOUT,
    SCRIPT_FAILED,
    STALE_ATTEMPT,
    UNKNOWN_JOB,
    UNKNOWN_MODEL,
    Refused,
)
from slb.job import route_of

_TOKEN = "X-Job-Attempt"
_ATTEMPT = re.compile(r"[0-9.]{1,40}")


class JobReportsEndpoint:
    """Of the job dispatcher."""

    def __init__(self, parts: ApiParts, jobs: Jobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        body = (BAD_REQUEST, REQUEST_TIMEOUT, BODY_TOO_LARGE)
        reasons = (*body, UNKNOWN_JOB, UNKNOWN_MODEL, AMBIGUOUS_JOB, STALE_ATTEMPT, SCRIPT_FAILED, REDIS_DOWN)
        path, query = "/tasks/callback/{id}", ("model",)
        return [Endpoint("POST", path, self.report, ReportShown, None, reasons, ("jobs", "register"), query=query)]

    async def report(self, request: web.Request) -> web.Response:
        """Tell how a job goes that a GPU runs on its own, in the form of an answer to a poll.

        Only a `status` that says so ends the job; `progress` and `output` are shown with it. `X-Job-Attempt` has to
        be that of the call which began it. An older attempt changes nothing.
        """
        token, id_ = request.headers.get(_TOKEN, ""), request.match_info["id"]
        if not _ATTEMPT.fullmatch(token):
            raise Refused(BAD_REQUEST, f"{_TOKEN}: give it as the call had it that began the job")
        told = await read_json(request, self._parts.settings.head_timeout)
        try:
            text = orjson.dumps(told)
        except orjson.JSONEncodeError as error:
            raise Refused(BAD_REQUEST, f"the report is nested too deep: {error}") from None
        model = request.query.get("model", "")
        if not request[HOLDER].has_any(("jobs",)):  # a GPU's, which reports of what runs at its own route
            job = await self._jobs.show(id_, model)
            check_covered(request, route_of(job.on or job.model), "the job's model")
        elif is_restricted(request, self._parts.settings):
            check_seen(request, self._parts.settings, await self._jobs.show(id_, model))
        await self._jobs.report(id_, token, model, told, text)
        return json_reply(ReportShown(job_id=id_))
