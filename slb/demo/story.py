"""The acts of the demo, and what must be true of each."""

from collections.abc import Sequence

from slb.demo.fleet import GPU_SLOTS, Fleet
from slb.demo.jobs import GPUS, JOBS, Jobs
from slb.demo.screen import Claim, Phase, PlainScreen
from slb.demo.traffic import Account, Traffic

COUNTED = 120
"""Requests of an exact count: divisible by two instances times three or four upstreams."""

NAMES = ("a", "b", "c", "d", "e")


class Story:
    """Told once. `claims` and `phases` are what came of it."""

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
        await self._jobs_outlive_a_dispatcher()

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
        phase = self._begin("an upstream joins", "one joins")
        async with self._traffic.flowing(phase.events):
            await self._fleet.join("d")
        self._screen.note("d registered through the first instance while requests went on; both instances use it")
        await self._count(phase, "abcd")
        self._no_failures(phase)

    async def _one_leaves(self) -> None:
        phase = self._begin("an upstream leaves", "one leaves")
        async with self._traffic.flowing(phase.events):
            code = await self._fleet.leave("a")
        self._screen.note("a got SIGTERM: it deregistered, finished what it had, and ended")
        self._claim("a ended in order", code == 0, f"exit code {code}")
        await self._count(phase, "bcd")
        self._no_failures(phase)

    async def _redis_dies(self) -> None:
        phase = self._begin("Redis is killed (kill -9)", "Redis killed")
        async with self._traffic.flowing(phase.events):
            await self._fleet.kill_redis()
        self._screen.note("Redis is gone, and both instances know it")
        await self._count(phase, "bcd")
        self._no_failures(phase)

    async def _redis_is_back(self) -> None:
        phase = self._begin("Redis is back, and a new upstream with it", "Redis back")
        async with self._traffic.flowing(phase.events):
            await self._fleet.revive_redis()
            self._screen.note("Redis is back, and both instances have found it")
            await self._fleet.join("e")
        self._screen.note("e registered through the first instance; both instances use it")
        await self._count(phase, "bcde")
        self._no_failures(phase)

    async def _jobs_outlive_a_dispatcher(self) -> None:
        phase, jobs = (
            self._begin(f"{JOBS} jobs, and a dispatcher is killed (kill -9)", "a dispatcher killed", JOBS),
            Jobs(self._fleet),
        )
        await jobs.submit()
        slots = len(GPUS) * GPU_SLOTS
        self._screen.note(
            f"the first instance has taken {JOBS} jobs; both dispatch them to {slots} slots of two GPUs"
        )
        running = await jobs.kill_one()
        self._screen.note(f"instance {jobs.killed.name} is gone; jobs that it was running: {running}")
        await jobs.collect()
        phase.exact.answers.update(jobs.results)
        phase.exact.failures += ["no result"] * (JOBS - jobs.results.total())
        counted = " ".join(f"{name}={count}" for name, count in sorted(jobs.results.items()))
        self._claim(f"all {JOBS} jobs have their results", jobs.results.total() == JOBS, counted)
        twice = f"begun twice={jobs.repeated}"
        self._claim("only jobs that were running there were begun again", jobs.repeated <= slots, twice)
        await self._fleet.serve_again(jobs.killed)

    def _begin(self, title: str, short: str, planned: int = COUNTED) -> Phase:
        number = len(self.phases) + 1
        phase = Phase(f"{number}  {title}", f"{number}  {short}", Account(), Account(), planned)
        self.phases.append(phase)
        self._screen.begin(phase)
        return phase

    async def _count(self, phase: Phase, upstreams: Sequence[str]) -> None:
        """Nothing else is in flight now, so round robin owes each upstream the same number to the request."""
        await self._traffic.send(phase.exact, COUNTED)
        share = COUNTED // len(upstreams)
        counted = " ".join(f"{name}={count}" for name, count in sorted(phase.exact.answers.items()))
        exact = phase.exact.answers == dict.fromkeys(upstreams, share)
        self._claim(f"{COUNTED} requests are {share} for each of {len(upstreams)} upstreams", exact, counted)

    def _no_failures(self, phase: Phase) -> None:
        first = f", the first: {phase.failures[0]}" if phase.failures else ""
        counted = f"{len(phase.failures)} of {phase.requests}{first}"
        self._claim("no request failed meanwhile", not phase.failures, counted)

    def _claim(self, sentence: str, true: bool, counted: str) -> None:
        claim = Claim(sentence, true, counted)
        self.claims.append(claim)
        self._screen.claim(claim)
