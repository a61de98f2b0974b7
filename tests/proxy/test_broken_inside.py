"""A fault of slb's own on the way to an upstream: put in here by a piece that raises in place of the real one."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from slb.balance import choice
from slb.balance.upstream import LiveUpstream
from slb.proxy import exchange
from slb.proxy.messages import request_start
from slb.proxy.request import Request
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Reply, ask, sends
from tests.proxy.slots_rig import Pod, queued, scores
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request's head can be made for the path `/p/broken`."""

    def or_breaks(request: Request, *more: Any) -> bytes:
        if request.line.path == b"/p/broken":
            raise RuntimeError("put in by a test")
        return request_start(request, *more)

    monkeypatch.setattr(exchange, "request_start", or_breaks)


async def broken(asked: "asyncio.Task[Reply]", proxy: Proxy) -> None:
    """It is answered by its name, and the log has the reason under its id."""
    with capture_logs() as logged:
        reply = await asked
    assert (reply.status, reply.reason) == (500, "internal")
    (line,) = [each for each in logged if each["event"] == "request_broke"]
    assert line["exc_info"]
    assert line["request_id"] == reply.one("X-Request-Id")
    assert line["request_id"] in [each["request_id"] for each in proxy.logged() if each["reason"] == "internal"]


@pytest.mark.usefixtures("breaks")
async def test_a_request_that_cannot_be_sent_over_a_new_connection_is_answered_by_name_and_leaves_nothing(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await proxies()
    proxy.route("/p", origin)
    await broken(asyncio.create_task(proxy.get("/p/broken")), proxy)
    await eventually(lambda: origin.connections == 1 and origin.open == 0, what="its connection is closed")
    assert proxy.inflight() == 0
    assert origin.requests == []


@pytest.mark.usefixtures("breaks")
async def test_so_is_one_over_a_connection_that_was_kept(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/p", origin)
    assert (await proxy.get("/p")).status == 200
    await broken(asyncio.create_task(proxy.get("/p/broken")), proxy)
    await eventually(lambda: origin.connections == 1 and origin.open == 0, what="its connection is closed")
    assert proxy.inflight() == 0
    assert [each.target for each in origin.requests] == ["/p"]


async def test_so_is_one_whose_next_attempt_finds_no_upstream_because_slb_fails(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_choice(*_: object) -> LiveUpstream:
        raise RuntimeError("put in by a test")

    monkeypatch.setattr(choice, "second_choice", broken_choice)
    proxy = await proxies()
    bad = await origins(sends(b"HTTP/1.1 503 X\r\nContent-Length: 3\r\n\r\nbad"))
    proxy.route("/", bad, await origins(bad.handle))
    await broken(asyncio.create_task(proxy.get("/")), proxy)
    assert proxy.inflight() == 0


@pytest.mark.usefixtures("breaks")
@pytest.mark.parametrize("keepalive", ["0", "64"])
async def test_so_is_one_that_has_waited_for_its_slot_and_the_slot_goes_to_the_next(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey, keepalive: str
) -> None:
    pod = Pod()
    origin = await origins(pod.handle)
    proxy = await proxies(redis=valkey.url, upstream_keepalive=keepalive)
    proxy.route("/p", origin, policy="least_inflight", max_inflight="1", when_full="queue")
    running = ask(proxy)
    await eventually(lambda: len(pod.running) == 1)
    waits = ask(proxy, "/p/broken")
    await eventually(lambda: queued(valkey) == 1)
    behind = ask(proxy, "/p/behind")
    await eventually(lambda: queued(valkey) == 2)
    pod.go_on.set()
    await broken(waits, proxy)
    assert [(await running).status, (await behind).status] == [200, 200]
    await eventually(lambda: scores(valkey) == {}, what="a slot was not given back")
