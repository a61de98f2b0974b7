"""Several instances share their checks by one clock: what one host finds alone turns nobody down for all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from slb.control.health_store import Answer, Ask, Outcome, Report
from slb.control.keys import health_key
from slb.errors import RedisUnavailable
from slb.health.active import Active, ActiveTiming
from slb.health.roster import Roster, Watched
from slb.model import HealthCheck, Upstream
from tests.unit.health.fleet import Clock, Routes

INTERVAL = 5.0


class Store:
    """As claim_checks.lua and report_checks.lua have it."""

    def __init__(self, clock: Clock) -> None:
        self.up = True
        self.kept: dict[str, tuple[float, str, int]] = {}
        self.published: list[tuple[str, str, int]] = []
        self.listeners: list[Callable[[str, str, int], None]] = []
        self._clock = clock

    async def claim(self, asks: Sequence[Ask], room: int) -> list[Answer]:
        if not self.up:
            raise RedisUnavailable("away")
        answers = []
        for ask in asks:
            key, now = health_key(ask.member, ask.check), self._clock()
            due, state, run = self.kept.get(key, (0.0, ask.state, ask.run))
            if due > now or not room:
                answers.append(Answer(0, max(0.0, due - now), state, run))
                continue
            due = now + ask.hold
            self.kept[key] = due, state, run
            answers.append(Answer(round(due * 1000), ask.hold, state, run))
        return answers

    async def report(self, reports: Sequence[Report]) -> list[Outcome]:
        outcomes = []
        for each in reports:
            key = health_key(each.member, each.check)
            due, state, run = self.kept[key]
            if round(due * 1000) != each.claim:
                outcomes.append(Outcome(False, state, run))
                continue
            self.kept[key] = due - each.early, each.state, each.run
            outcomes.append(Outcome(True, each.state, each.run))
            if state != each.state:
                self._publish(key, each.state, each.run)
            elif each.suspects:
                self._publish(f"{each.suspects} {key}", "suspect", each.run)
        return outcomes

    def _publish(self, about: str, state: str, run: int) -> None:
        self.published.append((about, state, run))
        for listener in self.listeners:
            listener(about, state, run)


class Instance(Routes):
    """`reaches`: its checks pass, else each takes so many seconds (`takes`) to fail. `asks`: it takes part."""

    def __init__(self, store: Store, clock: Clock, host: str, hosts: set[str], seed: int) -> None:
        super().__init__()
        self.reaches = self.asks = True
        self.made, self.takes = 0, 0.0
        self._clock = clock
        timing = ActiveTiming(first=1.0, settle=0.0)
        parts = store, self, self.availability, self.metrics.health
        self.active = Active(
            *parts,
            lambda _: None,
            Random(seed),
            clock,
            timing,
            self.note,
            host,
            lambda: bool(hosts - {host}),
        )
        self.roster = Roster(self.availability, self._add)
        self.watched: list[Watched] = []
        store.listeners.append(self._hears)

    def _add(self, watched: Watched) -> None:
        self.watched.append(watched)
        self.active.add(watched)

    def _hears(self, about: str, state: str, run: int) -> None:
        host, _, key = about.rpartition(" ")
        if (watched := self.roster.named(key)) is None:
            return
        if state == "suspect":
            self.active.suspect(watched, host, run)
        else:
            self.active.adopt(watched, state, run)

    async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None:
        self.made += 1
        if self.reaches:
            return None
        until = self._clock() + self.takes
        while self._clock() < until:
            await asyncio.sleep(0)
        return "no route to host"


class Fleet:
    """One instance for each of these hosts, and one upstream which all of them check."""

    def __init__(self, *hosts: str, fall: int = 3) -> None:
        self.clock = Clock()
        self.store = Store(self.clock)
        self.instances = [
            Instance(self.store, self.clock, host, set(hosts), seed) for seed, host in enumerate(hosts)
        ]
        for each in self.instances:
            settings = {"health_interval": "5s", "health_timeout": "5s", "health_fall": str(fall)}
            each.members("/", 1, health_path="/h", panic_threshold="0", **settings)

    async def begin(self) -> "Fleet":
        for each in self.instances:
            await each.roster.follow(each.mirror.table)
        await self.passes(20)
        assert self.serving == [True] * len(self.instances)
        self.noted()
        return self

    async def passes(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.clock.passes(step)
            for each in self.instances:
                if each.asks:
                    await each.active.turn()
            for _ in range(5):
                await asyncio.sleep(0)

    @property
    def serving(self) -> list[bool]:
        return [each.serving() == [1] for each in self.instances]

    def noted(self) -> list[list[str]]:
        return [[what for what, _ in each.noted()] for each in self.instances]

    async def down_after(self) -> float:
        """Seconds until all have it down."""
        began = self.clock()
        while any(self.serving):
            await self.passes(0.1)
            assert self.clock() - began < 120
        return self.clock() - began


@pytest_asyncio.fixture
async def fleets() -> AsyncIterator[list[Fleet]]:
    made: list[Fleet] = []
    yield made
    for fleet in made:
        for each in fleet.instances:
            await each.active.aclose()


async def begun(fleets: list[Fleet], *hosts: str, fall: int = 3) -> Fleet:
    fleets.append(Fleet(*hosts, fall=fall))
    return await fleets[-1].begin()


@pytest.mark.parametrize("fall", [1, 2, 3])
@pytest.mark.parametrize("hosts", ["ab", "aab", "aaab", "abc"])
async def test_what_one_host_cannot_reach_is_down_for_nobody_as_long_as_another_reaches_it(
    fleets: list[Fleet], hosts: str, fall: int
) -> None:
    fleet = await begun(fleets, *hosts, fall=fall)
    cut = [each for each, host in zip(fleet.instances, hosts, strict=True) if host == "a"]
    for each in cut:
        each.reaches = False
    with capture_logs() as logs:
        await fleet.passes(600)
    assert fleet.serving == [True] * len(hosts)
    assert sum(each.made for each in cut) > 20, "they go on with their share of the checks"
    told = [line["event"] for line in logs if line["event"] == "health_check_disputed"]
    noted = fleet.noted()
    assert {what for each in noted for what in each} == {"check_disputed"}
    assert all(bool(of_one) is (each in cut) for each, of_one in zip(fleet.instances, noted, strict=True))
    assert len(told) == sum(map(len, noted)) <= 2 * len(cut) + 1, "once in five minutes"


@pytest.mark.parametrize("hosts", ["a", "aa", "ab", "aab", "abcd"])
@pytest.mark.parametrize("fall", [2, 3, 4])
async def test_what_nobody_reaches_is_down_as_soon_as_ever(fleets: list[Fleet], hosts: str, fall: int) -> None:
    fleet = await begun(fleets, *hosts, fall=fall)
    for each in fleet.instances:
        each.reaches = False
    assert await fleet.down_after() <= (fall + 0.5) * INTERVAL
    made = [what for each in fleet.noted() for what in each]
    assert made == ["check_failed"]
    assert [each.watched[0].failed_here for each in fleet.instances].count(0) >= 1


@pytest.mark.parametrize("hosts", ["a", "ab", "aab", "abcd"])
async def test_where_checks_hang_each_is_followed_by_the_next_of_another_host(
    fleets: list[Fleet], hosts: str
) -> None:
    fleet = await begun(fleets, *hosts)
    before = sum(each.made for each in fleet.instances)
    for each in fleet.instances:
        each.reaches, each.takes = False, INTERVAL
    while sum(each.made for each in fleet.instances) == before:
        await fleet.passes(0.1)
    assert 15.0 <= await fleet.down_after() <= 18.0, "as the documentation says"


async def test_one_failure_is_enough_where_there_is_one_host_and_else_one_on_each_of_two(
    fleets: list[Fleet],
) -> None:
    for hosts, times in (("aa", 1), ("ab", 2), ("abcd", 2)):
        fleet = await begun(fleets, *hosts, fall=1)
        before = sum(each.made for each in fleet.instances)
        for each in fleet.instances:
            each.reaches = False
        assert await fleet.down_after() <= (times + 0.5) * INTERVAL
        assert sum(each.made for each in fleet.instances) - before == times


async def test_where_no_other_takes_the_check_in_time_the_first_decides_alone(fleets: list[Fleet]) -> None:
    fleet = await begun(fleets, "a", "b")
    cut, silent = fleet.instances
    cut.reaches = silent.asks = False
    assert await fleet.down_after() <= 4.5 * INTERVAL, "half an interval later"
    assert fleet.serving == [False, False]


async def test_without_redis_each_goes_by_its_own_checks(fleets: list[Fleet]) -> None:
    fleet = await begun(fleets, "a", "b")
    fleet.instances[0].reaches = False
    fleet.store.up = False
    await fleet.passes(25)
    assert fleet.serving == [False, True]


async def test_who_suspects_is_told_once_for_each_row_of_failures_and_not_while_all_is_well(
    fleets: list[Fleet],
) -> None:
    fleet = await begun(fleets, "a", "b")
    assert [state for _, state, _ in fleet.store.published] == ["up"]
    fleet.store.published.clear()
    for each in fleet.instances:
        each.reaches = False
    await fleet.down_after()
    assert [state for _, state, _ in fleet.store.published if state != "suspect"] == ["down"]
    assert len(fleet.store.published) <= 2
