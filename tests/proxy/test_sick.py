"""Servers that are sick while their checks pass: seen by their requests, left out, and counted for what they do."""

import asyncio
import time

import pytest

from slb.balance import pace
from slb.balance.policy import POLICIES
from slb.control import keys
from slb.routing import witness
from slb.upstreams.pool import Pool
from tests.proxy.harness import OK, Handler, MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request
from tests.proxy.slots_rig import Fleet, scores, serving
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until
from tests.support.witness import Recorder, stuck_soon

ERROR = b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n"
FULL = b"HTTP/1.1 503 Full\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
OVER_QUOTA = b"HTTP/1.1 429 No\r\nRetry-After: 300\r\nContent-Length: 0\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MOMENT = 0.02
"""Seconds that a healthy server takes."""


def event(data: bytes) -> bytes:
    line = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


async def answers_in_a_moment(request: Request) -> None:
    await request.body()
    await asyncio.sleep(MOMENT)
    await request.wire.send(OK)


async def fails_at_once(request: Request) -> None:
    await request.body()
    await request.wire.send(ERROR)


def hanging_until(go_on: asyncio.Event) -> Handler:
    async def hang(request: Request) -> None:
        await request.body()
        await go_on.wait()
        await request.wire.send(OK)

    return hang


@pytest.mark.parametrize(
    "policy", ["least_inflight", "round_robin", "p2c", "least_local", "random", "weighted_round_robin"]
)
async def test_one_of_three_that_fails_at_once_is_left_out_by_all_instances_after_few_failures(
    judging: Fleet, origins: MakeOrigin, valkey: Valkey, policy: str
) -> None:
    sick, *well = (
        await origins(fails_at_once),
        await origins(answers_in_a_moment),
        await origins(answers_in_a_moment),
    )
    instances = await judging(3, sick, *well, policy=policy, eject_time="1m", eject_slow="false")

    async def client(number: int) -> list[int]:
        wire = await instances[number % 3].connect()
        return [(await wire.get("/p")).status for _ in range(30)]

    statuses = [status for each in await asyncio.gather(*map(client, range(9))) for status in each]
    live = {each.member for each in well}
    await eventually(lambda: all(serving(proxy) == live for proxy in instances), what="left out everywhere")
    assert statuses.count(500) <= 25, "each instance has five of its own at most, and what was under way"
    await eventually(lambda: scores(valkey) == {}, what="a slot was not given back")


@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_of_requests_one_after_another_less_than_2_in_100_meet_one_of_three_that_fails_at_once(
    judging: Fleet, origins: MakeOrigin, policy: str
) -> None:
    """Under any policy: with a key, as many as there are keys of the sick one, until it is out."""
    sick, *well = await origins(fails_at_once), await origins(), await origins()
    settings = {"hash_key": "path"} if policy == "consistent_hash" else {}
    instances = await judging(2, sick, *well, policy=policy, eject_time="1m", eject_slow="false", **settings)
    wires = [await proxy.connect() for proxy in instances]
    statuses = [(await wires[number % 2].get(f"/p/{number}")).status for number in range(600)]
    assert set(statuses) == {200, 500}
    assert statuses.count(500) <= 10, "each instance has five of its own at most"
    assert all(serving(proxy) == {each.member for each in well} for proxy in instances)


class Returning:
    """A server that fails, until it is to be `tried`; then it answers once it may `go_on`. `most`: requests that it
    had at once until it had `served` one since."""

    def __init__(self) -> None:
        self.tried = self.served = False
        self.go_on = asyncio.Event()
        self.running = self.most = 0

    async def handle(self, request: Request) -> None:
        await request.body()
        if not self.tried:
            await request.wire.send(ERROR)
            return
        self.running += 1
        if not self.served:
            self.most = max(self.most, self.running)
        try:
            await self.go_on.wait()
        finally:
            self.running -= 1
        self.served = True
        await request.wire.send(OK)


@pytest.mark.parametrize(
    "settings",
    [{"policy": "round_robin"}, {"policy": "least_local"}, {"policy": "round_robin", "max_inflight": "20"}],
    ids=["round_robin", "least_local", "capped"],
)
async def test_after_its_ejection_a_server_has_one_request_at_a_time_of_all_instances_until_it_has_served(
    judging: Fleet, origins: MakeOrigin, settings: dict[str, str]
) -> None:
    server = Returning()
    sick, well, other = await origins(server.handle), await origins(), await origins()
    instances = await judging(3, sick, well, other, eject_time="0.5s", eject_slow="false", **settings)

    async def ask(proxy: Proxy) -> None:
        while not server.served:
            await proxy.get("/p")

    clients = [asyncio.create_task(ask(proxy)) for proxy in instances for _ in range(3)]
    await eventually(
        lambda: all(sick.member not in serving(proxy) for proxy in instances), what="it is left out by all"
    )
    server.tried = True
    await eventually(lambda: server.running > 0, what="nobody tries it")
    served = [len(each.requests) for each in (well, other)]
    await eventually(
        lambda: all(len(each.requests) >= before + 300 for each, before in zip((well, other), served, strict=True)),
        what="the others are asked meanwhile",
    )
    assert (server.running, server.most) == (1, 1)
    server.go_on.set()
    await asyncio.gather(*clients)
    assert server.most == 1
    await eventually(
        lambda: all(sick.member in serving(proxy) for proxy in instances), what="all instances let it back"
    )


async def test_few_failures_in_each_instance_are_enough_for_all(
    judging: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    sick, well = await origins(fails_at_once), await origins()
    instances = await judging(5, sick, well, policy="round_robin", eject_time="1m")
    for proxy in instances:
        await proxy.get("/p")
        await proxy.get("/p")  # one of the two
    await eventually(lambda: all(serving(proxy) == {well.member} for proxy in instances), what="left out by all")
    assert len(sick.requests) == 5


def is_slow(proxy: Proxy, origin: Origin, times: int) -> None:
    """What a face tells of answers that began after 2 s, one after another, a while ago."""
    route, upstream = proxy.mirror.table.routes["/p"], proxy.mirror.upstreams[origin.member]
    began = time.monotonic() - 100.0
    for number in range(times):
        proxy.server.context.witness.answered(upstream, route, 2.0, began + 10.0 * number)


def has_answers(proxy: Proxy) -> None:
    """Of all upstreams, in 200 ms."""
    route = proxy.mirror.table.routes["/p"]
    for _ in range(20):
        for upstream in route.upstreams:
            proxy.server.context.witness.answered(upstream, route, 0.2, time.monotonic() - 0.2)


async def test_two_instances_with_half_the_evidence_each_leave_out_a_slow_server_that_neither_would_alone(
    judging: Fleet, origins: MakeOrigin
) -> None:
    slow, *well = [await origins() for _ in range(4)]
    instances = await judging(2, slow, *well, policy="round_robin", eject_time="1m")
    for proxy in instances:
        has_answers(proxy)
        is_slow(proxy, slow, 3)
        assert len(serving(proxy)) == 4
    live = {each.member for each in well}
    await eventually(lambda: all(serving(proxy) == live for proxy in instances), what="left out by all")
    assert [set(each.metrics.health.ejections) for each in instances] == [{(slow.member, "slow")}] * 2


async def test_what_is_published_of_slow_requests_by_others_and_by_strangers(
    judging: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    slow, *well = [await origins() for _ in range(3)]
    (proxy,) = await judging(1, slow, *well, policy="round_robin", eject_time="1m")

    def publish(message: str) -> None:
        valkey.admin.publish(keys.HEALTH_CHANNEL, message)

    for ms in ("", "x", "-1", "1.5", "9" * 3000, "\u0661"):
        publish(f"/p {slow.member} a {ms} slow 500")
    publish(f"/p {slow.member} slow 500")
    publish("slow 500")
    publish(f"/p {slow.member} a 1000 crawling 500")  # a newer version's
    publish(f"/p {well[0].member} a 1000 slow 500")
    await eventually(lambda: serving(proxy) == {slow.member, well[1].member}, what="the last one counts")
    assert set(proxy.metrics.health.ejections) == {(well[0].member, "slow")}


async def test_a_first_byte_that_is_late_is_asked_for_when_the_route_says_and_later_and_later(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(request: Request) -> None:
        await request.wire.reader.read()

    monkeypatch.setattr(witness, "LOOK_AGAIN", 1e6)
    proxy, hung = await proxies(), await origins(hang)
    proxy.route("/p", hung)
    recorder = proxy.server.context.witness = Recorder()
    proxy.mirror.table.routes["/p"].first_look = 0.05
    wire = await proxy.connect()
    await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(recorder.left) >= 3)
    wire.reset()
    await eventually(lambda: hung.open == 0)


async def test_a_model_that_fails_as_a_whole_loses_no_upstream(judging: Fleet, origins: MakeOrigin) -> None:
    sick = [await origins(fails_at_once) for _ in range(3)]
    instances = await judging(2, *sick, policy="least_inflight")
    for _ in range(30):
        for proxy in instances:
            assert (await proxy.get("/p")).status == 500
    for proxy in instances:
        await eventually(lambda proxy=proxy: len(serving(proxy)) == 3, what="one is left out")  # type: ignore[misc]
        # One may be, while both others have not been asked, and a second one while the third has not.
        assert sum(proxy.metrics.health.ejections.values()) <= 2


async def test_a_server_that_says_it_is_full_is_set_aside_and_not_ejected(
    judging: Fleet, origins: MakeOrigin
) -> None:
    async def is_full(request: Request) -> None:
        await request.body()
        await request.wire.send(FULL)

    full, well = await origins(is_full), await origins()
    (proxy,) = await judging(1, full, well, policy="round_robin", retries="0")
    assert sorted([(await proxy.get("/p")).status for _ in range(12)])[-2:] in ([200, 503], [200, 200])
    assert len(full.requests) == 1
    assert serving(proxy) == {well.member}
    assert (proxy.metrics.health.ejections, proxy.metrics.health.busy) == ({}, {full.member: 1})


async def test_a_caller_over_its_quota_sets_no_server_aside_for_the_others(
    judging: Fleet, origins: MakeOrigin
) -> None:
    async def by_key(request: Request) -> None:
        await request.body()
        over = request.one("X-Key") == "over"
        await request.wire.send(OVER_QUOTA if over else OK)

    servers = [await origins(by_key) for _ in range(2)]
    (proxy,) = await judging(1, *servers, policy="round_robin")
    for _ in range(10):
        assert [(await proxy.get("/p")).status for _ in range(2)] == [200, 200]
        assert [(await proxy.get("/p", X_Key="over")).status for _ in range(2)] == [429, 429]
    assert serving(proxy) == {each.member for each in servers}
    assert proxy.metrics.health.busy == {}


async def test_a_server_that_never_answers_is_stuck_for_all_and_serves_again_once_a_probe_is_answered(
    judging: Fleet, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck_soon(monkeypatch)
    monkeypatch.setattr(pace, "_STUCK_TIMES", 1.0)
    go_on = asyncio.Event()
    sick, well = await origins(hanging_until(go_on)), await origins()
    instances = await judging(2, sick, well, policy="round_robin", eject_time="0.5s", eject_slow="false")
    hanging = [asyncio.create_task(instances[0].get("/p")) for _ in range(2)]
    await eventually(lambda: len(sick.requests) == 1, what="the sick one has no request")

    async def others_are_served() -> bool:
        for proxy in instances:
            asked = asyncio.create_task(proxy.get("/p"))
            hanging.append(asked)
            await asyncio.wait([asked], timeout=0.1)
        return all(serving(proxy) == {well.member} for proxy in instances)

    await until(others_are_served, bool, what="it is left out by both")
    ejected = [dict(proxy.metrics.health.ejections) for proxy in instances]
    assert {key for each in ejected for key in each} == {(sick.member, "stuck")}
    go_on.set()
    assert {reply.status for reply in await asyncio.gather(*hanging)} == {200}

    async def serves_again() -> bool:
        assert {(await proxy.get("/p")).status for proxy in instances} == {200}
        return all(len(serving(proxy)) == 2 for proxy in instances)

    await until(serves_again, bool, what="it is back")


async def test_the_only_server_of_a_route_that_never_answers_is_said_to_be_stuck_until_its_first_byte(
    judging: Fleet, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck_soon(monkeypatch)
    go_on = asyncio.Event()
    sick = await origins(hanging_until(go_on))
    (proxy,) = await judging(1, sick)
    asked = asyncio.create_task(proxy.get("/p"))
    shown = proxy.metrics.health.stuck
    await eventually(lambda: shown == {sick.member: 1}, what="it is said to be stuck")
    assert serving(proxy) == {sick.member}
    go_on.set()
    assert (await asked).status == 200
    await eventually(lambda: shown == {sick.member: 0}, what="it is stuck no more")
    noted = [(each.what, each.subject) for each in proxy.metrics.changes.take(100)]
    assert noted == [("stuck", sick.member), ("stuck_ended", sick.member)]


async def waits_until_stuck(proxy: Proxy, sick: Origin) -> "asyncio.Task[Reply]":
    """A request that has waited there for so long that the server is said to be stuck."""
    waits = asyncio.create_task(proxy.get("/p"))
    await eventually(lambda: proxy.metrics.health.stuck == {sick.member: 1}, what="it is said to be stuck")
    return waits


async def is_logged(proxy: Proxy, reason: str, origin: Origin) -> None:
    """Of all requests one has ended, and so."""
    await eventually(lambda: bool(proxy.logged()), what="its end is logged")
    assert [(each["reason"], each["upstream"]) for each in proxy.logged()] == [(reason, origin.member)]


@pytest.mark.parametrize("body", [b"", b"late"], ids=["no body", "a body that comes behind its head"])
async def test_clients_that_leave_a_server_that_is_stuck_are_hurt_long_before_they_would_be_patient(
    judging: Fleet, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    stuck_soon(monkeypatch)
    monkeypatch.setattr(witness, "LEAST_WAIT", 0.2)
    go_on, asked = asyncio.Event(), list[bytes]()

    async def hang(request: Request) -> None:
        asked.append(await request.body())
        await go_on.wait()
        await request.wire.send(OK)

    sick = await origins(hang)
    (proxy,) = await judging(1, sick)
    waits = await waits_until_stuck(proxy, sick)
    wire = await proxy.connect()
    await wire.send(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body))
    await eventually(lambda: len(sick.requests) == 2, what="the server has its head")
    await wire.send(body)
    await eventually(lambda: len(asked) == 2, what="the server has all of it")
    await asyncio.sleep(0.3)
    wire.close()
    await is_logged(proxy, "client_gave_up", sick)
    totals = dict(proxy.metrics.traffic.totals())["/p"]
    assert (sum(totals), totals[-1]) == (1, 1), "it is a failure of the route"
    assert proxy.counted()[499, "client_gave_up"] == 1
    go_on.set()
    assert (await waits).status == 200


async def test_a_client_that_leaves_while_a_stuck_server_takes_no_connection_is_hurt_by_it(
    judging: Fleet, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck_soon(monkeypatch)
    monkeypatch.setattr(witness, "LEAST_WAIT", 0.2)
    go_on, connecting = asyncio.Event(), asyncio.Event()
    sick = await origins(hanging_until(go_on))
    (proxy,) = await judging(1, sick)
    waits = await waits_until_stuck(proxy, sick)

    async def connect(self: Pool, timeout: float) -> None:
        connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Pool, "connect", connect)
    wire = await proxy.connect()
    await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n")
    await connecting.wait()
    await asyncio.sleep(0.3)
    wire.close()
    await is_logged(proxy, "client_gave_up", sick)
    go_on.set()
    assert (await waits).status == 200


async def test_a_client_that_leaves_a_server_that_is_stuck_at_once_says_nothing(
    judging: Fleet, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck_soon(monkeypatch)
    go_on = asyncio.Event()
    sick = await origins(hanging_until(go_on))
    (proxy,) = await judging(1, sick)
    waits = await waits_until_stuck(proxy, sick)
    monkeypatch.setattr(witness, "LEAST_WAIT", 60.0)
    wire = await proxy.connect()
    await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(sick.requests) == 2, what="the server has it")
    wire.close()
    await is_logged(proxy, "client_gone", sick)
    go_on.set()
    assert (await waits).status == 200


async def test_streams_that_break_off_are_failures_of_their_route_and_leave_the_server_out(
    judging: Fleet, origins: MakeOrigin
) -> None:
    async def break_off(request: Request) -> None:
        await request.wire.send(STREAM + event(b"1"))
        request.wire.reset()

    sick, well = await origins(break_off), await origins()
    (proxy,) = await judging(1, sick, well, policy="round_robin", eject_time="1m")
    for _ in range(10):
        wire = await proxy.connect()
        await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        await wire.reader.read()
    assert serving(proxy) == {well.member}
    totals = dict(proxy.metrics.traffic.totals())["/p"]
    assert (totals[1], totals[-1]) == (5, 5)
    assert proxy.counted()[200, "upstream_reset"] == 5


async def test_a_stream_that_tells_of_an_error_is_a_failure_though_it_ends_well(
    judging: Fleet, origins: MakeOrigin
) -> None:
    async def tell(request: Request) -> None:
        await request.wire.send(STREAM + event(b'{"choices": []}'))
        await request.wire.send(event(b'{"error": {"message": "engine died", "code": 500}}') + b"0\r\n\r\n")

    sick, well = await origins(tell), await origins()
    (proxy,) = await judging(1, sick, well, policy="round_robin", eject_time="1m")
    replies = [await proxy.get("/p") for _ in range(10)]
    assert {each.status for each in replies} == {200}
    assert sum(b"engine died" in each.body for each in replies) == 5, "it is passed on as it came"
    assert serving(proxy) == {well.member}
    assert proxy.counted()[200, "error_frame"] == 5
    assert {line["reason"] for line in proxy.logged() if line["upstream"] == sick.member} == {"error_frame"}


@pytest.mark.parametrize("is_chunked", [True, False])
@pytest.mark.parametrize("end", [b"\n\n", b""], ids=["ended", "the stream ends first"])
async def test_an_error_that_comes_in_two_reads_is_a_failure_all_the_same(
    proxies: MakeProxy, origins: MakeOrigin, is_chunked: bool, end: bytes
) -> None:
    told, read = (b'data: {}\n\ndata: {"err', b'or": {"message": "engine died"}}' + end), asyncio.Event()

    async def tell(request: Request) -> None:
        wire, head = request.wire, STREAM if is_chunked else STREAM.replace(b"Transfer-Encoding: chunked\r\n", b"")
        first, second = (b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part for part in told)
        await wire.send(head + first)
        await read.wait()
        await wire.send(second + (b"0\r\n\r\n" if is_chunked else b""))
        if not is_chunked:
            wire.close()

    proxy, sick = await proxies(), await origins(tell)
    proxy.route("/p", sick)
    wire = await proxy.connect()
    await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    await wire.reader.readuntil(told[0])
    read.set()
    assert told[1] in await wire.reader.read()
    assert proxy.counted()[200, "error_frame"] == 1
    assert proxy.logged()[-1]["reason"] == "error_frame"


async def test_a_client_that_leaves_without_an_answer_is_told_of_and_one_that_uploads_is_not(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def hang(request: Request) -> None:
        await request.wire.reader.read()

    proxy, hung = await proxies(), await origins(hang)
    proxy.route("/p", hung)
    witness = proxy.server.context.witness = Recorder()
    for lines, told in ((b"", 1), (b"Content-Length: 5\r\n", 1)):
        wire = await proxy.connect()
        await wire.send(b"POST /p HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n")
        await eventually(lambda: hung.open > 0)
        wire.reset()
        await eventually(lambda: hung.open == 0)
        assert len(witness.left) == told


async def test_a_slot_where_a_request_failed_at_once_is_kept_as_long_as_usual(
    judging: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    gate = asyncio.Event()

    async def fails_when_told(request: Request) -> None:
        await request.body()
        await request.wire.send(ERROR if gate.is_set() else OK)

    sick, well = await origins(fails_when_told), await origins()
    (proxy,) = await judging(1, sick, well, policy="least_inflight", eject_after="1000")
    for _ in range(20):
        await proxy.get("/p")
    pace = proxy.server.context.witness.judge.pace(proxy.mirror.table.routes["/p"])
    pace.usual = 3600.0  # which counts for 5 s
    gate.set()
    while (await proxy.get("/p")).status == 200:
        pass
    await eventually(lambda: set(scores(valkey)) == {sick.member}, what="its slot is not kept")
    await eventually(lambda: scores(valkey) == {}, what="it is never given back")
