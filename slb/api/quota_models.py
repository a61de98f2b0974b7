"""/models and /models/<id>: what each model may take, and what it takes now."""

from urllib.parse import unquote

from aiohttp import web

from slb import errors
from slb.api.bodies import body_of, read_json
from slb.api.changes import note
from slb.api.endpoints import DRY_RUN, Endpoint, is_dry_run, not_written
from slb.api.parts import ApiParts, Quota
from slb.api.quota_bodies import LimitsBody, ModelRemoved, ModelShown, ModelsShown
from slb.api.replies import json_reply
from slb.errors import RedisUnavailable, Refused
from slb.quotas import MOST_MODELS, Denied, ModelState, checked_model

_PREFIX = "/models/"


class QuotaModelsEndpoint:
    """Changes apply from the next decision on, at every instance."""

    def __init__(self, parts: ApiParts, quota: Quota) -> None:
        self._parts = parts
        self._quota = quota

    def endpoints(self) -> list[Endpoint]:
        path = "/models/{model}"
        away = (errors.SCRIPT_FAILED, errors.REDIS_DOWN)
        missing = (errors.BAD_REQUEST, errors.UNKNOWN_MODEL, *away)
        return [
            Endpoint("GET", "/models", self.show_all, ModelsShown, None, away, ("quota", "read")),
            Endpoint("GET", path, self.show, ModelShown, None, missing, ("quota", "read")),
            Endpoint("PUT", path, self.put, ModelShown, LimitsBody, (errors.TOO_MANY_MODELS, *away), query=DRY_RUN),
            Endpoint("DELETE", path, self.delete, ModelRemoved, None, missing, query=DRY_RUN),
        ]

    async def show_all(self, _: web.Request) -> web.Response:
        """Every model."""
        return json_reply(ModelsShown(models=[_shown(each) for each in await self._quota.models()]))

    async def show(self, request: web.Request) -> web.Response:
        """One model."""
        return json_reply(await self._one(_model_of(request)))

    async def put(self, request: web.Request) -> web.Response:
        """Set what a model may take."""
        model = _model_of(request)
        body = body_of(LimitsBody, await read_json(request, self._parts.settings.head_timeout))
        if is_dry_run(request):
            return not_written()
        answer = await self._quota.put(model, body.model_dump(include=body.model_fields_set))
        if isinstance(answer, Denied):
            raise _not_put(model, answer)
        if "paused" in body.model_fields_set:
            note(self._parts, request, "model_paused" if body.paused else "model_resumed", model, "quota")
        try:
            return json_reply(await self._one(model))
        except RedisUnavailable as error:
            raise RedisUnavailable(str(error)) from None  # the put itself had reached it

    async def delete(self, request: web.Request) -> web.Response:
        """Remove it."""
        model = _model_of(request)
        if is_dry_run(request):
            return not_written()
        if not await self._quota.delete(model):
            raise _unknown(model)
        return json_reply(ModelRemoved(id=model, removed=True))

    async def _one(self, model: str) -> ModelShown:
        for each in await self._quota.models():
            if each.model == model:
                return _shown(each)
        raise _unknown(model)


def _model_of(request: web.Request) -> str:
    """Decoded here: aiohttp leaves some of what is encoded as it is. Raises InvalidName."""
    return checked_model(unquote(request.rel_url.raw_path.removeprefix(_PREFIX), errors="surrogateescape"))


def _not_put(model: str, denied: Denied) -> Refused:
    if denied.reason == errors.TOO_MANY_MODELS.name:
        detail = f"{model} would be one over {MOST_MODELS}; deleted ones that are in use count"
        return Refused(errors.TOO_MANY_MODELS, detail)
    detail = f"{model} is new: max_tokens_per_minute and max_concurrent_requests have to be given"
    return Refused(errors.BAD_REQUEST, detail)


def _shown(state: ModelState) -> ModelShown:
    limits = state.limits
    return ModelShown(
        id=state.model,
        weight=limits.weight,
        max_concurrent_requests=limits.max_concurrent_requests,
        max_tokens_per_minute=limits.max_tokens_per_minute,
        burst=limits.bucket,
        paused=limits.paused,
        in_flight=state.in_flight,
        tokens=round(state.tokens, 3),
        waiting=state.waiting,
        tokens_last_minute=state.minute,
    )


def _unknown(model: str) -> Refused:
    return Refused(errors.UNKNOWN_MODEL, f"there is no model {model}")
