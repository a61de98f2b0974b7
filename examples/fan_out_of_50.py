"""A batch of 50 calls, each to the upstream that has its product warm; twice, so that the second finds it there.

    python examples/fan_out_of_50.py 127.0.0.1:9001 127.0.0.1:9002 127.0.0.1:9003

At most 20 are out at once: the others wait in the buffer, in order, and go as those end.
"""

import asyncio
import sys
from collections import Counter

from aiohttp import ClientError

import slb.client

PRODUCTS = range(50)


async def fetch(session: slb.client.Session, product: int) -> str:
    """Which upstream answered."""
    async with session.get(f"/products/{product}", key=f"product-{product}") as response:
        response.raise_for_status()
        await response.read()
        return response.headers["X-Upstream"]


async def batch(session: slb.client.Session) -> list[str]:
    """All products at once. The batch waits for its slowest call."""
    return await asyncio.gather(*(fetch(session, product) for product in PRODUCTS))


async def main(upstreams: list[str]) -> None:
    async with slb.client.Session(
        upstreams=upstreams,
        settings={"policy": "consistent_hash", "balance_factor": 2},
        max_outbound=100,
        buffer_from=20,
        buffer_timeout=10,
    ) as session:
        first, second = await batch(session), await batch(session)
        same = sum(one == two for one, two in zip(first, second, strict=True))
        print(f"{len(first)} products by {dict(Counter(first))}")
        print(f"asked again, {same} of them by the upstream that has them warm")
        print(f"{session.metrics.ring.requests[200]} calls, {sum(session.metrics.retries.values())} sent again")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: fan_out_of_50.py UPSTREAM..., such as 127.0.0.1:9001")
    try:
        asyncio.run(main(sys.argv[1:]))
    except (slb.client.ConfigError, ClientError) as error:
        sys.exit(f"fan_out_of_50: {error}")
