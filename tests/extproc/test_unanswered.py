"""Clients that leave before their answer has begun, or still wait for it: whom that speaks against."""

import time
from collections.abc import Mapping

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from slb.balance.upstream import LiveUpstream
from slb.routing import witness
from slb.routing.availability import Availability
from slb.routing.passive import Passive
from slb.routing.table import Route
from tests.extproc.rig import Envoy, Picker, Stream, headers_of
from tests.support.waiting import eventually, soon
from tests.support.witness import Recorder

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
SHORT = {"content-length": "500"}


class Clock:
    """The real one, and what the test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Judge(Passive):
    """The judge that instances have. `asked`: upstreams it was asked about while a client waits."""

    def __init__(self, picker: Picker, clock: Clock) -> None:
        health = picker.metrics.health
        super().__init__(picker.mirror, Availability(picker.mirror, health), health, clock, lambda: None)
        self.asked: list[str] = []

    def unanswered(
        self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool, has_begun: bool = False
    ) -> bool:
        if not has_left:
            self.asked.append(upstream.member)
        return super().unanswered(upstream, sent_at, route, has_left)

    async def is_asked(self, member: str) -> None:
        """Return once it was asked of `member` twice more."""
        before = self.asked.count(member)
        await eventually(lambda: self.asked.count(member) >= before + 2, what=f"nobody asks of {member}")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def judge(picker: Picker, clock: Clock) -> Judge:
    """The picker's."""
    made = Judge(picker, clock)
    picker.server.context.clock, picker.server.context.witness = clock, made
    return made


async def sent(envoy: Envoy, headers: Mapping[str, str] | None = None, is_whole: bool = False) -> Stream:
    """A request that has its upstream."""
    stream, asked = envoy.open(), headers_of("/p", "POST", None, headers)
    asked.request_headers.end_of_stream = is_whole
    await stream.show(asked)
    assert await stream.hosts()
    return stream


def looking_often(picker: Picker, patch: pytest.MonkeyPatch) -> Route:
    """Let it be asked of what waits every few milliseconds."""
    route = picker.mirror.table.routes["/p"]
    patch.setattr(witness, "LOOK_AGAIN", 0.02)
    route.first_look = 0.02
    return route


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


async def test_the_time_of_a_reply_counts_from_when_all_of_the_request_was_there(
    picker: Picker, envoy: Envoy
) -> None:
    recorder, now = Recorder(), [1000.0]
    picker.server.context.witness, picker.server.context.clock = recorder, lambda: now[0]
    picker.route("/p", A)
    for headers, is_shown in ((SHORT, False), (None, False), (None, True)):
        stream = await sent(envoy, headers)
        now[0] += 40.0
        if is_shown:
            body = ProcessingRequest()
            body.request_body.end_of_stream = True
            await stream.show(body)
            await stream.answer()
        now[0] += 20.0
        await stream.replied(served=A, details="via_upstream")
        await stream.end()
    await picker.at_rest()
    assert recorder.took == [60.0, 0.0, 20.0]


async def both(envoy: Envoy) -> dict[str, Stream]:
    """A request at each of the two, under round_robin."""
    streams = {}
    for _ in range(2):
        stream = envoy.open()
        await stream.show(headers_of("/p", "POST", None, SHORT))
        streams[(await stream.hosts())[0]] = stream
    return streams


async def answered(stream: Stream, member: str) -> None:
    """With a status whose time does not count: the clock has gone on."""
    await stream.replied(404, served=member, details="via_upstream")
    await stream.end()


def serving(picker: Picker) -> set[str]:
    return {each.member for each in picker.mirror.table.routes["/p"].serving}


async def test_one_that_hangs_is_stuck_while_its_client_waits(
    picker: Picker, envoy: Envoy, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    picker.route("/p", A, B, policy="round_robin", eject_slow="false")
    looking_often(picker, monkeypatch)
    streams = await both(envoy)
    clock.ahead += 31
    await answered(streams.pop(B), B)
    await eventually(lambda: serving(picker) == {B}, what="left out")
    assert dict(picker.metrics.health.ejections) == {(A, "stuck"): 1}
    await answered(streams.pop(A), A)
    await picker.at_rest()


async def test_one_that_is_slow_is_left_out_while_its_client_waits(
    picker: Picker, envoy: Envoy, clock: Clock, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    picker.route("/p", A, B, policy="round_robin")
    route, slow = looking_often(picker, monkeypatch), picker.mirror.upstreams[A]
    for _ in range(40):
        for upstream in route.upstreams:
            judge.answered(upstream, route, 0.2, clock() - 0.2)
    for number in range(5):
        judge.answered(slow, route, 2.0, clock() - 100.0 + 10.0 * number)
    looking_often(picker, monkeypatch)
    streams = await both(envoy)
    assert serving(picker) == {A, B}
    clock.ahead += 3
    await answered(streams.pop(B), B)
    await eventually(lambda: serving(picker) == {B}, what="left out")
    assert dict(picker.metrics.health.ejections) == {(A, "slow"): 1}
    await answered(streams.pop(A), A)


@pytest.mark.parametrize("status", [200, 500])
async def test_it_is_asked_of_one_that_has_all_of_a_request_until_the_head_of_its_reply(
    picker: Picker, envoy: Envoy, judge: Judge, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    picker.route("/p", A, B, policy="round_robin", eject_slow="false")
    looking_often(picker, monkeypatch)
    first = envoy.open()
    await first.show(headers_of("/p", "POST"))  # more of it may be on its way
    (at,) = (await first.hosts())[:1]
    other = {A: B, B: A}[at]
    second = await sent(envoy, SHORT)
    await judge.is_asked(other)
    assert set(judge.asked) == {other}
    body = ProcessingRequest()
    body.request_body.end_of_stream = True
    await first.show(body)
    await first.answer()
    await judge.is_asked(at)
    await second.replied(status)
    asked = judge.asked.count(other)
    await judge.is_asked(at)
    assert judge.asked.count(other) == asked
    await first.end()
    await second.end()
    await picker.at_rest()
    third = await sent(envoy, SHORT)
    asked = judge.asked.count(other)
    await judge.is_asked(at)
    assert judge.asked.count(other) == asked
    await third.end()


async def test_one_that_may_be_in_the_middle_of_an_answer_is_not_stuck(
    picker: Picker, envoy: Envoy, clock: Clock, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with a single slot, say, where a request waits behind a long answer."""
    picker.route("/p", A, B, policy="round_robin", eject_slow="false")
    looking_often(picker, monkeypatch)
    upstreams = picker.mirror.upstreams

    def passes(seconds: float) -> None:
        clock.ahead += seconds
        upstreams[B].alive_at = clock()  # it is asked about as well, at any moment

    under_way, waiting, last = await both(envoy), await both(envoy), await both(envoy)
    await under_way[A].replied(served=A, details="via_upstream")
    await eventually(lambda: upstreams[A].unseen == 1)
    passes(60)
    await answered(under_way[B], B)
    await judge.is_asked(A)
    assert serving(picker) == {A, B}
    await under_way[A].end()
    await eventually(lambda: upstreams[A].unseen == 0)
    passes(20)
    await answered(waiting[B], B)
    await judge.is_asked(A)
    assert serving(picker) == {A, B}
    passes(20)
    await answered(last[B], B)
    await eventually(lambda: serving(picker) == {B}, what="left out")
    for stream in (waiting[A], last[A]):
        await stream.end()
