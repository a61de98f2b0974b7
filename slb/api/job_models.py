"""/admin/register and /admin/model-configs: the GPUs that run jobs, and what holds for a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from pydantic import ValidationError

from slb.addresses import is_address
from slb.api.bodies import body_of, faults_of, read_json
from slb.api.callers import named
from slb.api.changes import note
from slb.api.covered import check_attributes, check_covered
from slb.api.endpoints import DRY_RUN, Endpoint, change, followed, is_dry_run, not_written
from slb.api.job_bodies import ConfigRemoved, ConfigShown, ConfigsListed, GpuRegistered, RegisterGpuBody
from slb.api.parts import ApiParts, Jobs
from slb.api.replies import json_reply
from slb.errors import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    REDIS_DOWN,
    REQUEST_TIMEOUT,
    TOO_MANY_MODELS,
    UNKNOWN_MODEL,
    InvalidName,
    Refused,
)
from slb.job import ModelConfig, route_of
from slb.names import normal_member, split_member
from slb.tokens import Right

_ROUTE = {"policy": "least_inflight", "max_inflight": "1", "when_full": "queue", "queue_timeout": "30s"}
"""What a model's route begins with: a job has a slot for itself, and waits in the shared queue for it."""
_log = structlog.get_logger("slb.api")


class JobModelsEndpoint:
    """Of the job dispatcher's models."""

    def __init__(self, parts: ApiParts, jobs: Jobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        path = "/admin/model-configs/{model}"
        body = (BAD_REQUEST, REQUEST_TIMEOUT, BODY_TOO_LARGE, TOO_MANY_MODELS, REDIS_DOWN)
        seeing: tuple[Right, ...] = ("jobs", "read")
        return [
            change("POST", "/admin/register", self.register, GpuRegistered, RegisterGpuBody, body, ("register",)),
            Endpoint("GET", "/admin/model-configs", self.show_all, ConfigsListed, None, (REDIS_DOWN,), seeing),
            Endpoint("GET", path, self.show, ConfigShown, None, (BAD_REQUEST, UNKNOWN_MODEL), seeing),
            Endpoint("PUT", path, self.put, ConfigShown, ModelConfig, body, query=DRY_RUN),
            Endpoint("PATCH", path, self.patch, ConfigShown, ModelConfig, (*body, UNKNOWN_MODEL), query=DRY_RUN),
            Endpoint("DELETE", path, self.delete, ConfigRemoved, None, (BAD_REQUEST, REDIS_DOWN), query=DRY_RUN),
        ]

    async def register(self, request: web.Request) -> web.Response:
        """Register a GPU server for a model's jobs.

        It becomes an upstream of the route `/jobs/<model>`, which is like any other: health checks, drain and
        weights hold for it. `DELETE /register` with that path takes it out. The path in `endpoint` is one for all
        GPUs of a model: the first one sets it, where nothing else has, and another one is refused.
        """
        body = body_of(RegisterGpuBody, await read_json(request, self._parts.settings.head_timeout))
        path, member, endpoint = route_of(body.model), *_target_of(body.endpoint)
        check_covered(request, path, "model")
        self._refuse_address(member)
        attributes = {"slots": str(body.slots)}
        check_attributes(request, self._parts.mirror, {member: attributes})
        self._jobs.check_room([body.model])
        if is_dry_run(request):
            return not_written()
        if endpoint:
            await self._settle_endpoint(body.model, endpoint)
        if path not in self._parts.mirror.records:
            await self._parts.registry.patch_settings(path, _ROUTE)
        added = await self._parts.registry.register(path, member, attributes)
        status = await followed(self._parts, lambda mirror: member in _members(mirror, path))
        if added:
            _log.info("upstream_added", path=path, upstream=member, server=body.server or None, **named(request))
        return json_reply(GpuRegistered(model=body.model, path=path, target=member, added=added), status)

    async def show_all(self, _: web.Request) -> web.Response:
        """What is set on the models."""
        await self._jobs.look()
        found = sorted(self._jobs.configured.items())
        return json_reply(
            ConfigsListed(
                models={name: each.model_dump(mode="json", exclude_defaults=True) for name, each in found}
            )
        )

    async def show(self, request: web.Request) -> web.Response:
        """What holds for a model."""
        model = request.match_info["model"]
        self._refuse_unknown(model)
        return json_reply(_shown(model, self._config(model)))

    async def put(self, request: web.Request) -> web.Response:
        """Set what holds for a model; what is not named takes its default, but `endpoint` and `paused` stay.

        It holds here at once, and at all instances within a second.
        """
        return await self._configured(request, is_change=False)

    async def patch(self, request: web.Request) -> web.Response:
        """Change what holds for a model; what is not named stays, and null resets.

        Where two instances change one model at the same moment, only the later change may hold.
        """
        await self._jobs.look()
        self._refuse_unknown(request.match_info["model"])
        return await self._configured(request, is_change=True)

    async def _configured(self, request: web.Request, is_change: bool) -> web.Response:
        model, data = request.match_info["model"], await read_json(request, self._parts.settings.head_timeout)
        if not isinstance(data, dict):
            raise Refused(BAD_REQUEST, "body: has to be an object")
        with _refused_by_name():
            config = await self._jobs.configure(model, data, is_change, is_dry_run(request))
        if is_dry_run(request):
            return not_written()
        _log.info("job_model_configured", model=model, **named(request))
        if "paused" in data:
            note(self._parts, request, "model_paused" if config.paused else "model_resumed", model, "jobs")
        return json_reply(_shown(model, config))

    async def delete(self, request: web.Request) -> web.Response:
        """Let the defaults hold again; `endpoint` stays while a GPU is registered, and a pause."""
        model = request.match_info["model"]
        if is_dry_run(request):
            return not_written()
        return json_reply(ConfigRemoved(model=model, removed=await self._jobs.unconfigure(model)))

    async def _settle_endpoint(self, model: str, endpoint: str) -> None:
        """The first GPU's path is its model's. Raises Refused where the model has another one."""
        await self._jobs.look()
        config = self._config(model)
        if endpoint == config.endpoint:
            return
        if config.endpoint != ModelConfig().endpoint or _members(self._parts.mirror, route_of(model)):
            raise Refused(
                BAD_REQUEST,
                f"endpoint: its path is {endpoint}, and jobs of {model} are posted to {config.endpoint}; "
                f"PATCH /admin/model-configs/{model} sets another for all its GPUs",
            )
        with _refused_by_name():
            await self._jobs.configure(model, {"endpoint": endpoint}, is_change=True)

    def _config(self, model: str) -> ModelConfig:
        return self._jobs.models.get(model) or ModelConfig()

    def _refuse_unknown(self, model: str) -> None:
        if model not in self._jobs.models:
            raise Refused(UNKNOWN_MODEL, f"model: {model[:200]!r} is not known")

    def _refuse_address(self, member: str) -> None:
        _, host, port = split_member(member)
        refusal = self._parts.address_rules.refusal(host, port) if is_address(host) else None
        if refusal:
            raise Refused(BAD_REQUEST, f"endpoint: {refusal}")


@contextmanager
def _refused_by_name() -> Iterator[None]:
    """What cannot be set on a model is refused by the name of its field."""
    try:
        yield
    except ValidationError as error:
        raise Refused(BAD_REQUEST, faults_of(error)) from None
    except InvalidName as error:
        raise Refused(BAD_REQUEST, str(error)) from None


def _members(mirror: Any, path: str) -> frozenset[str]:
    record = mirror.records.get(path)
    return record.members if record is not None else frozenset()


def _target_of(url: str) -> tuple[str, str]:
    """The member, and where on it jobs are posted to; "" where the URL has no path."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Refused(BAD_REQUEST, f"endpoint: is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise Refused(BAD_REQUEST, "endpoint: has to be a URL such as http://10.0.0.7:8000/generate")
    try:
        return normal_member(f"{parts.scheme}://{parts.netloc}"), parts.path
    except InvalidName as error:
        raise Refused(BAD_REQUEST, f"endpoint: {error}") from None


def _shown(model: str, config: ModelConfig) -> ConfigShown:
    return ConfigShown(model=model, config=config.model_dump(mode="json"))
