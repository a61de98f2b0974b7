"""What a session that follows Redis hears of the fleet's instances, by a real Valkey."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from random import Random
from types import TracebackType

import pytest
import pytest_asyncio
from redis import Redis

from slb.addresses import AddressRules
from slb.balance.upstream import LiveUpstream
from slb.client import Session
from slb.client.feed import RedisFeed
from slb.control import keys
from slb.control.health_news import HealthNews
from slb.control.health_store import HealthStore
from slb.health.service import HealthService
from slb.lifecycle import Tasks
from slb.routing.passive import BUSY_UNTIL, PROBED, SERVED, SOME_SERVE, STUCK
from tests.client.conftest import Upstreams
from tests.client.rig import Upstream, answering, asked, live
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until

OUT = {"eject_time": "1h", "max_eject_time": "1h", "policy": "round_robin"}


class Instance(Follower):
    """`news`: that of another one."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.news = HealthNews(self.connection, retry=0.05)
        self.health = HealthService(
            self.mirror,
            self.metrics.health,
            HealthStore(self.connection),
            self.news,
            AddressRules((), lambda: ()),
            Random(),
            gap=0.01,
            instances=lambda: 2,
        )
        self._tasks = Tasks()

    async def __aenter__(self) -> "Instance":
        await super().__aenter__()
        self._tasks.start("health", self.health.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.stop()
        await super().__aexit__(kind, error, trace)

    def upstream(self, which: Upstream) -> LiveUpstream:
        return self.mirror.upstreams[which.member]


def out_of(session: Session) -> list[str]:
    """Those that get no calls."""
    return [each.member for each in live(session) if not each.available or each.set_aside]


@pytest_asyncio.fixture
async def pair(valkey: Valkey, upstreams: Upstreams) -> tuple[Upstream, Upstream]:
    """The upstreams of the route, one of which the fleet finds sick."""
    sick, well = await upstreams(), await upstreams()
    for name, value in OUT.items():
        valkey.admin.hset("slb:route:/", name, value)
    valkey.admin.sadd("slb_", sick.member, well.member)
    return sick, well


@pytest_asyncio.fixture
async def instance(valkey: Valkey, pair: tuple[Upstream, Upstream]) -> AsyncIterator[Instance]:
    async with Instance(valkey.url) as made:
        await eventually(lambda: len(made.mirror.upstreams) == len(pair))
        yield made


@pytest_asyncio.fixture
async def session(valkey: Valkey, instance: Instance) -> AsyncIterator[Session]:
    async with Session(redis_url=valkey.url) as made:
        await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 2)
        yield made


@pytest.mark.parametrize("why", ["refused", "stuck", "busy", "fleet"])
async def test_what_an_instance_finds_sick_gets_no_calls(
    session: Session, instance: Instance, pair: tuple[Upstream, Upstream], why: str
) -> None:
    sick, well = pair
    upstream, route = instance.upstream(sick), instance.mirror.table.routes["/"]
    if why == "refused":
        instance.health.passive.refused(upstream)
    elif why == "stuck":
        await instance.news.publish(sick.member, STUCK)
    elif why == "busy":
        instance.health.passive.replied(upstream, 503, 3600.0, route)
    else:
        for _ in range(5):
            instance.health.passive.failed(upstream, "upstream_reset", route)
    await eventually(lambda: out_of(session) == [sick.member])
    assert await asked(session, ["/x"] * 10) == {200: 10}
    assert (len(sick.seen), len(well.seen)) == (0, 10)
    ejections = {} if why == "busy" else {(sick.member, why): 1}
    assert dict(session.metrics.health.ejections) == ejections


async def test_one_that_an_instance_was_served_by_gets_calls_again(
    session: Session, instance: Instance, pair: tuple[Upstream, Upstream]
) -> None:
    sick, _ = pair
    await instance.news.publish(sick.member, STUCK)
    await eventually(lambda: out_of(session) == [sick.member])
    await instance.news.publish(sick.member, SERVED)
    await eventually(lambda: out_of(session) == [])
    await asked(session, ["/x"] * 10)
    assert sick.seen


async def test_one_that_has_just_served_the_session_is_not_stuck_for_it(
    session: Session, instance: Instance, pair: tuple[Upstream, Upstream]
) -> None:
    sick, well = pair
    await asked(session, ["/x"] * 2)
    assert sick.seen
    await instance.news.publish(sick.member, STUCK)
    await instance.news.publish(well.member, BUSY_UNTIL, 360_000)
    await eventually(lambda: out_of(session) == [well.member])


async def test_the_instances_try_one_that_comes_back_before_a_session_does(
    session: Session, instance: Instance, pair: tuple[Upstream, Upstream]
) -> None:
    """What they tell each other of whose turn it is, is not for a session: it cannot ask for one."""
    sick, well = pair
    await instance.news.publish(sick.member, STUCK)
    await eventually(lambda: out_of(session) == [sick.member])
    passive = session._feed._passive
    upstream = next(each for each in live(session) if each.member == sick.member)
    assert isinstance(session._feed, RedisFeed)
    session._feed._hear(sick.member, PROBED, 1)
    assert not upstream.probed_elsewhere
    record = passive._records[sick.member]
    record.until = time.monotonic()
    passive.sweep()
    assert upstream.available
    await asked(session, ["/x"] * 5)
    assert (len(sick.seen), len(well.seen)) == (0, 5)
    await instance.news.publish(sick.member, SERVED)
    await eventually(lambda: not upstream.probed_elsewhere)
    await asked(session, ["/x"] * 5)
    assert sick.seen


@pytest.mark.parametrize("kind", ["refused", "status", "busy"])
async def test_what_a_session_finds_is_told_to_nobody(
    valkey: Valkey, session: Session, instance: Instance, pair: tuple[Upstream, Upstream], kind: str
) -> None:
    """Its network may be broken; and there may be a thousand of them."""
    sick, well = pair
    if kind == "refused":
        await sick.stop()
    else:
        sick.handle = answering(500 if kind == "status" else 529)
    listening = valkey.admin.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    with listening as listener:
        listener.subscribe(keys.HEALTH_CHANNEL)
        await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 3)
        await asked(session, ["/x"] * 20)
        assert out_of(session) == [sick.member]
        await instance.news.publish(well.member, SERVED)
        heard = await until(partial(asyncio.to_thread, listener.get_message), bool)
        assert heard["data"] == f"{well.member} {SERVED} 0"


async def test_a_session_takes_no_part_in_questions_of_whole_routes(
    session: Session, instance: Instance, pair: tuple[Upstream, Upstream]
) -> None:
    sick, well = pair
    sick.handle = well.handle = answering(500)
    await asked(session, ["/x"] * 20)
    await instance.news.publish("/", SOME_SERVE)
    await instance.news.publish(sick.member, BUSY_UNTIL, 360_000)
    await eventually(lambda: out_of(session) == [sick.member])
    assert not any(session.metrics.health.isolated.values())


async def test_a_login_that_may_only_read_goes_by_its_own_calls(
    valkey: Valkey, pair: tuple[Upstream, Upstream]
) -> None:
    sick, well = pair
    admin: Redis = valkey.admin
    channels = [f"&__keyspace@0__:{each}*" for each in ("slb_", "slb:route:", "slb:upstream:", "slb:canary:")]
    rights = ["~slb*", *channels, "+@read", "+@connection", "+psubscribe", "+info", "+time", "+config|get"]
    admin.execute_command("ACL", "SETUSER", "reader", "on", ">secret", *rights, "+evalsha", "+script|load")  # type: ignore[no-untyped-call]
    admin.config_set("notify-keyspace-events", "Kgshxe")
    url = valkey.url.replace("unix://", "unix://reader:secret@")
    sick.handle = answering(500)
    async with Session(redis_url=url) as session:
        await eventually(lambda: len(live(session)) == 2)
        await asked(session, ["/x"] * 20)
        assert out_of(session) == [sick.member]
        assert valkey.listeners(keys.HEALTH_CHANNEL) == 0
        later = next(each for each in live(session) if each.member == well.member)
        admin.srem("slb_", sick.member)
        await eventually(lambda: live(session) == [later])
