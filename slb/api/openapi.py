"""/openapi.json, and / in short, made from the declared endpoints."""

from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web
from pydantic import TypeAdapter

from slb import __version__, errors
from slb.api.endpoints import FOLLOWED, NAME_IN_PATH, NOT_YET, Endpoint
from slb.api.replies import json_reply
from slb.api.shapes import EndpointShown, EndpointsShown, Refusal
from slb.errors import Reason
from slb.tokens import RIGHTS

_REF = "#/components/schemas/{model}"
_PARAMETERS = {
    "path": "The route's path without its first slash, other slashes as they are; empty for the root.",
    "model": "The model's id; slashes as they are, or encoded.",
    "id": "The job's id.",
    "request_id": "The request's `X-Request-Id`.",
    "member": "The upstream as it is registered, such as 10.0.0.1:80 or https://gpu-1:443.",
}
_QUERY = {
    "dry_run": "With true nothing is written: the answer is the refusal that the change would get, or "
    '`{"dry_run": true}`.',
    "silent": "Only those that neither a check nor a request has found alive for so many seconds.",
    "besides": "Upstreams that are to be drained too, with commas between them.",
    "path": "The request's, as a client writes it.",
    "key": "The request's key, where its route goes by one other than its path.",
    "state": "What became of the tasks: abandoned.",
    "limit": "How many at most, up to 1000.",
    "model": "The jobs' model; where one job is named, its model.",
    "status": "Jobs in this state: buffered, queued, retrying, processing, completed, failed, cancelled, "
    "ended (these three) or dead_lettered.",
    "cursor": "Where the page begins: the `cursor` of the page before.",
    "job_id": "The job that is followed.",
    "error": "Only jobs whose error has this text in it, in any case.",
    "wait": "How long the answer may be kept back, such as 30s, or 30; at most 60s.",
    "payload": "With true what was submitted is shown.",
    "since": "The id of an entry: only those after it.",
    "most": "How many at most, up to 200.",
    "after": "A task's id: only those that came after it.",
}
_NOT_YET = "Written; this instance does not serve it yet"
_NEEDED = ("state", "path")
_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "Any of the rights that are named will do, and admin always. Without any token in the settings, "
    "programs of the same machine may call.",
}
_OF_ALL = (errors.INTERNAL, errors.HTTP_VERSION, errors.BAD_REQUEST)
_OF_GUARDED = (errors.UNAUTHORIZED, errors.FORBIDDEN)
_OF_BODY = (errors.BAD_REQUEST, errors.REQUEST_TIMEOUT, errors.BODY_TOO_LARGE, errors.OVERLOADED)


class OpenApiEndpoint:
    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        every = [*endpoints, *self.endpoints()]
        self._document = document(every)
        ordered = sorted(every, key=lambda each: each.path)
        self._list = EndpointsShown(endpoints=[_shown(each) for each in ordered])

    def endpoints(self) -> list[Endpoint]:
        """Neither is open. A client that has only the address begins at /."""
        return [
            Endpoint("GET", "/", self.show_list, EndpointsShown, rights=RIGHTS),
            Endpoint("GET", "/openapi.json", self.show, dict[str, Any], rights=RIGHTS),
        ]

    async def show_list(self, _: web.Request) -> web.Response:
        """What there is."""
        # A line for each figure, and one at the end, for a person at a terminal.
        text = orjson.dumps(self._list, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        return web.Response(body=text, content_type="application/json")

    async def show(self, _: web.Request) -> web.Response:
        """All of it for programs."""
        return json_reply(self._document)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "slb", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": _TOKEN}},
    }


def _shown(endpoint: Endpoint) -> EndpointShown:
    rights = [] if endpoint.is_open else list(endpoint.rights)
    return EndpointShown(method=endpoint.method, path=endpoint.path, what=endpoint.summary, rights=rights)


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "responses": _responses(endpoint, schemas),
        "security": [] if endpoint.is_open else [{}, *({"token": [right]} for right in endpoint.rights)],
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [_parameter(name, text) for name, text in _PARAMETERS.items() if f"{{{name}}}" in endpoint.path]
    parameters += [_parameter(name, _QUERY[name], "query", name in _NEEDED) for name in endpoint.query]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {"application/json": {"schema": _schema(endpoint.body, schemas)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = NAME_IN_PATH.sub("one", endpoint.path).replace(".", "/").split("/")
    return "_".join([endpoint.method.lower(), *filter(None, words)])


def _parameter(name: str, text: str, place: str = "path", needed: bool = True) -> dict[str, Any]:
    return {"name": name, "in": place, "required": needed, "description": text, "schema": {"type": "string"}}


def _responses(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    reply = {"type": "string"} if endpoint.reply is None else _schema(endpoint.reply, schemas)
    found: dict[str, Any] = {
        str(endpoint.status): {
            "description": endpoint.summary,
            "content": {endpoint.content_type: {"schema": reply}},
        }
    }
    if endpoint.is_followed:
        found[str(NOT_YET)] = {**found[str(FOLLOWED)], "description": _NOT_YET}
    reasons = [] if endpoint.body is None else [*_OF_BODY]
    reasons += [*endpoint.reasons, *(() if endpoint.is_open else _OF_GUARDED), *_OF_ALL]
    for status in sorted({reason.status for reason in reasons}):
        found[str(status)] = _refusals([reason for reason in reasons if reason.status == status], schemas)
    return found


def _refusals(reasons: Sequence[Reason], schemas: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": " or ".join(dict.fromkeys(f"`{reason.name}`" for reason in reasons)),
        "content": {"application/json": {"schema": _schema(Refusal, schemas)}},
    }
    if any(reason.retry_after is not None for reason in reasons):
        text = {"description": "Seconds to wait", "schema": {"type": "integer"}}
        response["headers"] = {"Retry-After": text}
    return response


def _schema(shape: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type, whose parts are put into `schemas`; a dict is a schema already."""
    if isinstance(shape, dict):
        return shape
    schema = TypeAdapter(shape).json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    title = schema.get("title")
    if title and schema.get("type") == "object":
        schemas[title] = schema
        return {"$ref": _REF.format(model=title)}
    return schema
