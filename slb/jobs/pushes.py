"""What Cloud Tasks sends: a push lets its job wait for a slot, and is answered when the job has ended."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping

from slb.errors import DRAINING, JOB_UNENDED, NO_SLOT_YET, UNAUTHORIZED, Refused
from slb.job import ENDED
from slb.jobs.cloud_tasks import SECRET_HEADER, TaskTiming, deadline_of
from slb.jobs.ends import Ends
from slb.jobs.models import Models

_LOOK = 0.25
_ANSWERED_WITHIN = 5.0
"""Seconds of a push's deadline that are left for the answer."""

Check = Callable[[Mapping[str, str]], Awaitable[None]]
"""Whether a push came from Cloud Tasks, by its headers. Raises Refused where it may not have."""


def by_secret(secret: str) -> Check:
    """Those that have the secret in their header."""

    async def check(headers: Mapping[str, str]) -> None:
        given = headers.get(SECRET_HEADER, "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, secret.encode()):
            raise Refused(UNAUTHORIZED, f"{SECRET_HEADER} is not jobs_tasks_secret")

    return check


async def refuse_all(headers: Mapping[str, str]) -> None:
    """Where there are no settings for it."""
    raise Refused(UNAUTHORIZED, "jobs_tasks_queues is not set here")


class Pushes:
    """`ends` tells of attempts that have ended here."""

    def __init__(self, models: Models, ends: Ends, check: Check, timing: TaskTiming) -> None:
        self.check = check
        self._models = models
        self._ends = ends
        self._timing = timing
        self.is_leaving = False

    async def take(self, name: str, id_: str, retries: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Returns when a job has ended, or is none. A push that comes while another waits for the same job waits
        with it. Raises Refused where the job is to be sent again, and once nobody wants to know."""
        model, config = await self._models.of(name)
        lane, loop = model.lane, asyncio.get_running_loop()
        until = loop.time() + deadline_of(config) - _ANSWERED_WITHIN
        begun_by = loop.time() + self._timing.slot_within
        state = await lane.release(id_, retries)
        while state is not None and state not in ENDED:
            now = loop.time()
            if state == "queued" and now >= begun_by and await lane.withhold(id_, self._timing.lost):
                state = "buffered"
            if state == "buffered":
                raise Refused(NO_SLOT_YET, f"no slot was free for {id_!r}")
            if self.is_leaving:
                raise Refused(DRAINING, "this instance is about to stop")
            if now >= until or not is_wanted():
                raise Refused(JOB_UNENDED, f"{id_!r} is {state}")
            await self._ends.of(name, id_, min(_LOOK, until - now))
            shown = await lane.show(id_, 0)
            state = shown.state if shown is not None else None
