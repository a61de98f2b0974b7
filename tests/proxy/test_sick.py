"""Servers that are sick while their checks pass: seen by their requests, left out, and counted for what they do."""

import asyncio

import pytest

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Request
from tests.proxy.slots_rig import Fleet, scores, serving
from tests.support.valkey import Valkey
from tests.support.waiting import eventually
from tests.support.witness import Recorder

ERROR = b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n"
FULL = b"HTTP/1.1 503 Full\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
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


@pytest.mark.parametrize("policy", ["least_inflight", "round_robin", "p2c", "least_local", "random"])
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


async def test_a_model_that_fails_as_a_whole_loses_no_upstream(judging: Fleet, origins: MakeOrigin) -> None:
    sick = [await origins(fails_at_once) for _ in range(3)]
    instances = await judging(2, *sick, policy="least_inflight")
    for _ in range(30):
        for proxy in instances:
            assert (await proxy.get("/p")).status == 500
    for proxy in instances:
        await eventually(lambda proxy=proxy: len(serving(proxy)) == 3, what="one is left out")  # type: ignore[misc]
        assert sum(proxy.metrics.health.ejections.values()) <= 1, "one that failed before the others were asked"


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
