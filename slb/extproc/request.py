"""What Envoy shows of a request and its reply, as far as slb looks at it."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders, ProcessingRequest

from slb.backoff import asked_for
from slb.extproc.words import (
    ATTEMPTS,
    CODE_DETAILS,
    FILTER,
    NAMESPACE,
    SERVED,
    SUBSET,
    SUBSET_NAMESPACE,
)

_MOST_SUBSET = 10_000
"""Addresses of a subset that are looked at."""


class Head:
    """A request's headers; names are in lower case, as Envoy has them. `path`: without the query, which is `query`
    with its `?`."""

    __slots__ = ("_fields", "method", "path", "query")

    def __init__(self, headers: HttpHeaders) -> None:
        self._fields = fields = _fields(headers)
        self.method = fields.get(":method", b"").decode("latin-1")
        path, mark, query = fields.get(":path", b"").decode("latin-1").partition("?")
        self.path = path
        self.query = mark + query

    def value(self, name: str) -> str:
        """Of the first header of this name, in lower case; empty where there is none."""
        return self._fields.get(name, b"").decode("latin-1")


def _fields(headers: HttpHeaders) -> dict[str, bytes]:
    """The first of each name. `raw_value` is what Envoy sends, and `value` what others may."""
    found: dict[str, bytes] = {}
    for each in headers.headers.headers:
        if each.key not in found:
            found[each.key] = each.raw_value or each.value.encode("latin-1", "replace")
    return found


def subset_of(request: ProcessingRequest) -> frozenset[str] | None:
    """The only addresses that may be picked; None where all may. A list of texts, or one text with commas."""
    hint = request.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in hint or SUBSET not in hint[SUBSET_NAMESPACE].fields:
        return None
    value = hint[SUBSET_NAMESPACE].fields[SUBSET]
    texts = [each.string_value for each in value.list_value.values[:_MOST_SUBSET]]
    texts += value.string_value.split(",", _MOST_SUBSET)[:_MOST_SUBSET]
    return frozenset(filter(None, map(str.strip, texts)))


class Reply(NamedTuple):
    """`served`: the address that Envoy's last attempt went to, `details`: who made the reply, `attempts`: how many
    there were; empty and 0 where Envoy does not say. `retry_after`: seconds, None where the reply does not say."""

    status: int
    served: str
    details: str
    attempts: int
    is_stream: bool
    retry_after: float | None = None


def _seconds(retry_after: bytes | None) -> float | None:
    return None if retry_after is None else asked_for(retry_after.decode("latin-1").strip(), time.time())


def reply_of(request: ProcessingRequest) -> Reply:
    fields = _fields(request.response_headers)
    status = fields.get(":status", b"")
    attributes = _fields_of(request.attributes, FILTER)
    lb = _fields_of(request.metadata_context.filter_metadata, NAMESPACE)
    return Reply(
        int(status) if status.isdigit() and len(status) == 3 else 0,
        lb[SERVED].string_value if SERVED in lb else "",
        attributes[CODE_DETAILS].string_value if CODE_DETAILS in attributes else "",
        int(attributes[ATTEMPTS].number_value) if ATTEMPTS in attributes else 0,
        fields.get("content-type", b"").startswith(b"text/event-stream"),
        _seconds(fields.get("retry-after")),
    )


def _fields_of(structs: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return structs[name].fields if name in structs else {}


def addresses(text: str) -> Iterator[str]:
    yield from filter(None, map(str.strip, text.split(",")))
