"""Upstreams of `bench client`, one small server on many loopback addresses; it says its port in one line:
`python -m bench.figures.library_upstreams ADDRESS...`."""

import asyncio
import sys

import uvloop

from bench.upstream_server import BODY, UpstreamProtocol, reply


async def serve(addresses: list[str]) -> None:
    """The same port on each, until the process is told to stop."""
    loop = asyncio.get_running_loop()
    answers = {b"/": reply("client", BODY)}
    first = await loop.create_server(lambda: UpstreamProtocol(answers), addresses[0], 0)
    port = first.sockets[0].getsockname()[1]
    for address in addresses[1:]:
        await loop.create_server(lambda: UpstreamProtocol(answers), address, port)
    print(port, flush=True)
    await first.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1:]))
