"""Requests on their way to a slot while their route changes under them."""

import asyncio

from slb.balance.asking import Turn
from slb.balance.upstream import Handle
from slb.errors import Reason
from slb.routing.table import Route
from tests.proxy.harness import MakeOrigin, MakeProxy, Proxy
from tests.proxy.slots_rig import Pod, queued
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon


class Asker:
    """A request at the gate, that records its answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def admitted(self, handle: Handle) -> None:
        self.answer.set_result(handle.upstream.member)
        handle.release()

    def rejected(self, reason: Reason, detail: str) -> None:
        self.answer.set_result(reason.name)


async def asked(proxy: Proxy, route: Route, *tried: str, turn: Turn | None = None) -> str:
    asker = Asker()
    proxy.gates.of(route).enter(route, tuple(proxy.mirror.upstreams[each] for each in tried), (), turn, asker)
    return await soon(asker.answer)


async def test_a_request_by_a_route_of_an_older_table_gets_an_upstream_of_the_newest(
    proxies: MakeProxy, valkey: Valkey
) -> None:
    proxy = await proxies(redis=valkey.url)
    proxy.route("/p", "127.0.0.1:1", policy="least_inflight")
    old = proxy.mirror.table.routes["/p"]
    proxy.route("/p", "127.0.0.1:2", policy="least_inflight")
    assert await asked(proxy, old) == "127.0.0.1:2"


async def test_a_request_by_a_route_that_is_gone_is_refused(proxies: MakeProxy, valkey: Valkey) -> None:
    proxy = await proxies(redis=valkey.url)
    for policy in ("least_inflight", "round_robin"):
        proxy.route("/p", "127.0.0.1:1", policy=policy, max_inflight="1")
        old = proxy.mirror.table.routes["/p"]
        proxy.mirror.update({"/p": None}, {})
        assert await asked(proxy, old) == "no_upstream"


async def test_a_request_that_waits_when_redis_dies_does_not_get_an_upstream_that_has_left_since(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    pods = [Pod(), Pod()]
    old, new = [await origins(pod.handle) for pod in pods]
    proxy = await proxies(redis=valkey.url, patience=0.4)
    proxy.route("/p", old, policy="least_inflight", max_inflight="1", when_full="queue")
    running = asyncio.create_task(proxy.get("/p"))
    await eventually(lambda: len(pods[0].running) == 1)
    waiting = asyncio.create_task(proxy.get("/p"))
    await eventually(lambda: queued(valkey) == 1)
    valkey.kill()
    proxy.route("/p", new, policy="least_inflight", max_inflight="1", when_full="queue")
    pods[0].go_on.set()
    assert (await running).status == 200
    await eventually(lambda: len(pods[1].running) == 1)
    pods[1].go_on.set()
    assert (await waiting).status == 200


async def test_a_request_that_has_tried_all_upstreams_does_not_wait(proxies: MakeProxy, valkey: Valkey) -> None:
    proxy = await proxies(redis=valkey.url)
    proxy.route("/p", "127.0.0.1:1", policy="least_inflight", max_inflight="1", when_full="queue")
    route = proxy.mirror.table.routes["/p"]
    for turn in (None, Turn("", 1, 100)):
        assert await asked(proxy, route, "127.0.0.1:1", turn=turn) == "no_upstream"


async def test_a_waiting_request_is_refused_when_only_upstreams_it_has_tried_are_left(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    pod = Pod()
    tried, other = "127.0.0.1:1", await origins(pod.handle)
    proxy = await proxies(redis=valkey.url)
    settings = {"policy": "least_inflight", "max_inflight": "1", "when_full": "queue"}
    proxy.route("/p", other, **settings)
    running = asyncio.create_task(proxy.get("/p"))
    await eventually(lambda: len(pod.running) == 1)
    proxy.route("/p", tried, other, **settings)
    waiting = asyncio.create_task(asked(proxy, proxy.mirror.table.routes["/p"], tried, turn=Turn("", 1, 100)))
    await eventually(lambda: queued(valkey) == 1)
    proxy.route("/p", tried, **settings)
    assert await waiting == "no_upstream"
    await eventually(lambda: queued(valkey) == 0, what="its place is free")
    pod.go_on.set()
    assert (await running).status == 200
