"""Whoever reaches the port: streams that say nothing, too many of them, messages out of order, long ids."""

from typing import Any

import grpc
import orjson
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from slb.loading import load_settings
from tests.extproc.rig import INVALID, EndOfStream, Envoy, Picker, header
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

A = "10.0.0.1:8000"
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_stream_that_says_nothing_is_ended(pickers: Any) -> None:
    picker = await pickers(head_timeout="200ms")
    picker.route("/p", A)
    silent = picker.envoy().open()
    with pytest.raises(EndOfStream) as ended:
        await silent.answer()
    assert ended.value.args == (FULL,)
    assert picker.metrics.extproc.turned_away == {"silent": 1}
    await eventually(lambda: picker.server.streams == 0)
    assert picker.logged() == []


async def test_a_request_may_take_longer_than_its_head(pickers: Any) -> None:
    picker = await pickers(head_timeout="200ms")
    picker.route("/p", A)
    envoy = picker.envoy()
    stream = await envoy.ask()
    await stream.hosts()
    with pytest.raises(EndOfStream):
        await envoy.open().answer()  # as long as that takes
    await stream.replied()
    await stream.end()
    assert [each["status"] for each in picker.logged()] == [200]


async def test_streams_are_limited_and_those_that_are_there_go_on(pickers: Any) -> None:
    picker = await pickers(max_connections="2")
    picker.route("/p", A)
    envoy = picker.envoy()
    streams = [await envoy.ask() for _ in range(2)]
    for stream in streams:
        await stream.hosts()
    one_more = envoy.open()
    with pytest.raises(EndOfStream) as ended:
        await one_more.answer()
    assert ended.value.args == (FULL,)
    assert picker.metrics.extproc.turned_away == {"full": 1}
    for stream in streams:
        await stream.replied()
        await stream.end()
    assert await envoy.get() == [A]


async def test_the_limit_is_that_of_the_settings_of_now(pickers: Any) -> None:
    picker = await pickers(max_connections="1")
    picker.route("/p", A)
    envoy = picker.envoy()
    held = await envoy.ask()
    await held.hosts()
    picker.server.reconfigure(load_settings({"max_connections": "0"}, {}))
    assert await envoy.get() == [A]
    await held.end()


@pytest.mark.parametrize("kind", ["response_headers", "request_body", "response_trailers", ""])
async def test_what_does_not_begin_with_a_request_is_refused(picker: Picker, envoy: Envoy, kind: str) -> None:
    picker.route("/p", A)
    stream, request = envoy.open(), ProcessingRequest()
    if kind:
        getattr(request, kind).SetInParent()
    await stream.show(request)
    with pytest.raises(EndOfStream) as ended:
        await stream.answer()
    assert ended.value.args == (INVALID,)
    assert (await envoy.get())[0] == A


@pytest.mark.parametrize("given", ["x" * 1_000_000, "two words", "umlaut-\u00e4", ""])
async def test_an_id_that_cannot_be_repeated_is_replaced(picker: Picker, envoy: Envoy, given: str) -> None:
    picker.route("/p", A)
    refusal = await envoy.refusal("/nowhere", headers={"x-request-id": given})
    used = header(refusal, "x-request-id")
    assert len(used) == 32
    assert orjson.loads(refusal.body)["request_id"] == used
    assert [each["request_id"] for each in picker.logged()] == [used]


async def test_a_megabyte_of_headers_is_looked_through_and_goes_on(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    many = {f"x-{number}": "v" * 90 for number in range(10_000)}
    assert (await envoy.get(headers=many))[0] == A
