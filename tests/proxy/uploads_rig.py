"""Uploads that stand still."""

import asyncio
import contextlib

from tests.proxy.harness import MakeOrigin, MakeProxy, Proxy, Request, Wire
from tests.support.waiting import within

MEGABYTE = bytes(1 << 20)


async def uploading(proxies: MakeProxy, origins: MakeOrigin, hold: asyncio.Event) -> tuple[Proxy, Wire]:
    """A client that has begun a large upload to an upstream which reads none of it and waits for `hold`."""

    async def never_read(request: Request) -> None:
        await hold.wait()

    proxy = await proxies()
    proxy.route("/", await origins(never_read))
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
    return proxy, wire


async def sent_within(seconds: float, wire: Wire) -> int:
    """How many megabytes can be sent in that time."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        async with within(seconds):
            while True:
                await wire.send(MEGABYTE)
                sent += 1
    return sent
