"""Upstreams that fail get no requests, and get them again when they are well."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random

import pytest
import pytest_asyncio

from slb.addresses import AddressRules
from slb.balance.eligible import condition
from slb.control.health_store import Answer, Ask, Outcome, Report
from slb.health.active import ActiveTiming
from slb.health.service import HealthService
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.support.waiting import eventually, within


class NoRedis:
    """Every instance goes by its own eyes."""

    up = False

    async def claim(self, asks: Sequence[Ask], room: int) -> list[Answer]:
        raise NotImplementedError

    async def report(self, reports: Sequence[Report]) -> list[Outcome]:
        raise NotImplementedError

    async def run(self, on_news: object) -> None:
        await asyncio.Event().wait()

    async def publish(self, about: str, news: str, number: int = 0) -> None: ...


class Patient(Origin):
    """An origin whose state the test sets: `ill` answers with that status, or with nothing where it is 0."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.ill: int | None = None
        self.checks: list[Request] = []

    async def answer(self, request: Request) -> None:
        if request.target == "/healthz":
            self.requests.remove(request)
            self.checks.append(request)
        if self.ill is None:
            await request.wire.send(OK)
        elif self.ill:
            await request.wire.send(b"HTTP/1.1 %d Ill\r\nContent-Length: 0\r\n\r\n" % self.ill)
        else:
            request.wire.reset()

    async def dies(self) -> None:
        """Nothing listens any more."""
        self._port = int(self.member.rpartition(":")[2])
        await self.stop()

    async def comes_back(self) -> None:
        """At the same port."""
        await self.start(self._port)


class Ward:
    """A proxy whose `/` leads to patients, with all of health but Redis."""

    def __init__(self, proxy: Proxy, patients: list[Patient]) -> None:
        self.proxy = proxy
        self.patients = patients
        no_redis = NoRedis()
        self.health = HealthService(
            proxy.mirror,
            proxy.metrics.health,
            no_redis,
            no_redis,
            AddressRules((), lambda: ()),
            Random(1),
            timing=ActiveTiming(first=0.02, settle=0.0),
            gap=0.005,
        )
        proxy.server.context.witness = self.health.passive

    def route(self, **settings: str) -> None:
        self.proxy.route("/", *self.patients, **settings)

    async def gets(self, times: int) -> list[int]:
        """The statuses of requests one after another, each on a connection of its own."""
        return [(await self.proxy.get("/x")).status for _ in range(times)]

    def serving(self) -> set[str]:
        return {each.member for each in self.proxy.mirror.table.routes["/"].serving}

    async def serves(self, *patients: Patient) -> None:
        wanted = {each.member for each in patients}
        await eventually(lambda: self.serving() == wanted, what=f"served by {wanted}")


async def began(wire: Wire) -> bool:
    """Whether a GET is answered with a 200, of which no more is read."""
    await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    first, _ = await wire.head()
    return first == "HTTP/1.1 200 OK"


MakeWard = Callable[..., Awaitable[Ward]]


@pytest_asyncio.fixture
async def ward(proxies: MakeProxy, origins: MakeOrigin) -> AsyncIterator[MakeWard]:
    """Makes wards: `await ward(3, eject_after="2")`."""
    tasks: list[asyncio.Task[None]] = []
    stopped: list[Patient] = []

    async def make(count: int, **settings: str) -> Ward:
        patients = [Patient() for _ in range(count)]
        for patient in patients:
            await patient.start()
        stopped.extend(patients)
        made = Ward(await proxies(trusted_proxies="127.0.0.0/8"), patients)
        made.route(**settings)
        tasks.append(asyncio.create_task(made.health.run()))
        return made

    yield make
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])
    for patient in stopped:
        await patient.stop()


async def test_a_dead_upstream_is_ejected_and_serves_again_when_it_is_back(ward: MakeWard) -> None:
    made = await ward(3, retries="0", eject_after="2", eject_time="300ms")
    dead, *others = made.patients
    assert await made.gets(3) == [200, 200, 200]
    await dead.dies()
    statuses = await made.gets(6)
    assert statuses.count(502) == 1
    assert made.serving() == {each.member for each in others}
    assert await made.gets(6) == [200] * 6
    await dead.comes_back()
    await made.serves(*made.patients)
    assert await made.gets(6) == [200] * 6
    assert len(dead.requests) >= 2
    assert made.proxy.metrics.health.ejections == {(dead.member, "refused"): 1}


@pytest.mark.parametrize(
    ("ill", "reason"), [(0, "upstream_reset"), (500, "500"), (502, "502"), (503, "503"), (504, "504")], ids=str
)
async def test_what_counts_as_a_failure(ward: MakeWard, ill: int, reason: str) -> None:
    made = await ward(2, retries="0", eject_after="2", eject_time="1m")
    made.patients[0].ill = ill
    await made.gets(8)
    assert made.serving() == {made.patients[1].member}
    assert made.proxy.metrics.health.ejections == {(made.patients[0].member, reason): 1}


@pytest.mark.parametrize(("own", "is_out"), [({}, True), ({"X_Request_Timeout": "50ms"}, False)])
async def test_no_answer_within_the_routes_deadline_is_a_failure_and_within_a_callers_own_is_none(
    ward: MakeWard, own: dict[str, str], is_out: bool
) -> None:
    async def hang(request: Request) -> None:
        await request.wire.reader.read()

    made = await ward(2, eject_after="2", eject_time="1m", request_timeout="50ms")
    frozen, well = made.patients
    frozen.handle = hang
    statuses = [(await made.proxy.get("/x", **own)).status for _ in range(8)]
    assert statuses.count(504) == (2 if is_out else 4)
    assert made.serving() == ({well.member} if is_out else {frozen.member, well.member})
    late = [line["detail"] for line in made.proxy.logged() if line["status"] == 504]
    assert all(frozen.member in detail for detail in late)


@pytest.mark.parametrize("ill", [400, 404, 501])
async def test_what_does_not(ward: MakeWard, ill: int) -> None:
    made = await ward(2, retries="0", eject_after="1", eject_time="1m")
    made.patients[0].ill = ill
    assert (await made.gets(8)).count(ill) == 4
    assert made.serving() == {each.member for each in made.patients}


async def test_few_failures_among_many_answers_eject_nobody(ward: MakeWard) -> None:
    made = await ward(2, retries="0", eject_after="2", eject_time="1m")
    ill = made.patients[0]
    for _ in range(3):
        ill.ill = 500
        await made.gets(2)
        ill.ill = None
        await made.gets(10)
    assert made.serving() == {each.member for each in made.patients}


@pytest.mark.parametrize("served", ["HTTP/1.0 200 OK", "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: chat"])
async def test_nor_do_they_among_tunnels_and_replies_without_a_length(ward: MakeWard, served: str) -> None:
    async def turn_about(request: Request) -> None:
        if len(ill.requests) % 6 == 1:
            await request.wire.send(b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n")
        else:
            await request.wire.send(f"{served}\r\n\r\n".encode())
            request.wire.close()

    made = await ward(2, retries="0", eject_after="2", eject_time="1m")
    ill = made.patients[0]
    ill.handle = turn_about
    for _ in range(36):
        wire = await made.proxy.connect()
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close, Upgrade\r\nUpgrade: chat\r\n\r\n")
        await wire.reader.read()
    assert len(ill.requests) == 18
    assert made.serving() == {each.member for each in made.patients}


async def test_an_upstream_still_dead_on_probation_costs_one_request_and_is_out_again(ward: MakeWard) -> None:
    made = await ward(2, retries="0", eject_after="3", eject_time="20ms", max_eject_time="1h")
    dead = made.patients[0]
    dead.ill = 503
    assert (await made.gets(6)).count(503) == 3
    await made.serves(*made.patients)
    assert (await made.gets(2)).count(503) == 1
    assert made.serving() == {made.patients[1].member}


@pytest.mark.parametrize("leaves", [True, False], ids=["its client leaves", "it goes on"])
async def test_a_stream_of_events_ends_the_probation_of_its_upstream(ward: MakeWard, leaves: bool) -> None:
    async def stream(request: Request) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await request.wire.send(head + b"6\r\ndata:\n\r\n")
        await request.wire.reader.read()

    made = await ward(2, retries="0", eject_after="2", eject_time="20ms", max_eject_time="1h")
    streaming, well = made.patients
    streaming.ill = 500
    while made.serving() != {well.member}:
        await made.gets(1)
    streaming.handle = stream
    await made.serves(streaming, well)
    wire = None
    streaming.requests.clear()
    while not streaming.requests:
        wire = await made.proxy.connect()
        assert await began(wire)
    assert wire is not None
    if leaves:
        wire.close()
        await made.proxy.at_rest()
    live = made.proxy.mirror.upstream(streaming.member)
    assert live is not None
    await eventually(lambda: not live.on_probation, what="it is on probation still")
    streaming.handle = streaming.answer
    while len(streaming.requests) < 2:  # one failure is none too many again
        await made.gets(1)
    assert made.serving() == {streaming.member, well.member}
    wire.close()


async def test_streams_that_all_break_do_not_keep_their_upstream_in(ward: MakeWard) -> None:
    async def break_off(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
        request.wire.reset()

    made = await ward(2, retries="0", eject_after="3", eject_time="20ms")
    breaking = made.patients[0]
    breaking.handle = break_off
    ejections = made.proxy.metrics.health.ejections
    async with within(10):
        while ejections[breaking.member, "upstream_reset"] < 2:
            wire = await made.proxy.connect()
            await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            await wire.ended()


async def test_with_a_retry_clients_see_nothing_of_a_dead_upstream(ward: MakeWard) -> None:
    made = await ward(3, retries="1", eject_after="2", eject_time="1m")
    await made.patients[0].dies()
    assert await made.gets(12) == [200] * 12
    assert made.proxy.metrics.health.ejections == {(made.patients[0].member, "refused"): 1}


async def test_the_last_upstream_is_never_ejected(ward: MakeWard) -> None:
    made = await ward(1, eject_after="1", eject_time="1h")
    made.patients[0].ill = 503
    assert await made.gets(4) == [503] * 4
    made.patients[0].ill = None
    assert await made.gets(2) == [200] * 2


async def test_the_state_of_an_upstream_is_unknown_until_a_request_or_a_check_has_been_there(
    ward: MakeWard,
) -> None:
    made = await ward(2, retries="0", eject_after="0")
    one, other = made.patients
    other.ill = 503

    def known() -> dict[str, str]:
        route = made.proxy.mirror.table.routes["/"]
        return {live.member: condition(live, route.settings) for live in route.upstreams}

    assert set(known().values()) == {"unchecked"}
    assert sorted(await made.gets(2)) == [200, 503]
    assert known() == {one.member: "up", other.member: "failing"}
    other.ill = None
    assert await made.gets(2) == [200, 200]
    assert known() == {one.member: "up", other.member: "up"}


async def test_an_upstream_its_checks_find_down_gets_no_request_until_they_pass(ward: MakeWard) -> None:
    made = await ward(2, health_path="/healthz", health_interval="20ms", eject_after="0")
    made.patients[0].ill = 500
    await made.serves(made.patients[1])
    assert await made.gets(4) == [200] * 4
    assert made.patients[0].requests == []
    made.patients[0].ill = None
    await made.serves(*made.patients)
    await made.gets(4)
    assert len(made.patients[0].requests) == 2
    first = made.patients[0].checks[0]
    assert (first.method, first.one("Host")) == ("GET", made.patients[0].member)


async def test_where_all_are_down_all_serve_and_it_is_called_panic(ward: MakeWard) -> None:
    made = await ward(2, health_path="/healthz", health_interval="20ms", eject_after="0")
    route = made.proxy.mirror.table.routes["/"]
    for patient in made.patients:
        patient.ill = 500
    await eventually(lambda: made.proxy.mirror.table.routes["/"].panic)
    assert route.serving == route.upstreams
    assert await made.gets(4) == [500] * 4
    assert [len(patient.requests) for patient in made.patients] == [2, 2]
    assert (made.proxy.metrics.health.panicking, made.proxy.metrics.health.panics) == ({"/"}, {"/": 1})
    for patient in made.patients:
        patient.ill = None
    await eventually(lambda: not made.proxy.mirror.table.routes["/"].panic)
    assert (made.proxy.metrics.health.panicking, made.proxy.metrics.health.panics) == (set(), {"/": 1})


async def test_without_panic_a_route_whose_upstreams_are_all_down_answers_with_that_reason(ward: MakeWard) -> None:
    made = await ward(2, health_path="/healthz", health_interval="20ms", eject_after="0", panic_threshold="0")
    for patient in made.patients:
        patient.ill = 500
    await made.serves()
    reply = await made.proxy.get("/x")
    assert (reply.status, reply.reason) == (503, "no_upstream")


async def test_where_all_that_are_left_have_failed_the_client_gets_the_failure(ward: MakeWard) -> None:
    made = await ward(2, retries="5", eject_after="2", eject_time="1m")
    for patient in made.patients:
        patient.ill = 0
    replies = [await made.proxy.get("/x") for _ in range(4)]
    assert {(each.status, each.reason) for each in replies} == {(502, "upstream_reset")}


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash", "least_inflight"])
async def test_in_a_panic_another_attempt_goes_to_an_upstream_that_is_up(ward: MakeWard, policy: str) -> None:
    made = await ward(4, policy=policy, eject_after="1", eject_time="1m", max_ejected="1")
    *dead, healthy = made.patients
    for each in dead:
        await each.dies()
    paths = map("/{}".format, itertools.count())
    while made.proxy.metrics.health.ejections.keys() != {(each.member, "refused") for each in dead}:
        await made.proxy.get(next(paths))
    assert made.serving() == {each.member for each in made.patients}
    healthy.requests.clear()
    assert [(await made.proxy.get(next(paths))).status for _ in range(30)] == [200] * 30
    assert len(healthy.requests) == 30
