"""Instances with a writer of discovery, and sources that say what a test tells them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random

from slb.control.discovered import Discovered, Writers
from slb.discovery.found import Asked, Found, Member
from slb.discovery.pending import WriteTiming
from slb.discovery.writer import LeaseTiming, Writer
from slb.observe.discovery import DiscoveryCounts, SourceShown
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

QUICK = WriteTiming(debounce=0.05, drain=0.01, empty_grace=60.0)
SHORT = LeaseTiming(lease=2.0, beat=0.05, first=0.3)


class Told:
    """A source that says what it is told: the last, and then each."""

    def __init__(self, path: str = "/a", name: str = "kubernetes/ml/flux:http") -> None:
        self.path = path
        self.name = name
        self.asked = Asked()
        self.followers = 0
        self._said: Found | None = None
        self._news = asyncio.Condition()

    async def say(self, members: Mapping[str, Member] | Iterable[str], is_gone: bool = False) -> None:
        named = members if isinstance(members, Mapping) else dict.fromkeys(members, Member())
        async with self._news:
            self._said = Found(named, is_gone)
            self._news.notify_all()

    async def follow(self) -> AsyncIterator[Found]:
        self.followers += 1
        seen: Found | None = None
        try:
            while True:
                async with self._news:
                    await self._news.wait_for(lambda before=seen: self._said is not before)
                    seen = self._said
                assert seen is not None
                yield seen
        finally:
            self.followers -= 1


class Instance:
    """One that runs; `stop` ends it without giving anything back, as a crash does."""

    def __init__(self, follower: Follower, name: str, timing: WriteTiming, lease: LeaseTiming) -> None:
        connection, mirror = follower.connection, follower.mirror
        self.follower = follower
        self.counts = DiscoveryCounts()
        self.discovered = Discovered(connection, mirror, follower.watcher.on_written)
        self.writers = writers = Writers(connection, f"id-{name}", name)
        self.writer = Writer(self.discovered, writers, mirror, self.counts, Random(1), timing, lease)
        self._task: asyncio.Task[None] | None = None

    def start(self, *sources: Told) -> None:
        self.writer.follow(sources)
        self._task = asyncio.create_task(self.writer.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    @property
    def source(self) -> SourceShown:
        return self.writer.shown()[0]

    async def writes(self) -> None:
        await eventually(lambda: self.source.writes, what="it has the lease")


@asynccontextmanager
async def instance(
    valkey: Valkey, *sources: Told, name: str = "one", timing: WriteTiming = QUICK, lease: LeaseTiming = SHORT
) -> AsyncIterator[Instance]:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        made = Instance(follower, name, timing, lease)
        made.start(*sources)
        try:
            yield made
        finally:
            await made.stop()
            made.writer.follow([])
