"""What replies say of upstreams; and what this process says of itself."""

import asyncio
from functools import partial
from typing import Any

import pytest
import structlog

from slb.extproc.health import LIVENESS, NOT_SERVING, READINESS, SERVING
from slb.extproc.words import SERVICE
from tests.extproc.rig import INTERNAL, INVALID, EndOfStream, Envoy, Picker
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

A = "10.0.0.1:8000"
RESET = "upstream_reset_before_response_started"


@pytest.mark.parametrize(
    ("status", "details", "why", "is_refused"),
    [
        (200, "via_upstream", "", False),
        (404, "via_upstream", "", False),
        (500, "via_upstream", "500", False),
        (501, "via_upstream", "", False),
        (502, "", "502", False),
        (504, "response_timeout", "upstream_timeout", False),
        (
            503,
            RESET + "{remote_connection_failure|delayed_connect_error:_Connection_refused}",
            "upstream_connect",
            True,
        ),
        (503, RESET + "{connection_timeout}", "upstream_connect", False),
        (503, RESET + "{connection_termination}", "upstream_reset", False),
        (502, RESET + "{protocol_error}", "upstream_protocol", False),
        (503, "overflow", "", False),
        (503, "no_healthy_upstream", "", False),
    ],
)
async def test_a_failure_counts_against_the_upstream_that_made_it(
    picker: Picker, envoy: Envoy, status: int, details: str, why: str, is_refused: bool
) -> None:
    picker.route("/p", A)
    (upstream,) = picker.mirror.upstreams.values()
    upstream.failures = 3
    stream = await envoy.ask()
    await stream.hosts()
    await stream.replied(status, served=A, details=details)
    await stream.end()
    assert picker.witness.failures == ([(A, why)] if why else [])
    assert picker.witness.refusals == ([A] if is_refused else [])
    is_served = not why and details == "via_upstream"
    assert (upstream.failures == 0) is is_served
    assert (upstream.answered_at > 0) is is_served


async def test_it_lives_before_it_is_ready_and_is_ready_with_its_first_table(picker: Picker, envoy: Envoy) -> None:
    assert await envoy.health(LIVENESS) == SERVING
    for service in ("", READINESS, SERVICE):
        assert await envoy.health(service) == NOT_SERVING
    picker.route("/p", A)
    for service in ("", READINESS, SERVICE):
        await until(partial(envoy.health, service), lambda found: found == SERVING)


async def test_one_that_drains_says_so_and_lets_its_streams_end(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    await until(lambda: envoy.health(SERVICE), lambda found: found == SERVING)
    stream = await envoy.ask()
    await stream.hosts()
    picker.server.begin_drain()
    await until(lambda: envoy.health(SERVICE), lambda found: found == NOT_SERVING)
    assert await envoy.health(LIVENESS) == SERVING
    assert (await envoy.get())[0] == A  # it still answers
    draining = asyncio.create_task(picker.server.drain(60.0))
    await stream.replied()
    assert not draining.done()
    await stream.end()
    assert await draining == 0
    assert picker.inflight() == {}


async def test_what_does_not_end_in_time_is_cut_off_and_gives_its_slot_back(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    stream = await envoy.ask()
    await stream.hosts()
    assert await picker.server.drain(0.1) == 1
    await eventually(lambda: picker.inflight() == {})
    with pytest.raises(EndOfStream):
        await stream.answer()


async def test_garbage_ends_its_own_stream_alone(picker: Picker, envoy: Envoy) -> None:
    picker.route("/p", A)
    call: Any = envoy._channel.stream_stream(f"/{SERVICE}/Process")()
    await call.write(b"\xff\xff\xff")
    assert await call.code() == INVALID
    assert (await envoy.get())[0] == A


async def test_a_bug_ends_one_stream_is_logged_and_holds_nothing(
    picker: Picker, envoy: Envoy, monkeypatch: pytest.MonkeyPatch
) -> None:
    picker.route("/p", A)

    def broken(*_: object) -> tuple[()]:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("slb.extproc.exchange.attempts", broken)
    with structlog.testing.capture_logs() as logs:  # it may break before it is read
        stream = await envoy.ask()
        with pytest.raises(EndOfStream) as ended:
            await stream.answer()
    assert ended.value.args == (INTERNAL,)
    assert [each["event"] for each in logs] == ["extproc_broke"]
    await eventually(lambda: picker.inflight() == {})
