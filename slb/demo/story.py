"""The acts of the demo, and what must be true of each."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from slb.demo.fleet import Fleet
from slb.demo.screen import Claim, Phase, PlainScreen
from slb.demo.traffic import Account, Traffic

COUNTED = 120
"""Requests of an exact count: divisible by two instances times three or four upstreams."""

NAMES = ("a", "b", "c", "d", "e")


class Story:
    """`tell` is called once; `phases` and `claims` are its results."""

    def __init__(self, fleet: Fleet, traffic: Traffic, screen: PlainScreen) -> None:
        self._fleet = fleet
        self._traffic = traffic
        self._screen = screen
        self.phases: list[Phase] = []
        self.claims: list[Claim] = []

    async def tell(self) -> None:
        """All acts in order."""
        await self._three_upstreams()
        await self._one_joins()
        await self._one_leaves()
        await self._redis_dies()
        await self._redis_is_back()

    async def _three_upstreams(self) -> None:
        phase = self._begin("three upstreams, two instances, one DNS name", "three upstreams")
        await self._fleet.join("a", "b", "c")
        self._screen.note("a, b and c started and registered themselves through the first instance")
        before = [await self._fleet.requests_of(instance) for instance in self._fleet.instances]
        await self._count(phase, "abc")
        after = [await self._fleet.requests_of(instance) for instance in self._fleet.instances]
        served = [end - start for start, end in zip(before, after, strict=True)]
        half = COUNTED // len(served)
        self._claim("each instance served half of the requests", served == [half] * len(served), f"{served}")

    async def _one_joins(self) -> None:
        async with self._act("an upstream joins", "one joins", "abcd"):
            await self._fleet.join("d")
            self._screen.note(
                "d registered through the first instance while requests went on; both instances use it"
            )

    async def _one_leaves(self) -> None:
        async with self._act("an upstream leaves", "one leaves", "bcd"):
            code = await self._fleet.leave("a")
            self._screen.note("a got SIGTERM: it deregistered, finished what it had, and ended")
            self._claim("a ended in order", code == 0, f"exit code {code}")

    async def _redis_dies(self) -> None:
        async with self._act("Redis is killed (kill -9)", "Redis killed", "bcd"):
            await self._fleet.kill_redis()
            self._screen.note("Redis is gone, and both instances know it")

    async def _redis_is_back(self) -> None:
        async with self._act("Redis is back, and a new upstream with it", "Redis back", "bcde"):
            await self._fleet.revive_redis()
            self._screen.note("Redis is back, and both instances have found it")
            await self._fleet.join("e")
            self._screen.note("e registered through the first instance; both instances use it")

    @asynccontextmanager
    async def _act(self, title: str, short: str, upstreams: str) -> AsyncIterator[None]:
        """Requests go on while the block runs. Then `upstreams` are those that answer, and no request has
        failed."""
        phase = self._begin(title, short)
        async with self._traffic.flowing(phase.events):
            yield
        await self._count(phase, upstreams)
        first = f", the first: {phase.failures[0]}" if phase.failures else ""
        counted = f"{len(phase.failures)} of {phase.requests}{first}"
        self._claim("no request failed meanwhile", not phase.failures, counted)

    def _begin(self, title: str, short: str) -> Phase:
        number = len(self.phases) + 1
        phase = Phase(f"{number}  {title}", f"{number}  {short}", Account(), Account(), COUNTED)
        self.phases.append(phase)
        self._screen.begin(phase)
        return phase

    async def _count(self, phase: Phase, upstreams: Sequence[str]) -> None:
        """Nothing else is in flight now, so round robin gives each upstream exactly the same number."""
        await self._traffic.send(phase.exact, COUNTED)
        share = COUNTED // len(upstreams)
        counted = " ".join(f"{name}={count}" for name, count in sorted(phase.exact.answers.items()))
        exact = phase.exact.answers == dict.fromkeys(upstreams, share)
        self._claim(f"{COUNTED} requests are {share} for each of {len(upstreams)} upstreams", exact, counted)

    def _claim(self, sentence: str, true: bool, counted: str) -> None:
        claim = Claim(sentence, true, counted)
        self.claims.append(claim)
        self._screen.claim(claim)
