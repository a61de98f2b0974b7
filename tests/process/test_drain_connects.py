"""An instance that is stopped still connects to upstreams: for waiting requests, and for second attempts."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from tests.process.commands import Commands, Serving
from tests.process.serving import in_flight, until_all_ready, until_draining
from tests.proxy.harness import OK, Handler, MakeOrigin, Origin, Request
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience, until_found

ANEW = {"SLB_UPSTREAM_KEEPALIVE": "0", "SLB_ACCESS_LOG": "all"}
"""Each request goes over a connection that is made for it."""


@pytest.fixture
async def origins() -> AsyncIterator[MakeOrigin]:
    made: list[Origin] = []

    async def make(handle: Handler) -> Origin:
        made.append(await Origin(handle).start())
        return made[-1]

    yield make
    for origin in made:
        await origin.stop()


async def serve(
    slb: Commands, valkey: Valkey, workers: int, settings: tuple[str, ...], *origins: Origin
) -> Serving:
    """With `/p` that leads to all of `origins`, in every worker."""
    valkey.admin.sadd("slb_p", *(origin.member for origin in origins))
    for setting in settings:
        name, value = setting.split("=")
        valkey.admin.hset("slb:route:/p", name, value)
    serving = await slb.until_ready(await slb.serve("--workers", str(workers), redis=valkey.url, env=ANEW))
    await until_all_ready(slb, serving)
    return serving


def ask(slb: Commands, serving: Serving, count: int) -> list["asyncio.Task[tuple[int, str]]"]:
    return [asyncio.create_task(slb.get(f"{serving.url}/p")) for _ in range(count)]


@pytest.mark.parametrize("workers", [1, 2])
async def test_requests_that_wait_in_a_queue_are_served_after_sigterm(
    slb: Commands, valkey: Valkey, origins: MakeOrigin, workers: int
) -> None:
    async def handle(request: Request) -> None:
        await go_on.wait()
        await request.wire.send(OK)

    go_on = asyncio.Event()
    origin = await origins(handle)
    settings = ("policy=least_inflight", "max_inflight=1", "when_full=queue")
    serving = await serve(slb, valkey, workers, settings, origin)
    replies = ask(slb, serving, 5)
    await eventually(lambda: valkey.admin.hlen("slb:{/p}:queue:tickets") == 4, what="four wait")
    os.kill(serving.process.pid, signal.SIGTERM)
    await until_draining(slb, serving)
    await closed(serving)
    go_on.set()
    assert [(await each)[0] for each in replies] == [200] * 5
    assert await serving.process.ended() == 0


async def test_a_request_that_fails_after_sigterm_is_sent_again_elsewhere(
    slb: Commands, valkey: Valkey, origins: MakeOrigin
) -> None:
    async def fails_once(request: Request) -> None:
        first = not failed.is_set()
        failed.set()
        await go_on.wait()
        if first:
            request.wire.reset()
        else:
            await request.wire.send(OK)

    failed, go_on = asyncio.Event(), asyncio.Event()
    pair = [await origins(fails_once) for _ in range(2)]
    serving = await serve(slb, valkey, 1, ("retries=1",), *pair)
    replies = ask(slb, serving, 1)
    await in_flight(slb, serving, 1)
    os.kill(serving.process.pid, signal.SIGTERM)
    await until_draining(slb, serving)
    await closed(serving)
    go_on.set()
    assert [(await each)[0] for each in replies] == [200]
    assert sum(len(each.requests) for each in pair) == 2
    assert await serving.process.ended() == 0


async def closed(serving: Serving) -> None:
    """Until no client can connect: the listener is closed."""
    host, _, port = serving.url.removeprefix("http://").partition(":")

    async def is_refused() -> bool:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), patience(0.2))
        except ConnectionRefusedError:
            return True
        except TimeoutError:  # new connections are held before it closes
            return False
        writer.close()
        return False

    await until_found(is_refused)
