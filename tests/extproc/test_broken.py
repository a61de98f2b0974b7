"""Replies that go wrong behind their heads: those that Envoy tells of in its access log, and streams in which an
engine tells of an error, where Envoy shows bodies."""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from google.protobuf.struct_pb2 import Struct
from grpc import aio

from slb.extproc.words import LOG_METHOD, LOG_SERVICE, NAMESPACE, ROUTE, SERVED
from slb.routing.availability import Availability
from slb.routing.passive import Passive
from tests.extproc.conftest import MakePicker
from tests.extproc.rig import INVALID, Envoy, Picker, Stream
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
AFTER = "upstream_reset_after_response_started"
CUT = AFTER + "{protocol_error}"
ERROR = b'data: {"error": {"message": "CUDA out of memory", "code": 500}}\n\n'


class Log:
    """The access log of one Envoy."""

    def __init__(self, address: str) -> None:
        self._channel = aio.insecure_channel(address)
        method: Any = self._channel.stream_unary(f"/{LOG_SERVICE}/{LOG_METHOD}")
        self.call: Any = method()

    async def tell(self, served: str, details: str = CUT, request_id: str = "an-id", **more: Any) -> None:
        """One entry, as Envoy 1.40 makes it."""
        message = StreamAccessLogsMessage()
        entry = message.http_logs.log_entry.add()
        entry.request.request_id = request_id
        entry.request.path, entry.request.request_method = "/p/x?secret=1", 3
        entry.response.response_code.value = more.get("status", 200)
        entry.response.response_code_details = details
        entry.common_properties.duration.FromMilliseconds(1500)
        lb = Struct()
        lb.update({SERVED: served, **({ROUTE: route} if (route := more.get("route", "/p")) else {})})
        entry.common_properties.metadata.filter_metadata[NAMESPACE].CopyFrom(lb)
        await soon(self.call.write(message.SerializeToString()))

    async def close(self) -> None:
        await self._channel.close()


@pytest_asyncio.fixture(loop_scope="session")
async def log(picker: Picker) -> AsyncIterator[Log]:
    made = Log(picker.address)
    yield made
    await made.close()


async def answered(envoy: Envoy, request_id: str, kind: str = "text/plain", status: int = 200) -> Stream:
    """A request whose answer has begun, at A."""
    stream = await envoy.ask(headers={"x-request-id": request_id})
    await stream.hosts()
    request = ProcessingRequest()
    for name, value in ((":status", str(status)), ("content-type", kind)):
        request.response_headers.headers.headers.add(key=name, raw_value=value.encode())
    request.metadata_context.filter_metadata[NAMESPACE][SERVED] = A
    await stream.show(request)
    await stream.answer()
    return stream


async def shown(stream: Stream, *pieces: bytes, ends: bool = True) -> None:
    for number, piece in enumerate(pieces, 1):
        request = ProcessingRequest()
        request.response_body.body = piece
        request.response_body.end_of_stream = ends and number == len(pieces)
        await stream.show(request)
        assert (await stream.answer()).WhichOneof("response") == "response_body"


def outcomes(picker: Picker) -> dict[tuple[Any, ...], int]:
    return dict(picker.metrics.traffic.requests())


def broken(picker: Picker) -> int:
    """Of the route."""
    return dict(picker.metrics.traffic.totals())["/p"][-1]


async def test_a_reply_that_envoy_says_broke_off_counts_as_one_failed_request(
    picker: Picker, envoy: Envoy, log: Log
) -> None:
    picker.route("/p", A)
    stream = await answered(envoy, "mine")
    await log.tell(A, request_id="mine")
    await eventually(lambda: picker.witness.failures == [(A, "upstream_reset")])
    await log.tell(A, request_id="mine")  # told once more
    await stream.end()
    await picker.at_rest()
    assert picker.witness.failures == [(A, "upstream_reset")]
    assert picker.witness.took == []
    assert picker.witness.held == [A]
    assert outcomes(picker) == {("/p", A, 200, "upstream_reset"): 1}
    assert broken(picker) == 1
    (line,) = picker.logged()
    assert (line["status"], line["reason"], line["upstream"]) == (200, "upstream_reset", A)
    assert line["detail"] == f"{A} broke its answer off"


async def test_one_of_another_process_or_that_has_ended_counts_once_more(
    picker: Picker, envoy: Envoy, log: Log
) -> None:
    picker.route("/p", A)
    stream = await answered(envoy, "mine")
    await stream.end()
    await picker.at_rest()
    assert picker.witness.took == [0.0]
    await log.tell(A, request_id="mine")
    await eventually(lambda: picker.witness.failures == [(A, "upstream_reset")])
    assert outcomes(picker) == {("/p", A, 200, ""): 1, ("/p", A, 200, "upstream_reset"): 1}
    assert broken(picker) == 1
    first, second = picker.logged()
    assert first["reason"] == ""
    assert {name: second[name] for name in ("method", "path", "reason", "route", "upstream", "duration")} == {
        "method": "POST",
        "path": "/p/x",
        "reason": "upstream_reset",
        "route": "/p",
        "upstream": A,
        "duration": 1.5,
    }


async def test_an_id_that_stands_for_another_request_ends_none(picker: Picker, envoy: Envoy, log: Log) -> None:
    picker.route("/p", A, B)
    stream = await answered(envoy, "mine")
    await log.tell(B, request_id="mine")
    await eventually(lambda: picker.witness.failures == [(B, "upstream_reset")])
    await stream.end()
    await picker.at_rest()
    assert outcomes(picker) == {("/p", A, 200, ""): 1, ("/p", B, 200, "upstream_reset"): 1}


@pytest.mark.parametrize(
    ("details", "more"),
    [
        ("via_upstream", {}),
        ("downstream_remote_disconnect", {}),
        (AFTER + "{local_reset}", {}),
        ("upstream_reset_before_response_started{connection_termination}", {}),
        ("stream_idle_timeout", {}),
        (CUT, {"status": 404}),
        (CUT, {"status": 500}),
        (CUT, {"status": 101}),
        (CUT, {"route": ""}),
        (CUT, {"route": "/other"}),
    ],
)
async def test_what_may_be_the_clients_doing_or_was_not_chosen_here_speaks_against_nobody(
    picker: Picker, log: Log, details: str, more: dict[str, Any]
) -> None:
    picker.route("/p", A, B)
    await log.tell(A, details, **more)
    await log.tell("10.9.9.9:1", CUT)
    await log.tell(B, AFTER + "{remote_reset}")
    await eventually(lambda: bool(picker.witness.failures))
    assert picker.witness.failures == [(B, "upstream_reset")]


async def test_a_tunnel_and_a_4xx_that_end_so_are_no_failures(picker: Picker, envoy: Envoy, log: Log) -> None:
    picker.route("/p", A, B)
    for status in (101, 404):
        stream = await answered(envoy, f"of-{status}", status=status)
        await log.tell(A, request_id=f"of-{status}")
        await log.tell(B, request_id="another")
        await eventually(lambda: bool(picker.witness.failures))
        await stream.end()
        await picker.at_rest()
        assert picker.witness.failures == [(B, "upstream_reset")]
        picker.witness.failures.clear()


async def test_the_answer_names_the_route_for_the_access_log(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A, strip_prefix="true")
    stream = await envoy.ask("/p/x")
    assert (await stream.answer()).dynamic_metadata[NAMESPACE][ROUTE] == "/p"


async def test_garbage_in_the_log_ends_its_own_stream_alone(picker: Picker, envoy: Envoy, log: Log) -> None:
    picker.route("/p", A)
    await soon(log.call.write(b"\xff\xff\xff"))
    assert await soon(log.call.code()) == INVALID
    assert (await envoy.get())[0] == A


async def test_a_drain_does_not_wait_for_logs(picker: Picker, log: Log) -> None:
    picker.route("/p", A)
    await log.tell(A)
    await eventually(lambda: bool(picker.witness.failures))
    before = time.monotonic()
    assert await soon(picker.server.drain(3600.0)) == 0
    assert time.monotonic() - before < 1800
    await soon(log.call.code())


async def test_one_that_breaks_its_answers_off_is_ejected(picker: Picker, envoy: Envoy, log: Log) -> None:
    health = picker.metrics.health
    clock = time.monotonic
    judge = Passive(picker.mirror, Availability(picker.mirror, health), health, clock, lambda: None)
    picker.server.context.witness = judge
    picker.route("/p", A, B, policy="round_robin")
    sick = picker.mirror.upstreams[A]
    for number in range(5):
        stream = await answered(envoy, f"request-{number}")
        await log.tell(A, request_id=f"request-{number}")
        await eventually(lambda many=number + 1: sick.failures == many or not sick.available)  # type: ignore[misc]
        await stream.end()
    assert dict(health.ejections) == {(A, "upstream_reset"): 1}


@pytest.mark.parametrize("pieces", [(b"data: {}\n\n" + ERROR,), (b"data: {}\n\n", ERROR[:20], ERROR[20:])])
async def test_an_error_in_a_stream_of_which_envoy_shows_the_body_is_a_failure(
    picker: Picker, envoy: Envoy, pieces: Sequence[bytes]
) -> None:
    picker.route("/p", A)
    stream = await answered(envoy, "mine", "text/event-stream; charset=utf-8")
    await shown(stream, *pieces, ends=False)
    await shown(stream, ERROR)  # once is enough
    await stream.end()
    await picker.at_rest()
    assert picker.witness.failures == [(A, "error_frame")]
    assert picker.witness.took == []
    assert outcomes(picker) == {("/p", A, 200, "error_frame"): 1}
    assert broken(picker) == 1
    assert picker.logged()[-1]["detail"] == f"{A} told of an error in its stream"


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("text/plain", (b"data: {}\n\n" + ERROR,)),
        ("text/event-stream", (b"data: {}\n\n", b'data: {"error": null}\n\n')),
        ("text/event-stream", (b'data: {"error": {"message": "the prompt is too long"}}\n\n',)),
    ],
)
async def test_what_is_no_error_of_the_engine_is_none(
    picker: Picker, envoy: Envoy, kind: str, pieces: Sequence[bytes]
) -> None:
    picker.route("/p", A)
    stream = await answered(envoy, "mine", kind)
    await shown(stream, *pieces)
    await stream.end()
    await picker.at_rest()
    assert picker.witness.failures == []
    assert picker.witness.took == [0.0]


async def test_what_a_cut_reply_held_is_free_in_redis(pickers: MakePicker, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url, name="a")
    picker.route("/p", A, max_inflight="1")
    envoy, log = picker.envoy(), Log(picker.address)
    stream = await answered(envoy, "mine")
    await log.tell(A, request_id="mine")
    await eventually(lambda: bool(picker.witness.failures))
    await stream.end()
    await picker.at_rest()
    await eventually(lambda: not valkey.admin.zscore("slb:{/p}:inflight", A))
    await log.close()
