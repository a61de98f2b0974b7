"""/tasks/handle: what Cloud Tasks sends."""

import re

from aiohttp import web

from slb.api.bodies import body_of, read_json
from slb.api.body_room import HELD
from slb.api.callers import is_there
from slb.api.endpoints import Endpoint
from slb.api.job_bodies import PushBody, PushShown
from slb.api.parts import ApiParts, Jobs
from slb.api.replies import json_reply
from slb.errors import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    DRAINING,
    JOB_UNENDED,
    NO_SLOT_YET,
    REDIS_DOWN,
    REQUEST_TIMEOUT,
    SCRIPT_FAILED,
    TASK_KEYS_UNKNOWN,
    UNAUTHORIZED,
    UNKNOWN_MODEL,
)

_RETRIES = "X-CloudTasks-TaskRetryCount"
_COUNT = re.compile(r"[0-9]{1,9}")


class JobPushesEndpoint:
    """Of the job dispatcher. It asks for what a task has, and not for `api_token`."""

    def __init__(self, parts: ApiParts, jobs: Jobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        body = (BAD_REQUEST, REQUEST_TIMEOUT, BODY_TOO_LARGE, UNAUTHORIZED)
        away = (UNKNOWN_MODEL, SCRIPT_FAILED, REDIS_DOWN)
        again = (NO_SLOT_YET, JOB_UNENDED, TASK_KEYS_UNKNOWN, DRAINING)
        reasons = (*body, *away, *again)
        return [Endpoint("POST", "/tasks/handle", self.handle, PushShown, PushBody, reasons, is_open=True)]

    async def handle(self, request: web.Request) -> web.Response:
        """Take a task from Cloud Tasks: its job waits for a slot now; answered when the job has ended.

        After any other answer than 200 the task is sent again (docs/jobs.md#cloud-tasks). `api_token` is not asked
        for here.
        """
        await self._jobs.check_push(request.headers)
        body = body_of(PushBody, await read_json(request, self._parts.settings.head_timeout))
        request[HELD].give_back()
        count = request.headers.get(_RETRIES, "")
        retries = int(count) if _COUNT.fullmatch(count) else 0
        await self._jobs.push(body.model, body.job_id, retries, is_there(request))
        return json_reply(PushShown(job_id=body.job_id))
