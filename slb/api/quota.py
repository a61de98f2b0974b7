"""/schedule, /complete, /heartbeat, /tasks, /advice: what callers of models ask the quota router."""

import re

from aiohttp import web

from slb.api.bodies import body_of, parsed, read_json
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
)
from slb.api.replies import json_reply
from slb.api.shortcut import Handler as ShortHandler
from slb.errors import (
    BAD_REQUEST,
    ESTIMATE_EXCEEDS_LIMIT,
    IDEMPOTENCY_MISMATCH,
    NO_MODELS,
    REDIS_DOWN,
    SCRIPT_FAILED,
    UNKNOWN_MODEL,
    UNKNOWN_TASK,
    Refused,
)
from slb.quotas import MOST_LISTED, Abandoned, Admitted, Decision, Wait

_DENIALS = {
    "unknown_model": Refused(UNKNOWN_MODEL, "models: {model} is not among those set by PUT /models/<id>"),
    "no_models": Refused(NO_MODELS, "no model has been set yet: PUT /models/<id> does that"),
    "estimate_exceeds_limit": Refused(
        ESTIMATE_EXCEEDS_LIMIT,
        "estimated_tokens={estimated_tokens}: over the burst of every model that would do; {model} has the "
        "largest, {most}",
    ),
    "idempotency_mismatch": Refused(
        IDEMPOTENCY_MISMATCH, "idempotency_key: it stands for a request with other estimated_tokens or models"
    ),
}
_ABANDONED = "abandoned"
_QUERY = ("state", "limit", "after")
_ROWS = re.compile(r"[1-9][0-9]{0,3}")


class QuotaEndpoint:
    """Decides nothing: see slb/quota."""

    def __init__(self, parts: ApiParts, quota: Quota) -> None:
        self._parts = parts
        self._quota = quota

    def endpoints(self) -> list[Endpoint]:
        away = (SCRIPT_FAILED, REDIS_DOWN)
        task = (UNKNOWN_TASK, *away)
        denials = tuple(refused.reason for refused in _DENIALS.values())
        return [
            Endpoint("POST", "/schedule", self.schedule, Scheduled, ScheduleBody, (SCRIPT_FAILED, *denials)),
            Endpoint("POST", "/complete", self.complete, Completed, CompleteBody, task),
            Endpoint("POST", "/heartbeat", self.heartbeat, Beaten, HeartbeatBody, task),
            Endpoint("GET", "/tasks", self.tasks, TasksShown, None, (BAD_REQUEST, *away), query=_QUERY),
            Endpoint("GET", "/advice", self.advice, AdviceShown, None, away),
        ]

    def short_ways(self) -> dict[str, ShortHandler]:
        """Of those that are asked for most."""
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

    async def _schedule(self, data: object) -> Scheduled:
        body = body_of(ScheduleBody, data)
        decision = await self._quota.schedule(body.estimated_tokens, body.models, body.idempotency_key or "")
        return _decided(decision, self._quota.lease, body)

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
        """Tasks that were reclaimed in the last hour."""
        asked = dict(request.query)
        if len(asked) != len(request.query) or not asked.keys() <= set(_QUERY):
            raise Refused(BAD_REQUEST, "state, limit and after may be asked for, each once")
        if asked.get("state") != _ABANDONED:
            raise Refused(BAD_REQUEST, "state: has to be abandoned")
        tasks, left_off = await self._quota.abandoned(asked.get("after", ""), _rows(asked.get("limit")))
        return json_reply(TasksShown(tasks=[_shown(each) for each in tasks], left_off=left_off))

    async def advice(self, _: web.Request) -> web.Response:
        """How many callers would do."""
        advice = await self._quota.advice()
        return json_reply(
            AdviceShown(backpressure_score=round(advice.score, 4), suggested_parallelism=advice.parallelism)
        )

    async def _read(self, request: web.Request) -> object:
        return await read_json(request, self._parts.settings.head_timeout)


def _rows(limit: str | None) -> int:
    rows = MOST_LISTED if limit is None else int(limit) if _ROWS.fullmatch(limit) else 0
    if not 1 <= rows <= MOST_LISTED:
        raise Refused(BAD_REQUEST, f"limit: has to be a whole number from 1 to {MOST_LISTED}")
    return rows


def _decided(decision: Decision, lease: int, body: ScheduleBody) -> Scheduled:
    if isinstance(decision, Admitted):
        return AdmittedShown(model_backend_id=decision.model, task_id=decision.task, lease_ttl_ms=lease)
    if not isinstance(decision, Wait):
        refused = _DENIALS[decision.reason]
        raise Refused(refused.reason, refused.detail.format_map({**vars(body), **decision._asdict()}))
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
