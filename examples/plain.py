"""The plain use: a session in the place of aiohttp's, and paths in the place of URLs.

    slb upstream --listen 127.0.0.1:9001 & slb upstream --listen 127.0.0.1:9002 &
    python examples/plain.py 127.0.0.1:9001 127.0.0.1:9002

With `Session(redis_url="redis://...")` the upstreams are those that slb's routes have.
"""

import asyncio
import sys

from aiohttp import ClientError

import slb.client


async def main(upstreams: list[str]) -> None:
    settings = {"policy": "consistent_hash"}
    async with slb.client.Session(upstreams=upstreams, settings=settings) as session:
        for number in range(1, 6):
            async with session.get(f"/products/{number}", key=str(number)) as response:
                answer = await response.json()
                print(f"{response.status} product {number} by {response.headers['X-Upstream']}: {answer['path']}")
        print(f"by the ring: {dict(session.metrics.ring.requests)}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: plain.py UPSTREAM..., such as 127.0.0.1:9001")
    try:
        asyncio.run(main(sys.argv[1:]))
    except (slb.client.ConfigError, ClientError) as error:
        sys.exit(f"plain: {error}")
