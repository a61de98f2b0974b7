"""/schedule, /complete, /heartbeat, /tasks, /advice: what callers of models ask the quota router."""

import re
from functools import partial

from aiohttp import web

from slb import errors
from slb.api import quota_bodies as bodies
from slb.api.bodies import body_of, parsed, read_json
from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Quota
from slb.api.replies import json_reply
from slb.api.shortcut import Handler as ShortHandler
from slb.errors import Refused
from slb.quotas import MOST_LISTED, Abandoned, Admitted, Decision, TaskState, Wait

_DENIALS = {
    errors.UNKNOWN_MODEL: "models: {model} is not among those set by PUT /models/<id>",
    errors.NO_MODELS: "no model has been set yet: PUT /models/<id> does that",
    errors.ESTIMATE_EXCEEDS_LIMIT: "estimated_tokens={estimated_tokens}: over the burst of every model that would "
    "do; {model} has the largest, {most}",
    errors.IDEMPOTENCY_MISMATCH: "idempotency_key: it stands for a request with other estimated_tokens or models",
}
"""Why a task is refused for good, and what is answered then."""
_ABANDONED = "abandoned"
_call = partial(Endpoint, rights=("quota",))
_QUERY = ("state", "limit", "after")
_ROWS = re.compile(r"[1-9][0-9]{0,3}")


class QuotaEndpoint:
    """The HTTP side of slb/quota; decides nothing."""

    def __init__(self, parts: ApiParts, quota: Quota) -> None:
        self._parts = parts
        self._quota = quota

    def endpoints(self) -> list[Endpoint]:
        away = (errors.SCRIPT_FAILED, errors.REDIS_DOWN)
        task = (errors.UNKNOWN_TASK, *away)
        scheduled, listed = (errors.SCRIPT_FAILED, *_DENIALS), (errors.BAD_REQUEST, *away)
        return [
            _call("POST", "/schedule", self.schedule, bodies.Scheduled, bodies.ScheduleBody, scheduled),
            _call("POST", "/complete", self.complete, bodies.Completed, bodies.CompleteBody, task),
            _call("POST", "/heartbeat", self.heartbeat, bodies.Beaten, bodies.HeartbeatBody, task),
            Endpoint("GET", "/tasks", self.tasks, bodies.TasksShown, None, listed, ("quota", "read"), query=_QUERY),
            Endpoint("GET", "/advice", self.advice, bodies.AdviceShown, None, away, ("quota", "read")),
        ]

    def short_ways(self) -> dict[str, ShortHandler]:
        """By path, the shortcut's handlers of bodies: of the endpoints that are asked most often."""
        return {
            "/schedule": lambda text: self._schedule(parsed(text)),
            "/complete": lambda text: self._complete(parsed(text)),
            "/heartbeat": lambda text: self._heartbeat(parsed(text)),
        }

    async def schedule(self, request: web.Request) -> web.Response:
        """Which model to call now, or how long to wait."""
        return json_reply(await self._schedule(await self._read(request)))

    async def complete(self, request: web.Request) -> web.Response:
        """A task is done."""
        return json_reply(await self._complete(await self._read(request)))

    async def heartbeat(self, request: web.Request) -> web.Response:
        """A task still runs."""
        return json_reply(await self._heartbeat(await self._read(request)))

    async def _schedule(self, data: object) -> bodies.Scheduled:
        body = body_of(bodies.ScheduleBody, data)
        decision = await self._quota.schedule(body.estimated_tokens, body.models, body.idempotency_key or "")
        return _decided(decision, self._quota.lease, body)

    async def _complete(self, data: object) -> bodies.Completed:
        body = body_of(bodies.CompleteBody, data)
        state = _known(body.task_id, await self._quota.complete(body.task_id, body.actual_tokens))
        return bodies.Completed(ok=True, state=state)

    async def _heartbeat(self, data: object) -> bodies.Beaten:
        body = body_of(bodies.HeartbeatBody, data)
        state = _known(body.task_id, await self._quota.heartbeat(body.task_id))
        if state == "running":
            return bodies.Beaten(ok=True)
        return bodies.Beaten(ok=False, reason="not_found", state=state)

    async def tasks(self, request: web.Request) -> web.Response:
        """Tasks that were reclaimed in the last hour."""
        asked = request.query
        if asked.get("state") != _ABANDONED:
            raise Refused(errors.BAD_REQUEST, "state: has to be abandoned")
        tasks, left_off = await self._quota.abandoned(asked.get("after", ""), _rows(asked.get("limit")))
        return json_reply(bodies.TasksShown(tasks=[_shown(each) for each in tasks], left_off=left_off))

    async def advice(self, _: web.Request) -> web.Response:
        """How many callers would do."""
        score, parallelism = await self._quota.advice()
        return json_reply(bodies.AdviceShown(backpressure_score=round(score, 4), suggested_parallelism=parallelism))

    async def _read(self, request: web.Request) -> object:
        return await read_json(request, self._parts.settings.head_timeout)


def _rows(limit: str | None) -> int:
    rows = MOST_LISTED if limit is None else int(limit) if _ROWS.fullmatch(limit) else 0
    if not 1 <= rows <= MOST_LISTED:
        raise Refused(errors.BAD_REQUEST, f"limit: has to be a whole number from 1 to {MOST_LISTED}")
    return rows


def _decided(decision: Decision, lease: int, body: bodies.ScheduleBody) -> bodies.Scheduled:
    if isinstance(decision, Admitted):
        return bodies.AdmittedShown(model_backend_id=decision.model, task_id=decision.task, lease_ttl_ms=lease)
    if not isinstance(decision, Wait):
        reason = next(each for each in _DENIALS if each.name == decision.reason)
        raise Refused(reason, _DENIALS[reason].format_map({**vars(body), **decision._asdict()}))
    if decision.reason == "":
        return bodies.WaitShown(wait_for_ms=decision.ms)
    return {"wait_for_ms": decision.ms, "reason": decision.reason}  # type: ignore[typeddict-item]


def _shown(task: Abandoned) -> bodies.AbandonedShown:
    return bodies.AbandonedShown(
        task_id=task.task,
        state="abandoned",
        model_backend_id=task.model,
        estimated_tokens=task.estimate,
        idempotency_key=task.key,
        reclaimed_at=task.at / 1000,
    )


def _known(task: str, state: TaskState | None) -> TaskState:
    if state is None:
        raise Refused(errors.UNKNOWN_TASK, f"task_id: {task!r} was never admitted, or ended over an hour ago")
    return state
