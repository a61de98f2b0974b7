"""/openapi.json describes what there is: no more, no less, and in valid JSON Schema."""

import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from slb import errors
from slb.api.application import api_endpoints, make_api
from slb.api.openapi import document as made_document
from slb.api.parts import ApiParts
from slb.errors import Reason
from slb.model import RouteSettings
from tests.unit.api.conftest import Api

REASONS = {value.name: value for value in vars(errors).values() if isinstance(value, Reason)}


@pytest.fixture
async def document(api: Api) -> Any:
    return (await api.call("GET", "/openapi.json")).json


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def walk(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for each in node.values():
            yield from walk(each)
    elif isinstance(node, list):
        for each in node:
            yield from walk(each)


async def test_every_route_of_the_application_is_in_it_and_nothing_else(document: Any, parts: ApiParts) -> None:
    routed = set()
    for route in make_api(parts).router.routes():
        assert route.resource is not None
        if route.method != "HEAD":
            routed.add((route.method, route.resource.canonical))
    assert {(method, path) for method, path, _ in operations(document)} == routed


async def test_at_the_root_stands_what_there_is_a_line_each(api: Api, document: Any) -> None:
    answer = await api.call("GET", "/")
    assert (answer.status, list(answer.json)) == (200, ["endpoints"])
    assert b'\n      "path": "/register",\n' in answer.body
    assert answer.body.endswith(b"}\n")
    listed = {(each["method"], each["path"]): each["what"] for each in answer.json["endpoints"]}
    assert listed == {(method, path): operation["summary"] for method, path, operation in operations(document)}
    assert {"/", "/routes", "/register", "/metrics", "/openapi.json"} <= {path for _, path in listed}
    assert all(text and "\n" not in text for text in listed.values())


async def test_it_has_the_form_of_openapi_3_1(document: Any) -> None:
    assert document["openapi"].startswith("3.1.")
    assert document["info"].keys() >= {"title", "version"}
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for _, path, operation in operations(document):
        assert operation["responses"]["200"]["description"]
        for response in operation["responses"].values():
            assert response["description"]
            assert all("schema" in content for content in response["content"].values())
        in_path = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))


async def test_every_reference_in_it_leads_somewhere(document: Any) -> None:
    references = [node["$ref"] for node in walk(document) if "$ref" in node]
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


async def test_its_schemas_use_only_words_of_json_schema(document: Any) -> None:
    """A typo in a keyword is no error to a validator: it is just not checked."""
    words = {
        "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "examples", "format",
        "items", "maxItems", "maxLength", "maximum", "minLength", "minimum", "exclusiveMinimum", "exclusiveMaximum",
        "pattern", "properties", "required", "title", "type", "propertyNames", "discriminator", "oneOf",
        "maxProperties",
    }  # fmt: skip

    def check(schema: Any) -> None:
        if not isinstance(schema, dict):
            assert isinstance(schema, bool)
            return
        assert schema.keys() <= words, schema.keys() - words
        for each in schema.get("properties", {}).values():
            check(each)
        for each in (*schema.get("anyOf", []), *schema.get("oneOf", [])):
            check(each)
        for word in ("items", "additionalProperties", "propertyNames"):
            if word in schema:
                check(schema[word])

    for schema in document["components"]["schemas"].values():
        check(schema)
    for _, _, operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            check(content["schema"])
        for response in operation["responses"].values():
            for content in response["content"].values():
                check(content["schema"])


async def test_every_reason_it_names_exists_and_has_that_status(document: Any) -> None:
    for _, path, operation in operations(document):
        for status, response in operation["responses"].items():
            for name in response["description"].split(" or ") if int(status) >= 400 else ():
                reason = REASONS[name.strip("`")]
                assert str(reason.status) == status, path
                assert (reason.retry_after is None) or "Retry-After" in response["headers"]


def test_no_reason_is_named_twice_whatever_runs_here() -> None:
    for method, path, operation in operations(made_document(api_endpoints(Mock()))):
        for response in operation["responses"].values():
            names = re.findall("`.+?`", response["description"])
            assert len(set(names)) == len(names), (method, path)


async def test_what_is_guarded_is_described_so(document: Any) -> None:
    unguarded = {path for _, path, operation in operations(document) if operation["security"] == []}
    assert unguarded == {"/healthz", "/readyz"}
    for _, path, operation in operations(document):
        assert ({"401", "403"} <= operation["responses"].keys()) is (path not in unguarded)


@pytest.mark.parametrize("method", ["put", "patch"])
async def test_the_settings_of_a_route_are_those_of_the_model(document: Any, method: str) -> None:
    body = document["paths"]["/routes/{path}"][method]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"].keys() == RouteSettings.model_fields.keys()
    assert body["additionalProperties"] is False
    timeout = body["properties"]["connect_timeout"]
    plain = timeout if method == "put" else timeout["anyOf"][0]
    assert plain["type"] == "string"
    assert ({"type": "null"} in timeout.get("anyOf", [])) is (method == "patch")
