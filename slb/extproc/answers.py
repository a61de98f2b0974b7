"""What Envoy is answered, as bytes. An answer that repeats is made once."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy.type.v3.http_status_pb2 import HttpStatus

from slb.answers import refusal_body
from slb.errors import Reason
from slb.extproc.words import DESTINATION, NAMESPACE, ROUTE

_OVERWRITE = 2
"""HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD"""
_REMEMBERED = 4096
"""Of 20 upstreams with one alternative each there are 380 answers."""

Header = tuple[str, str]


@lru_cache(maxsize=_REMEMBERED)
def goes_to(addresses: str, path: str = "", route: str = "") -> bytes:
    """Send the request to the first of `addresses` (`IP:PORT`, with commas), and at each attempt of Envoy's to the
    next. `path`: what it is sent with, where that is not what came. `route`: the one that it goes by."""
    answer = ProcessingResponse()
    headers = [(DESTINATION, addresses)]
    if path:
        headers.append((":path", path))
    _set(answer.request_headers.response.header_mutation.set_headers, headers)
    answer.dynamic_metadata.update({NAMESPACE: {DESTINATION: addresses, ROUTE: route}})
    return _bytes(answer)


def refused(reason: Reason, detail: str, request_id: str, tells_all: bool) -> bytes:
    """End the request with the answer that slb's proxy would give."""
    answer = ProcessingResponse()
    immediate = answer.immediate_response
    immediate.status.CopyFrom(HttpStatus(code=reason.status))
    immediate.body = refusal_body(reason, detail, request_id, tells_all)
    immediate.details = f"slb_{reason.name}"
    headers = [("content-type", "application/json"), ("x-request-id", request_id)]
    if reason.retry_after is not None:
        headers.append(("retry-after", str(reason.retry_after)))
    _set(immediate.headers.set_headers, headers)
    return _bytes(answer)


@lru_cache(maxsize=256)
def waits(seconds: int) -> bytes:
    """No answer yet: Envoy is to wait so much longer, as far as its `max_message_timeout` allows. It takes one such
    message for each that it has sent."""
    answer = ProcessingResponse()
    answer.override_message_timeout.seconds = seconds
    return _bytes(answer)


def _bytes(answer: ProcessingResponse) -> bytes:
    made: bytes = answer.SerializeToString()
    return made


def _set(options: Any, headers: Sequence[Header]) -> None:
    """`raw_value`: of a header that has `value` too, or alone, Envoy takes nothing."""
    for name, value in headers:
        option = options.add()
        option.header.key = name
        option.header.raw_value = value.encode("latin-1")
        option.append_action = _OVERWRITE


def _empty(kind: str) -> bytes:
    answer = ProcessingResponse()
    getattr(answer, kind).SetInParent()
    return _bytes(answer)


GOES_ON = {
    kind: _empty(kind)
    for kind in ("request_headers", "response_headers", "request_body", "response_body", "request_trailers")
}
GOES_ON["response_trailers"] = _empty("response_trailers")
"""By what Envoy has shown: it goes on as it is."""


def streamed_on(request: ProcessingRequest, kind: str) -> bytes:
    """The piece of a body that Envoy has sent in FULL_DUPLEX_STREAMED mode, where it passes on only what it is sent
    back."""
    body = getattr(request, kind)
    answer = ProcessingResponse()
    streamed = getattr(answer, kind).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = body.body, body.end_of_stream
    return _bytes(answer)
