"""What the rules for Prometheus make of faults of a real fleet: which alerts fire, and which are over. A minute of
the rules lasts half a second here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.process.commands import Commands
from tests.process.serving import in_flight
from tests.support.documents import ROOT
from tests.support.prometheus import PROMETHEUS, PROMTOOL, Prometheus
from tests.support.valkey import Valkey
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    not (PROMETHEUS.exists() and PROMTOOL.exists()), reason="apt-get install --no-install-recommends prometheus"
)
RULES = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text()
LONG = 60.0
"""Seconds that the longest rule takes at most, on an idle machine."""
_OF_SCRAPES = {"SlbNoInstance", "SlbInstanceSilent"}
"""They fire in two "minutes" in which no scrape ends in half a second, as on a busy machine."""


async def firing(prometheus: Prometheus) -> set[str]:
    return await prometheus.firing() - _OF_SCRAPES


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def test_a_queue_is_told_while_it_lasts_and_no_longer(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack
) -> None:
    _, member = await slb.upstream("a", "--service-time", "600s")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "1", "when_full": "queue", "queue_timeout": "900s"})
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    target = serving.api.removeprefix("http://")
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, target, slb.session, rules=RULES))

    async def depth() -> list[float]:
        return await prometheus.instant("slb_queue_depth")

    assert await depth() == [0.0], "it is there before anything waits"
    asked = [asyncio.create_task(slb.get(f"{serving.url}/p")) for _ in range(2)]
    try:
        await in_flight(slb, serving, 1)
        await until(lambda: firing(prometheus), lambda found: found == {"SlbRequestsWait"}, LONG)
    finally:
        for request in asked:
            request.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    await until(depth, lambda found: found == [0.0])
    await until(lambda: firing(prometheus), lambda found: not found, what="the alert ends with the queue")


async def test_an_outage_of_redis_is_one_alert(slb: Commands, valkey: Valkey, stack: AsyncExitStack) -> None:
    _, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "1"})
    servings = [await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in ("a", "b")]
    targets = '", "'.join(each.api.removeprefix("http://") for each in servings)
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, targets, slb.session, rules=RULES))
    valkey.kill()
    seen: set[str] = set()

    async def fired() -> set[str]:
        seen.update(await firing(prometheus))
        return seen

    async def unsure() -> list[float]:
        return await prometheus.instant("max_over_time(slb_ledger_shared[5s])")

    for serving in servings:
        await slb.until_status(f"{serving.url}/p", 200)
    await until(fired, lambda found: "SlbRedisAway" in found, LONG)
    await until(unsure, lambda found: found == [0.0, 0.0], LONG, "a rule of a minute has had ten to fire")
    assert await fired() == {"SlbRedisAway"}
    valkey.start()
    await until(lambda: firing(prometheus), lambda found: not found, LONG)
    assert seen == {"SlbRedisAway"}


async def test_an_upstream_that_is_gone_is_named(slb: Commands, valkey: Valkey, stack: AsyncExitStack) -> None:
    process, member = await slb.upstream("a")
    _, other = await slb.upstream("b")
    valkey.admin.sadd("slb_p", member, other)
    valkey.admin.hset("slb:route:/p", mapping={"health_path": "/", "health_interval": "1s", "health_timeout": "1s"})
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    target = serving.api.removeprefix("http://")
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, target, slb.session, rules=RULES))
    await prometheus.scraped(after=0.0)
    await process.stop()

    async def named() -> set[str]:
        found = await prometheus.labels('ALERTS{alertname="SlbUpstreamOut",alertstate="firing"}')
        return {each["upstream"] for each in found}

    await until(named, lambda found: found == {member}, LONG)
    valkey.admin.srem("slb_p", member)
    await until(named, lambda found: not found, what="it has left with the upstream")
