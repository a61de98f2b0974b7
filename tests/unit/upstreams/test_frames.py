"""Events in which an engine tells that it has failed."""

import pytest

from slb.upstreams.frames import tells_error


@pytest.mark.parametrize(
    "payload",
    [
        b'data: {"error": {"message": "CUDA out of memory", "code": 500}}\n\n',
        b'data: {"error":{"message":"x","type":"InternalServerError","code":null}}\n\n',
        b'data: {"choices":[]}\n\ndata: {"error": {"message": "gone"}}\n\n',
        b'data:{"error": "engine dead"}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
        b"event:error\r\ndata: x\r\n\r\n",
    ],
)
def test_an_event_that_tells_of_an_error_is_seen(payload: bytes) -> None:
    assert tells_error(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b'data: {"choices":[{"delta":{"content":"error"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ndata: {\\"error\\": 1}"}}]}\n\n',
        b'data: {"error": null, "choices": []}\n\n',
        b'data: {"error":"","text":"x"}\n\n',
        b'data: {"error": {"message": "context too long", "code": 400}}\n\n',
        b'data: {"error":{"message":"too many","code":"429"}}\n\n',
        b"event: errors_seen\ndata: 1\n\n",
        b': {"error": 1}\n\n',
    ],
)
def test_what_a_model_writes_or_a_client_has_brought_about_is_none(payload: bytes) -> None:
    assert not tells_error(payload)
