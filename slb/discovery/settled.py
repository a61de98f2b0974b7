"""What a source says, once it has stood for as long as the writer waits: for those who follow a source alone."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping

from slb.discovery.found import Found, Source
from slb.discovery.pending import Attributes, Pending, WriteTiming, wanted_of
from slb.lifecycle import set_within


async def settled(source: Source, timing: WriteTiming) -> AsyncIterator[dict[str, Attributes]]:
    """The first set at once, then each that is to hold from now on."""
    said: list[Found] = []
    has_news = asyncio.Event()
    hearing = asyncio.create_task(_hear(source, said, has_news))
    pending, now = Pending(timing), asyncio.get_running_loop().time
    known: Mapping[str, Attributes] = {}
    is_first = True
    try:
        while True:
            await set_within(has_news, None if pending.due == math.inf else pending.due - now())
            has_news.clear()
            if hearing.done():
                hearing.result()
                return
            if not said:
                continue
            wanted = wanted_of(said[0])
            pending.look(now(), known, wanted, said[0].is_gone)
            after = wanted if is_first else pending.now_due(now(), known, wanted)
            if after is not None and (is_first or after != known):
                known, is_first = after, False
                pending.look(now(), known, wanted, said[0].is_gone)
                yield dict(known)
    finally:
        hearing.cancel()
        await asyncio.wait([hearing])


async def _hear(source: Source, said: list[Found], has_news: asyncio.Event) -> None:
    try:
        async for found in source.follow():
            said[:] = [found]
            has_news.set()
    finally:
        has_news.set()
