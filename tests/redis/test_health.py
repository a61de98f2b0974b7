"""Several instances check their upstreams together through one real Valkey."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network
from random import Random
from types import TracebackType

import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs

from slb.addresses import AddressRules
from slb.control import keys
from slb.control.health_news import HealthNews
from slb.control.health_store import HealthStore
from slb.health.active import ActiveTiming
from slb.health.service import HealthService
from slb.model import HealthCheck
from slb.observe.changes import What
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience

CHECK = HealthCheck("/h", interval=0.2, rise=2, fall=2, timeout=0.1)
MEMBER = "10.0.0.1:80"
SETTINGS = {"health_path": "/h", "health_interval": "200ms", "health_timeout": "100ms", "health_fall": "2"}


@dataclass
class Upstream:
    """Answers its checks with `status` and `text`, or never where it `hangs`; all callers are alike."""

    member: str = ""
    status: int = 200
    text: str = ""
    hangs: bool = False
    checks: int = 0
    runner: web.AppRunner | None = field(default=None, repr=False)

    async def start(self) -> "Upstream":
        application = web.Application()
        application.router.add_get("/h", self._answer)
        self.runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.member = f"127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def _answer(self, _: web.Request) -> web.Response:
        self.checks += 1
        if self.hangs:
            await asyncio.Event().wait()
        return web.Response(status=self.status, text=self.text)


class Instance(Follower):
    """A follower with health checks. `eyes` are the checks it made itself; `noted` has what it noted of whom. With
    a `host`, there are instances on others too; `is_cut`: it reaches no upstream. `deadline`: seconds after which
    Redis is away, and each goes by its own checks."""

    def __init__(
        self,
        url: str,
        seed: int = 1,
        grace: float = 0.2,
        host: str = "",
        left: float = 0.5,
        is_cut: bool = False,
        deadline: float = 0.5,
    ) -> None:
        super().__init__(url, command_deadline=patience(deadline))
        self.noted: list[tuple[What, str]] = []
        self.on_note: Callable[[What, str], None] = lambda what, member: self.noted.append((what, member))
        self.health = HealthService(
            self.mirror,
            self.metrics.health,
            HealthStore(self.connection),
            HealthNews(self.connection, retry=0.05),
            AddressRules([ip_network("10.0.0.0/8")] if is_cut else (), lambda: ()),
            Random(seed),
            timing=ActiveTiming(first=0.1, grace=grace, left=left),
            host=host,
            elsewhere=lambda: bool(host),
            gap=0.01,
            note=self._note,
        )
        self._checking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Instance":
        await self.connection.probe()  # as `connect` does: no check is made alone before the watcher is through
        await super().__aenter__()
        self._checking = asyncio.create_task(self.health.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.dies()
        await super().__aexit__(kind, error, trace)

    async def dies(self) -> None:
        """Its checks end, whatever it had claimed."""
        assert self._checking is not None
        self._checking.cancel()
        await asyncio.wait([self._checking])
        if not self._checking.cancelled():
            self._checking.result()

    def _note(self, what: What, subject: str, detail: str) -> None:
        self.on_note(what, subject)

    @property
    def eyes(self) -> int:
        return sum(self.metrics.health.checks.values())

    def serving(self, path: str = "/") -> set[str]:
        return {each.member for each in self.mirror.table.routes[path].serving}

    async def serves(self, *upstreams: Upstream, path: str = "/") -> None:
        wanted = {each.member for each in upstreams}
        await eventually(
            lambda: path in self.mirror.table.routes and self.serving(path) == wanted, what=f"served by {wanted}"
        )


MakeUpstream = Callable[[], Awaitable[Upstream]]


@pytest_asyncio.fixture
async def upstreams() -> AsyncIterator[MakeUpstream]:
    made: list[Upstream] = []

    async def make() -> Upstream:
        made.append(await Upstream().start())
        return made[-1]

    yield make
    for each in made:
        assert each.runner is not None
        await each.runner.cleanup()


@pytest_asyncio.fixture
async def trio(valkey: Valkey, upstreams: MakeUpstream) -> list[Upstream]:
    """Three upstreams of the route `/`, which has them checked each 200 ms."""
    made = [await upstreams() for _ in range(3)]
    valkey.admin.hset("slb:route:/", items=[each for pair in SETTINGS.items() for each in pair])
    valkey.admin.sadd("slb_", *(each.member for each in made))
    return made


async def has_checked(upstream: Upstream, times: int) -> None:
    until = upstream.checks + times
    await eventually(lambda: upstream.checks >= until, what=f"{times} more checks")


async def test_each_upstream_is_checked_once_per_interval_by_all_together(
    valkey: Valkey, trio: list[Upstream]
) -> None:
    async with Instance(valkey.url, 1) as a, Instance(valkey.url, 2) as b, Instance(valkey.url, 3) as c:
        clock = asyncio.get_running_loop().time
        await has_checked(trio[0], 2)
        began, before = clock(), [each.checks for each in trio]
        await has_checked(trio[0], 10)
        intervals = (clock() - began) / 0.2
        for upstream, count in zip(trio, before, strict=True):
            # A check is due again after at least nine tenths of an interval, whatever the machine is busy with.
            assert upstream.checks - count <= intervals / 0.9 + 2
        assert a.eyes + b.eyes + c.eyes <= sum(each.checks for each in trio)


async def test_all_go_by_the_same_verdict_down_and_up_again(valkey: Valkey, trio: list[Upstream]) -> None:
    async with Instance(valkey.url, 1) as a, Instance(valkey.url, 2) as b:
        trio[0].status = 500
        for each in (a, b):
            await each.serves(*trio[1:])
        trio[0].status = 302
        for each in (a, b):
            await each.serves(*trio)


@pytest.fixture
def stalls() -> Iterator[Callable[[float], None]]:
    """`stalls(0.1)`: from now on this process stands still for so long again and again, as on a busy machine."""
    stalling: list[asyncio.Task[None]] = []

    async def stall(seconds: float) -> None:
        while True:
            time.sleep(seconds)  # noqa: ASYNC251  the loop stands still
            await asyncio.sleep(seconds / 2)

    yield lambda seconds: stalling.append(asyncio.create_task(stall(seconds)))
    for each in stalling:
        each.cancel()


async def test_upstreams_that_hang_are_down_after_as_many_checks_as_are_set_and_stay_so_on_a_busy_machine(
    valkey: Valkey, upstreams: MakeUpstream, stalls: Callable[[float], None]
) -> None:
    """Each check takes as long as the interval is: a claim that ended with it would lose every result."""
    hanging = [await upstreams() for _ in range(20)]
    for each in hanging:
        each.hangs = True
    well = [await upstreams() for _ in range(2)]
    members = {each.member: each for each in (*hanging, *well)}
    seconds = patience(0.2)
    each_time = f"{seconds * 1000:.0f}ms"
    settings = {"health_path": "/h", "health_interval": each_time, "health_timeout": each_time}
    settings["panic_threshold"] = "0"
    valkey.admin.hset("slb:route:/", items=[each for pair in settings.items() for each in pair])
    valkey.admin.sadd("slb_", *members)
    turns: list[tuple[str, str, int]] = []
    grace = patience(2.0)
    instances = [Instance(valkey.url, number, grace) for number in (1, 2, 3)]
    for instance in instances:
        instance.on_note = lambda what, member: turns.append((what, member, members[member].checks))
    with capture_logs() as logs:
        async with instances[0] as a, instances[1] as b, instances[2] as c:
            for instance in (a, b, c):
                await instance.serves(*well)
            stalls(1.25 * seconds)
            until = {each.member: each.checks + 4 for each in hanging}
            await eventually(
                lambda: all(each.checks >= until[each.member] for each in hanging), 30, "4 more checks"
            )
            assert {what for what, _, _ in turns} == {"check_failed"}
            assert sorted(member for _, member, _ in turns) == sorted(each.member for each in hanging)
            assert max(checks for _, _, checks in turns) <= 4, "three, and one whose result a busy machine has lost"
            for instance in (a, b, c):
                assert instance.serving() == {one.member for one in well}
    moves = {(line["was"], line["now"]) for line in logs if line["event"] == "upstream_health"}
    assert moves == {("unknown", "up"), ("unknown", "down")}


async def test_an_upstream_that_flaps_is_told_once_by_the_whole_fleet(
    valkey: Valkey, upstreams: MakeUpstream
) -> None:
    flapping, well = await upstreams(), await upstreams()
    settings = {"health_path": "/h", "health_interval": "50ms", "health_rise": "1", "health_fall": "1"}
    valkey.admin.hset("slb:route:/", items=[each for pair in settings.items() for each in pair])
    valkey.admin.sadd("slb_", flapping.member, well.member)
    async with Instance(valkey.url, 1) as a, Instance(valkey.url, 2) as b, Instance(valkey.url, 3) as c:
        for _ in range(6):
            for status, serving in ((500, (well,)), (200, (flapping, well))):
                flapping.status = status
                for instance in (a, b, c):
                    await instance.serves(*serving)
    noted = [what for instance in (a, b, c) for what, _ in instance.noted]
    assert sorted(noted) == ["check_failed", "check_failed", "check_passed", "flapping"]


async def test_an_instance_that_is_cut_off_turns_nobody_down_for_the_others_and_says_that_it_alone_fails(
    valkey: Valkey, trio: list[Upstream]
) -> None:
    """Two processes of one host are cut off. They leave a check to others for as long as a busy machine takes."""
    async with (
        Instance(valkey.url, 1, host="a", left=60.0, is_cut=True, deadline=60.0) as one,
        Instance(valkey.url, 2, host="a", left=60.0, is_cut=True, deadline=60.0) as two,
        Instance(valkey.url, 3, host="b", left=60.0, deadline=60.0) as well,
    ):
        disputed = {("check_disputed", each.member) for each in trio}
        await eventually(lambda: disputed <= {*one.noted, *two.noted}, 30, "they say so of each")
        assert {*one.noted, *two.noted} == disputed
        assert well.noted == []
        for each in (one, two, well):
            await each.serves(*trio)


async def test_what_two_hosts_find_down_is_down_for_all(valkey: Valkey, trio: list[Upstream]) -> None:
    trio[0].status = 500
    async with (
        Instance(valkey.url, 1, host="a", left=10.0) as a,
        Instance(valkey.url, 2, host="b", left=10.0) as b,
    ):
        for each in (a, b):
            await each.serves(*trio[1:])
        assert sorted(a.noted + b.noted) == [("check_failed", trio[0].member)]


async def test_an_instance_that_never_checked_receives_the_result(valkey: Valkey, trio: list[Upstream]) -> None:
    """All checks are claimed by the other: its results come by message."""
    async with Instance(valkey.url, 1) as a, Follower(valkey.url) as b:
        received: list[tuple[str, str]] = []
        news = asyncio.create_task(
            HealthNews(b.connection, retry=0.01).run(lambda key, state, run: received.append((key, state)))
        )
        await a.serves(*trio)
        await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 2)
        trio[0].status = 500
        key = keys.health_key(trio[0].member, HealthCheck("/h", 0.2, 2, 2, 0.1))
        await eventually(lambda: (key, "down") in received)
        news.cancel()
        await asyncio.wait([news])


async def test_a_published_result_holds_before_the_next_check_is_due(valkey: Valkey, trio: list[Upstream]) -> None:
    seconds, _ = valkey.admin.time()
    checks = [keys.health_key(each.member, CHECK) for each in trio]
    for key, state in zip(checks, ("down", "up", "up"), strict=True):
        valkey.admin.set(key, f"{(seconds + 3600) * 1000} {state} 0")
    async with Instance(valkey.url, 1) as a:
        await a.serves(*trio[1:])
        await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 1)
        valkey.admin.publish(keys.HEALTH_CHANNEL, "slb:{health}:of another route down 0")
        valkey.admin.publish(keys.HEALTH_CHANNEL, f"{checks[0]} up 0")
        await a.serves(*trio)
        assert a.eyes == 0


async def test_a_new_instance_has_at_once_which_upstreams_are_down(valkey: Valkey, trio: list[Upstream]) -> None:
    async with Instance(valkey.url, 1) as a:
        trio[0].status = 500
        await a.serves(*trio[1:])
    trio[0].status = 200
    key = keys.health_key(trio[0].member, CHECK)
    due, state, run = str(valkey.admin.get(key)).split()
    assert state == "down"
    valkey.admin.set(key, f"{int(due) + 3_600_000} {state} {run}", px=60_000)  # claimed for an hour
    async with Instance(valkey.url, 2) as b:
        await b.serves(*trio[1:])


async def test_when_the_one_that_checks_dies_another_goes_on(valkey: Valkey, trio: list[Upstream]) -> None:
    async with Instance(valkey.url, 1) as a:
        await a.serves(*trio)
        await eventually(lambda: a.eyes > 3)
        async with Instance(valkey.url, 2) as b:
            await b.serves(*trio)
            await a.dies()
            trio[0].status = 500
            await b.serves(*trio[1:])
            assert b.eyes >= 2


async def test_without_redis_each_goes_by_its_own_eyes_and_they_share_again_when_it_is_back(
    valkey: Valkey, trio: list[Upstream]
) -> None:
    async with Instance(valkey.url, 1) as a, Instance(valkey.url, 2) as b:
        for each in (a, b):
            await each.serves(*trio)
        valkey.kill()
        await a.up(False)
        await b.up(False)
        eyes = a.eyes, b.eyes
        trio[0].status = 500
        for each in (a, b):
            await each.serves(*trio[1:])
        assert a.eyes - eyes[0] >= 2
        assert b.eyes - eyes[1] >= 2
        valkey.start()
        await a.up(True)
        await b.up(True)
        key = keys.health_key(trio[0].member, CHECK)
        await eventually(lambda: (valkey.admin.get(key) or "").split()[1:2] == ["down"])
        assert a.serving() == b.serving() == {each.member for each in trio[1:]}
        trio[0].status = 200
        for each in (a, b):
            await each.serves(*trio)


async def test_a_redis_that_answers_nothing_does_not_stop_the_checks(valkey: Valkey, trio: list[Upstream]) -> None:
    async with Instance(valkey.url, 1) as a:
        await a.serves(*trio)
        valkey.freeze()
        try:
            trio[0].status = 500
            await a.serves(*trio[1:])
        finally:
            valkey.thaw()


async def test_a_server_that_loads_is_down_where_its_answer_has_to_say_that_it_is_ready(
    valkey: Valkey, trio: list[Upstream]
) -> None:
    settings = {**SETTINGS, "health_json": "status=ok", "health_rise": "1"}
    valkey.admin.hset("slb:route:/ready", items=[each for pair in settings.items() for each in pair])
    valkey.admin.sadd("slb_ready", *(each.member for each in trio))
    for each in trio:
        each.text = '{"status": "ok"}'
    trio[0].text = '{"status": "loading"}'
    async with Instance(valkey.url, 1) as a, Instance(valkey.url, 2) as b:
        for instance in (a, b):
            await instance.serves(*trio[1:], path="/ready")
            await instance.serves(*trio)
        trio[0].text = '{"status": "ok"}'
        for instance in (a, b):
            await instance.serves(*trio, path="/ready")
    plain, more = keys.health_key(trio[0].member, CHECK), CHECK._replace(json="status=ok", rise=1)
    assert valkey.admin.exists(plain, keys.health_key(trio[0].member, more)) == 2, "each has its own"


async def test_every_key_of_a_check_has_a_lifetime(valkey: Valkey, trio: list[Upstream]) -> None:
    async with Instance(valkey.url, 1) as a:
        await eventually(lambda: a.eyes > 3)
    found = list(valkey.admin.scan_iter(match="slb:{health}:*"))
    assert len(found) == 3
    assert all(0 < valkey.admin.pttl(key) <= 60_000 for key in found)


async def test_an_upstream_that_leaves_is_checked_no_more(valkey: Valkey, trio: list[Upstream]) -> None:
    async with Instance(valkey.url, 1) as a:
        await a.serves(*trio)
        await eventually(lambda: trio[0].checks > 1)
        valkey.admin.srem("slb_", trio[0].member)
        await a.serves(*trio[1:])
        await has_checked(trio[1], 2)
        checks = trio[0].checks
        await has_checked(trio[1], 3)
        assert trio[0].checks <= checks + 1
