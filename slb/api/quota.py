"""/schedule, /complete, /heartbeat, /tasks, /advice: what callers of models ask the quota router."""

from aiohttp import web

from slb.api.bodies import parsed, read_json
from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts, Quota
from slb.api.quota_bodies import (
    AbandonedShown,
    AdmittedShown,
    AdviceShown,
    Beaten,
    CompleteBody,
    Completed,
    HeartbeatBody,
    ScheduleBody,
    Scheduled,
    TasksShown,
    WaitShown,
    body_of,
)
from slb.api.replies import json_reply
from slb.api.shortcut import Handler as ShortHandler
from slb.errors import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    ESTIMATE_EXCEEDS_LIMIT,
    IDEMPOTENCY_MISMATCH,
    NO_MODELS,
    REDIS_DOWN,
    REQUEST_TIMEOUT,
    UNKNOWN_MODEL,
    UNKNOWN_TASK,
    Refused,
)
from slb.quotas import Abandoned, Admitted, Decision, Wait

_DENIALS = {
    "unknown_model": Refused(UNKNOWN_MODEL, "models: there is no such model among those set by PUT /models/<id>"),
    "no_models": Refused(NO_MODELS, "no model has been set yet: PUT /models/<id> does that"),
    "estimate_exceeds_limit": Refused(
        ESTIMATE_EXCEEDS_LIMIT, "estimated_tokens: no model that would do ever has so many at once (its burst)"
    ),
    "idempotency_mismatch": Refused(
        IDEMPOTENCY_MISMATCH, "idempotency_key: it was admitted with other estimated_tokens"
    ),
}
_ABANDONED = "abandoned"


class QuotaEndpoint:
    """Decides nothing: see slb/quota."""

    def __init__(self, parts: ApiParts, quota: Quota) -> None:
        self._parts = parts
        self._quota = quota

    def endpoints(self) -> list[Endpoint]:
        body = (BAD_REQUEST, REQUEST_TIMEOUT, BODY_TOO_LARGE)
        task = (*body, UNKNOWN_TASK, REDIS_DOWN)
        denials = tuple(refused.reason for refused in _DENIALS.values())
        return [
            Endpoint(
                "POST",
                "/schedule",
                self.schedule,
                "Which model to call now, or how long to wait",
                Scheduled,
                ScheduleBody,
                (*body, *denials),
            ),
            Endpoint("POST", "/complete", self.complete, "A task is done", Completed, CompleteBody, task),
            Endpoint("POST", "/heartbeat", self.heartbeat, "A task still runs", Beaten, HeartbeatBody, task),
            Endpoint(
                "GET",
                "/tasks",
                self.tasks,
                "Tasks that were reclaimed in the last hour",
                TasksShown,
                None,
                (BAD_REQUEST, REDIS_DOWN),
                query=("state",),
            ),
            Endpoint("GET", "/advice", self.advice, "How many callers would do", AdviceShown, None, (REDIS_DOWN,)),
        ]

    def short_ways(self) -> dict[str, ShortHandler]:
        """Of those that are asked for most."""
        return {
            "/schedule": lambda text: self._schedule(parsed(text)),
            "/complete": lambda text: self._complete(parsed(text)),
            "/heartbeat": lambda text: self._heartbeat(parsed(text)),
        }

    async def schedule(self, request: web.Request) -> web.Response:
        return json_reply(await self._schedule(await self._read(request)))

    async def complete(self, request: web.Request) -> web.Response:
        return json_reply(await self._complete(await self._read(request)))

    async def heartbeat(self, request: web.Request) -> web.Response:
        return json_reply(await self._heartbeat(await self._read(request)))

    async def _schedule(self, data: object) -> Scheduled:
        body = body_of(ScheduleBody, data)
        decision = await self._quota.schedule(body.estimated_tokens, body.models, body.idempotency_key or "")
        return _decided(decision)

    async def _complete(self, data: object) -> Completed:
        body = body_of(CompleteBody, data)
        state = await self._quota.complete(body.task_id, body.actual_tokens)
        if state is None:
            raise _unknown(body.task_id)
        return Completed(ok=True, state=state)

    async def _heartbeat(self, data: object) -> Beaten:
        body = body_of(HeartbeatBody, data)
        state = await self._quota.heartbeat(body.task_id)
        if state is None:
            raise _unknown(body.task_id)
        if state == "running":
            return Beaten(ok=True)
        return Beaten(ok=False, reason="not_found", state=state)

    async def tasks(self, request: web.Request) -> web.Response:
        if list(request.query.items()) != [("state", _ABANDONED)]:
            raise Refused(BAD_REQUEST, "state: has to be abandoned, and nothing else may be asked for")
        return json_reply(TasksShown(tasks=[_shown(each) for each in await self._quota.abandoned()]))

    async def advice(self, _: web.Request) -> web.Response:
        advice = await self._quota.advice()
        return json_reply(
            AdviceShown(backpressure_score=round(advice.score, 4), suggested_parallelism=advice.parallelism)
        )

    async def _read(self, request: web.Request) -> object:
        return await read_json(request, self._parts.settings.head_timeout)


def _decided(decision: Decision) -> Scheduled:
    if isinstance(decision, Admitted):
        return AdmittedShown(model_backend_id=decision.model, task_id=decision.task)
    if not isinstance(decision, Wait):
        refused = _DENIALS[decision.reason]
        raise Refused(refused.reason, refused.detail)
    if decision.reason == "":
        return WaitShown(wait_for_ms=decision.ms)
    return {"wait_for_ms": decision.ms, "reason": decision.reason}  # type: ignore[typeddict-item]


def _shown(task: Abandoned) -> AbandonedShown:
    return AbandonedShown(
        task_id=task.task,
        state="abandoned",
        model_backend_id=task.model,
        estimated_tokens=task.estimate,
        idempotency_key=task.key,
        reclaimed_at=task.at / 1000,
    )


def _unknown(task: str) -> Refused:
    return Refused(UNKNOWN_TASK, f"task_id: {task!r} was never admitted, or ended over an hour ago")
