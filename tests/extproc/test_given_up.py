"""Clients that leave before their answer has begun: whom that speaks against."""

import time
from collections.abc import Mapping

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from slb.routing.availability import Availability
from slb.routing.passive import Passive
from tests.extproc.rig import Envoy, Picker, Stream, headers_of
from tests.support.waiting import eventually, soon

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
SHORT = {"content-length": "500"}


class Clock:
    """The real one, and what the test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(picker: Picker) -> Clock:
    """Of a picker whose witness is the judge that instances have."""
    made, health = Clock(), picker.metrics.health
    judge = Passive(picker.mirror, Availability(picker.mirror, health), health, made, lambda: None)
    picker.server.context.clock, picker.server.context.witness = made, judge
    return made


async def sent(envoy: Envoy, headers: Mapping[str, str] | None = None, is_whole: bool = False) -> Stream:
    """A request that has its upstream."""
    stream, asked = envoy.open(), headers_of("/p", "POST", None, headers)
    asked.request_headers.end_of_stream = is_whole
    await stream.show(asked)
    assert await stream.hosts()
    return stream


async def left(picker: Picker, stream: Stream) -> str:
    """The reason that is counted for one whose client leaves now."""
    before = len(picker.logged())
    await stream.end()
    await eventually(lambda: len(picker.logged()) == before + 1)
    line = picker.logged()[-1]
    assert line["status"] == 499
    return str(line["reason"])


def failures(picker: Picker) -> list[str]:
    """Upstreams that have evidence against them."""
    return sorted(each.member for each in picker.mirror.upstreams.values() if each.failures)


@pytest.mark.parametrize(("headers", "is_whole"), [(None, True), (SHORT, False)], ids=["no body", "a short body"])
async def test_a_client_that_has_waited_for_long_speaks_against_the_upstream_and_another_does_not(
    picker: Picker, envoy: Envoy, clock: Clock, headers: Mapping[str, str] | None, is_whole: bool
) -> None:
    picker.route("/p", A)
    stream = await sent(envoy, headers, is_whole)
    clock.ahead += 5
    assert await left(picker, stream) == "client_gone"
    assert failures(picker) == []
    stream = await sent(envoy, headers, is_whole)
    clock.ahead += 11
    assert await left(picker, stream) == "client_gave_up"
    assert failures(picker) == [A]
    counted = {(each[-2], each[-1]) for each, _ in picker.metrics.traffic.requests()}
    assert counted == {(499, "client_gone"), (499, "client_gave_up")}
    assert picker.inflight() == {}


async def test_envoy_may_reset_the_stream_as_well(picker: Picker, envoy: Envoy, clock: Clock) -> None:
    picker.route("/p", A)
    stream = await sent(envoy, SHORT)
    clock.ahead += 11
    stream.reset()
    await eventually(lambda: [each["reason"] for each in picker.logged()] == ["client_gave_up"])
    assert failures(picker) == [A]


async def test_one_that_hangs_is_ejected_by_the_clients_that_leave_it(
    picker: Picker, envoy: Envoy, clock: Clock
) -> None:
    picker.route("/p", A, B, policy="round_robin")
    for _ in range(40):
        stream = await sent(envoy, SHORT)
        if A in picker.inflight():
            clock.ahead += 11
            await left(picker, stream)
        else:
            await stream.replied(served=B, details="via_upstream")
            await stream.end()
        await picker.at_rest()
    assert [each.member for each in picker.mirror.table.routes["/p"].serving] == [B]


@pytest.mark.parametrize("length", ["", "65537", "9" * 5000, "-1"])
async def test_a_body_that_may_still_be_on_its_way_speaks_against_nobody(
    picker: Picker, envoy: Envoy, clock: Clock, length: str
) -> None:
    picker.route("/p", A)
    stream = await sent(envoy, {"content-length": length} if length else None)
    clock.ahead += 60
    assert await left(picker, stream) == "client_gone"
    assert failures(picker) == []


async def test_where_bodies_are_shown_the_client_waits_from_the_end_of_its_body_on(
    picker: Picker, envoy: Envoy, clock: Clock
) -> None:
    picker.route("/p", A)
    for waits, reason in ((9, "client_gone"), (11, "client_gave_up")):
        stream = await sent(envoy)
        clock.ahead += 60
        body = ProcessingRequest()
        body.request_body.end_of_stream = True
        await stream.show(body)
        await stream.answer()
        clock.ahead += waits
        assert await left(picker, stream) == reason


async def test_one_that_has_the_head_of_its_answer_speaks_against_nobody(
    picker: Picker, envoy: Envoy, clock: Clock
) -> None:
    picker.route("/p", A)
    stream = await sent(envoy, SHORT)
    await stream.replied()
    clock.ahead += 60
    await stream.end()
    await picker.at_rest()
    assert picker.logged()[-1]["status"] == 200
    assert failures(picker) == []


async def test_what_slb_cuts_off_as_it_stops_speaks_against_nobody(
    picker: Picker, envoy: Envoy, clock: Clock
) -> None:
    picker.route("/p", A)
    await sent(envoy, SHORT)
    clock.ahead += 60
    assert await soon(picker.server.drain(0.0)) == 1
    await picker.at_rest()
    assert picker.logged()[-1]["reason"] == "client_gone"
    assert failures(picker) == []
