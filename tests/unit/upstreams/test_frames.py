"""Events in which an engine tells that it has failed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.upstreams.frames import ErrorEvents

TOLD = [
    b'data: {"error": {"message": "CUDA out of memory", "code": 500}}\n\n',
    b'data: {"error":{"message":"x","type":"InternalServerError","code":null}}\n\n',
    b'data: {"choices":[]}\n\ndata: {"error": {"message": "gone"}}\n\n',
    b'data: {"choices":[]}\r\n\r\ndata: {"error": {"message": "gone"}}\r\n\r\n',
    b'data: {}\n\ndata:{"error": "engine dead"}\n\n',
    b'data: {}\n\ndata: {"error": true}\n\n',
    b'data: {}\n\ndata: {"error": "false"}\n\n',
    b'data: {}\n\ndata: {"error": [{"message": "gone"}]}\n\n',
    b'data: {}\n\ndata: {"error": 1}\n\n',
    b'data:{"error":"Request failed during generation","error_type":"generation"}\n\n',
    b'data: {"error": {"code": 500, "details": [{"code": 404}]}}\n\n',
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
    b"data: {}\r\n\r\nevent:error\r\ndata: x\r\n\r\n",
    b"data: {}\n\nevent: error\n\n",
    b'data: {"error":{"code":400}}\n\ndata: {"error":{"code":500}}\n\n',
    b'data: {"error": {"code": 500}}\n\ndata: {"code": 400}\n\n',
]
NOT_TOLD = [
    b"",
    b'data: {"choices":[{"delta":{"content":"error"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"\\ndata: {\\"error\\": 1}"}}]}\n\n',
    b'data: {"error": null, "choices": []}\n\n',
    b'data: {"error":"","text":"x"}\n\n',
    b'data: {"error": {}, "text": "x"}\n\n',
    b'data: {"error": false, "text": "x"}\n\n',
    b'data:{"error":false}\n\n',
    b'data: {"error": 0}\r\n\r\n',
    b'data: {"error": []}\n\n',
    b'data: {"error": [ ], "more": { }}\n\n',
    b'data: {"error": { }}\n\n',
    b'data: {"error": {"message": "context too long", "code": 400}}\n\n',
    b'data: {"error":{"message":"too many","code":"429"}}\n\n',
    b'event: error\ndata: {"error": {"message": "too many", "code": 429}}\n\n',
    b"event: errors_seen\ndata: 1\n\n",
    b"data: event: error\n\ndata: it said event: error\r\n\r\n",
    b'data: it said data: {"error": 1}\n\n',
    b': {"error": 1}\n\n',
]


def found_in(parts: Sequence[bytes]) -> bool:
    """As the proxy asks: until it is found, with the end of the stream in the last part."""
    events = ErrorEvents()
    return any(events.is_in(part, at == len(parts)) for at, part in enumerate(parts, 1))


@pytest.mark.parametrize("payload", TOLD)
def test_an_event_that_tells_of_an_error_is_seen_wherever_it_is_cut(payload: bytes) -> None:
    assert ErrorEvents().is_in(payload, ended=False)  # not only at the end of the stream
    assert found_in([bytes([each]) for each in payload])
    for cut in range(len(payload) + 1):
        assert found_in([payload[:cut], payload[cut:]]), payload[:cut]
        assert found_in([b"data: {}\n\n" + payload[:cut], b"", payload[cut:], b"data: [DONE]\n\n"]), payload[:cut]


@pytest.mark.parametrize("payload", NOT_TOLD)
def test_what_a_model_writes_or_a_client_has_brought_about_is_none_wherever_it_is_cut(payload: bytes) -> None:
    assert not found_in([bytes([each]) for each in payload])
    for cut in range(len(payload) + 1):
        assert not found_in([payload[:cut], payload[cut:]]), payload[:cut]
        assert not found_in([b"data: {}\n\n" + payload[:cut], payload[cut:], b"data: [DONE]\n\n"]), payload[:cut]


@pytest.mark.parametrize(
    "payload",
    [
        b'data: {"error":{"message":"The input (9000 tokens) is longer than the context"}}\n\n',
        b'data:{"error":"Input validation error","error_type":"validation"}\n\n',
        b'data: {"error":{"type":"invalid_request_error","code":"context_length_exceeded"}}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error"}}\n\n',
        b'data: {"error": {"message": "' + b"the prompt " * 200 + b'", "code": 400}}\n\n',
    ],
)
def test_a_stream_that_begins_with_an_error_is_the_clients_unless_it_says_otherwise(payload: bytes) -> None:
    assert not found_in([payload])
    assert not found_in([bytes([each]) for each in payload])
    for cut in range(len(payload)):
        assert not found_in([payload[:cut], payload[cut:]]), payload[:cut]
    assert not found_in([payload, b"data: [DONE]\n\n"])


def test_an_event_without_an_end_is_told_of_with_the_end_of_the_stream_or_after_a_kilobyte() -> None:
    event = b'data: {}\n\ndata: {"error": {"message": "gone'
    assert found_in([event])
    events = ErrorEvents()
    assert not events.is_in(event, ended=False)
    assert not events.is_in(b"." * 900, ended=False)
    assert events.is_in(b"." * 200, ended=False)


_PIECES = st.sampled_from(
    [*TOLD, *NOT_TOLD, b"data: x", b"\n", b'data: {"error', b"event: err", b"or\n", b"." * 30]
)


@given(st.lists(_PIECES, max_size=8).map(b"".join), st.data())
def test_a_stream_says_the_same_however_it_is_cut_and_little_of_it_is_kept(
    stream: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    events, found = ErrorEvents(), False
    for at, part in enumerate(parts, 1):
        found = events.is_in(part, at == len(parts))
        assert len(events._kept) <= 1050
        if found:
            break
    assert found is found_in([stream])
