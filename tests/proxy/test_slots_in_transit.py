"""Slots of requests that are between Redis and here, one way or the other."""

import asyncio

from tests.proxy.harness import MakeOrigin, MakeProxy, Reply
from tests.proxy.slots_rig import Pod, scores
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def test_what_is_granted_here_during_a_full_batch_is_sent_next(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    proxy = await proxies(redis=valkey.url, patience=0.4)
    proxy.route("/p", origin, policy="least_inflight")
    assert (await proxy.get("/p/quick")).status == 200
    await eventually(lambda: scores(valkey) == {})
    lane = proxy.ledger.lanes["/p"]
    valkey.freeze()
    try:
        during: list[asyncio.Task[Reply]] = [asyncio.create_task(proxy.get("/p"))]
        await eventually(lambda: not lane.state.ready and lane.in_flight, what="all sent")
        during.append(asyncio.create_task(proxy.get("/p")))
        await eventually(lambda: len(pod.running) == 2)
        assert lane.in_flight
    finally:
        valkey.thaw()
    await eventually(lambda: lane.state.ready)
    await eventually(lambda: not lane.slots.builder.is_due(0.0) and not lane.in_flight)
    assert scores(valkey) == {origin.member: 2}
    pod.go_on.set()
    assert [(await each).status for each in during] == [200, 200]
    await eventually(lambda: scores(valkey) == {})
