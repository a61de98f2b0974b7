"""Slots that the whole fleet counts: several proxies on one real Valkey, and upstreams that see who comes."""

import asyncio

from tests.proxy.harness import MakeOrigin, Request, ask
from tests.proxy.slots_rig import Fleet, Pod, queued, scores
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience


async def test_an_instance_sees_what_another_has_in_flight(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pods = [Pod(), Pod()]
    a, b = [await origins(pod.handle) for pod in pods]
    one, two = await fleet(2, a, b, policy="least_inflight")
    first = ask(one)
    await eventually(lambda: len(pods[0].running) + len(pods[1].running) == 1)
    second = ask(two)
    await eventually(lambda: len(pods[0].running) == len(pods[1].running) == 1, what="both went to one upstream")
    assert scores(valkey) == {a.member: 1, b.member: 1}
    for pod in pods:
        pod.go_on.set()
    assert {(await first).status, (await second).status} == {200}
    await eventually(lambda: scores(valkey) == {}, what="a slot was not given back")


async def test_a_cap_is_strict_whatever_the_number_of_instances(fleet: Fleet, origins: MakeOrigin) -> None:
    pod = Pod()
    pod.go_on.set()
    origin = await origins(pod.handle)
    instances = await fleet(3, origin, policy="least_inflight", max_inflight="1", when_full="queue")
    replies = await asyncio.gather(*(ask(instances[number % 3]) for number in range(30)))
    assert [reply.status for reply in replies] == [200] * 30
    assert pod.most == 1


async def test_a_cap_holds_under_round_robin_too(fleet: Fleet, origins: MakeOrigin) -> None:
    pods = [Pod(), Pod()]
    made = [await origins(pod.handle) for pod in pods]
    one, two = await fleet(2, *made, policy="round_robin", max_inflight="1")
    waiting = [ask(one), ask(two)]
    await eventually(lambda: [len(pod.running) for pod in pods] == [1, 1])
    assert (await one.get("/p")).reason == "pool_saturated"
    for pod in pods:
        pod.go_on.set()
    assert [(await each).status for each in waiting] == [200, 200]


async def test_when_all_is_full_a_request_is_shed_with_retry_after(fleet: Fleet, origins: MakeOrigin) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    one, two = await fleet(2, origin, policy="least_inflight", max_inflight="2")
    waiting = [ask(one), ask(two)]
    await eventually(lambda: len(pod.running) == 2)
    for proxy in (one, two):
        reply = await proxy.get("/p")
        assert (reply.status, reply.reason) == (503, "pool_saturated")
        assert reply.one("Retry-After") is not None
        assert proxy.metrics.queue.shed["pool_saturated"] == 1
    pod.go_on.set()
    assert [(await each).status for each in waiting] == [200, 200]


async def test_a_queue_is_first_come_first_served_across_instances(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    instances = await fleet(2, origin, policy="least_inflight", max_inflight="1", when_full="queue")
    replies = []
    for number in range(6):
        replies.append(ask(instances[number % 2], f"/p/{number}"))
        if number == 0:
            await eventually(lambda: len(pod.running) == 1)
        else:
            await eventually(lambda number=number: queued(valkey) == number)  # type: ignore[misc]
    pod.go_on.set()
    assert [(await each).status for each in replies] == [200] * 6
    assert pod.served == [f"/p/{number}" for number in range(6)]
    positions = [proxy.metrics.queue.positions["/p"] for proxy in instances]
    assert [sum(each[name] for each in positions) for name in ("count", "sum")] == [5, 0 + 1 + 2 + 3 + 4]


async def test_one_too_many_for_the_queue_is_refused_by_name(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    one, two = await fleet(2, origin, policy="least_inflight", max_inflight="1", when_full="queue", queue_limit="1")
    running = ask(one)
    await eventually(lambda: len(pod.running) == 1)
    waiting = ask(two)
    await eventually(lambda: queued(valkey) == 1)
    assert (await one.get("/p")).reason == "queue_full"
    pod.go_on.set()
    assert [(await running).status, (await waiting).status] == [200, 200]


async def test_a_request_that_waits_too_long_is_refused_by_name_and_frees_its_place(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    soon = f"{patience(50):.0f}ms"  # the first request asks Redis too, and may have to wait for a core
    (one,) = await fleet(
        1, origin, policy="least_inflight", max_inflight="1", when_full="queue", queue_timeout=soon
    )
    running = ask(one)
    await eventually(lambda: len(pod.running) == 1)
    reply = await one.get("/p")
    assert (reply.status, reply.reason) == (503, "queue_timeout")
    assert reply.one("Retry-After") is not None
    await eventually(lambda: queued(valkey) == 0, what="its place was not freed")
    pod.go_on.set()
    assert (await running).status == 200


async def test_a_client_that_leaves_the_queue_frees_its_place(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    one, two = await fleet(2, origin, policy="least_inflight", max_inflight="1", when_full="queue")
    running = ask(one)
    await eventually(lambda: len(pod.running) == 1)
    leaver = await two.connect()
    await leaver.send(b"GET /p/left HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: queued(valkey) == 1)
    behind = ask(one, "/p/behind")
    await eventually(lambda: queued(valkey) == 2)
    leaver.reset()
    await eventually(lambda: queued(valkey) == 1, what="its place was not freed")
    pod.go_on.set()
    assert [(await running).status, (await behind).status] == [200, 200]
    assert pod.served == ["/p", "/p/behind"]


async def test_a_client_that_leaves_its_upstream_frees_the_slot_for_a_waiting_request(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    one, two = await fleet(2, origin, policy="least_inflight", max_inflight="1", when_full="queue")
    leaver = await one.connect()
    await leaver.send(b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(pod.running) == 1)
    waiting = ask(two, "/p/next")
    await eventually(lambda: queued(valkey) == 1)
    leaver.reset()
    await eventually(lambda: "/p/next" in [request.target for request in pod.running])
    pod.go_on.set()
    assert (await waiting).status == 200


async def test_classes_are_served_by_weight_and_unknown_ones_with_the_least(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    instances = await fleet(
        2,
        origin,
        policy="least_inflight",
        max_inflight="1",
        when_full="queue",
        priorities="critical=3,batch=1",
        priority_header="X-Class",
    )
    replies = [ask(instances[0])]
    await eventually(lambda: len(pod.running) == 1)
    for number in range(8):
        name = "critical" if number >= 4 else "whatever"
        replies.append(ask(instances[number % 2], f"/p/{name}", X_Class=name))
        await eventually(lambda number=number: queued(valkey) == number + 1)  # type: ignore[misc]
    pod.go_on.set()
    assert [(await each).status for each in replies] == [200] * 9
    assert pod.served[1:6].count("/p/critical") >= 3
    assert "/p/whatever" in pod.served[1:6]  # no class starves


async def test_a_retry_goes_elsewhere_and_the_slot_of_the_first_attempt_is_free(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    async def broken(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

    bad, good = await origins(broken), await origins()
    (one,) = await fleet(1, bad, good, policy="least_inflight", max_inflight="1")
    while not bad.requests:  # the first of equals is drawn
        assert (await one.get("/p")).status == 200
    await eventually(lambda: scores(valkey) == {})


async def test_a_body_that_comes_while_its_request_waits_arrives_whole(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    (one,) = await fleet(1, origin, policy="least_inflight", max_inflight="1", when_full="queue")
    running = ask(one)
    await eventually(lambda: len(pod.running) == 1)
    body = bytes(range(256)) * 1024
    wire = await one.connect()
    sending = asyncio.create_task(
        wire.send(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    )
    await eventually(lambda: queued(valkey) == 1)
    pod.go_on.set()
    assert (await wire.reply()).status == 200
    await sending
    assert (await running).status == 200
    assert origin.requests[-1].whole == body


async def test_a_tunnel_holds_its_slot_until_it_ends(fleet: Fleet, origins: MakeOrigin, valkey: Valkey) -> None:
    async def switch(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        await request.wire.reader.read()

    origin = await origins(switch)
    (one,) = await fleet(1, origin, policy="least_inflight", max_inflight="1")
    wire = await one.connect()
    await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    assert (await wire.head())[0].startswith("HTTP/1.1 101")
    assert scores(valkey) == {origin.member: 1}
    assert (await one.get("/p")).reason == "pool_saturated"
    wire.close()
    await eventually(lambda: scores(valkey) == {})


async def test_with_redis_frozen_requests_are_decided_here_and_sent_to_it_afterwards(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    one, two = await fleet(2, origin, patience=0.4, policy="least_inflight", max_inflight="2")
    before = ask(one)
    await eventually(lambda: len(pod.running) == 1)
    assert (await two.get("/p/quick")).status == 200  # now it counts the other
    await eventually(lambda: scores(valkey) == {origin.member: 1})
    two.metrics.redis.up = True  # as a watcher would set it, of which there is none here
    assert two.metrics.redis.answers
    valkey.freeze()
    try:
        during = ask(two)  # two instances share two slots: one each
        await eventually(lambda: len(pod.running) == 2)
        assert two.gates.modes() == [("/p", False)]
        await eventually(lambda: not two.metrics.redis.answers, what="local")
        assert (await two.get("/p")).reason == "pool_saturated"
    finally:
        valkey.thaw()
    await eventually(lambda: two.gates.modes() == [("/p", True)], what="it did not return to Redis")
    assert two.metrics.redis.answers
    await eventually(lambda: scores(valkey) == {origin.member: 2}, what="its held slots were not sent")
    pod.go_on.set()
    assert [(await before).status, (await during).status] == [200, 200]
    await eventually(lambda: scores(valkey) == {})


async def test_a_request_that_waits_when_redis_dies_is_served_here(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    (one,) = await fleet(1, origin, patience=0.4, policy="least_inflight", max_inflight="1", when_full="queue")
    replies = [ask(one, "/p/0")]
    await eventually(lambda: len(pod.running) == 1)
    for number in (1, 2):
        replies.append(ask(one, f"/p/{number}"))
        await eventually(lambda number=number: queued(valkey) == number)  # type: ignore[misc]
    valkey.kill()
    pod.go_on.set()
    assert [(await each).status for each in replies] == [200] * 3
    assert pod.served == ["/p/0", "/p/1", "/p/2"]
    assert pod.most == 1


async def test_an_upstream_with_more_slots_gets_more(fleet: Fleet, origins: MakeOrigin) -> None:
    pods = [Pod(), Pod()]
    small, large = [await origins(pod.handle) for pod in pods]
    (one,) = await fleet(1, small, large, policy="least_inflight", max_inflight="1")
    one.mirror.update({}, {large.member: {"slots": "3"}})
    replies = [ask(one) for _ in range(4)]
    await eventually(lambda: [len(pod.running) for pod in pods] == [1, 3])
    assert (await one.get("/p")).reason == "pool_saturated"
    for pod in pods:
        pod.go_on.set()
    assert [(await each).status for each in replies] == [200] * 4


async def test_routes_of_one_pool_share_its_slots(fleet: Fleet, origins: MakeOrigin) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    settings = {"policy": "least_inflight", "max_inflight": "1", "pool": "/gpus"}
    one, two = await fleet(2, origin, **settings)
    two.route("/q", origin, **settings)
    running = ask(one)
    await eventually(lambda: len(pod.running) == 1)
    assert (await two.get("/q")).reason == "pool_saturated"
    pod.go_on.set()
    assert (await running).status == 200


async def test_a_route_that_has_left_a_pool_leaves_no_candidates_there(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    """They may have had a cap, and without one releases may linger."""
    origin = await origins()
    (one,) = await fleet(1, origin, policy="least_inflight", pool="/gpus")
    for settings in ({"max_inflight": "1", "pool": "/gpus"}, {"max_inflight": "1"}):
        one.route("/q", origin, policy="least_inflight", **settings)
        for path in ("/p", "/q"):
            assert (await one.get(path)).status == 200
    lane = one.ledger.lanes["/gpus"]
    assert lane.slots.views.is_capped
    one.gates.take_down()
    assert not lane.slots.views.is_capped
    assert len(lane.slots.views) == 1
