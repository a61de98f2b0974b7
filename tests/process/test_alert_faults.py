"""A fault for each alert of the rules, made in real fleets that a real Prometheus scrapes: the alert fires and
names who is at fault, nothing else fires, and it is over once the fault is mended. A minute of the rules lasts half
a second here."""

import asyncio
import os
import re
import resource
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import ClientTimeout, web
from aiohttp.test_utils import TestServer

from tests.process.commands import Commands, Serving
from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.process.test_descriptors import idle_connections
from tests.support.certificates import Authority
from tests.support.documents import ROOT
from tests.support.prometheus import PROMETHEUS, PROMTOOL, Prometheus
from tests.support.receiver import Receiver
from tests.support.valkey import Valkey
from tests.support.waiting import until

RULES = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text()
LONG = 30.0
"""Seconds that all alerts of some faults take at most, on an idle machine."""
_OF_SCRAPES = ("SlbNoInstance", "SlbInstanceSilent")
"""They fire in two "minutes" in which no scrape ends in half a second, as on a busy machine."""

OF_TRAFFIC = {
    *("SlbRouteFails", "SlbRoutePanics", "SlbIsolated", "SlbUpstreamOut", "SlbUpstreamsEjected"),
    *("SlbUpstreamStuck", "SlbRetryBudgetSpent", "SlbSheds"),
}
OF_REDIS = {
    *("SlbLedgerDamaged", "SlbEntriesSkipped", "SlbRedisPolled", "SlbInstanceSilent", "SlbInstancesDie"),
    *("SlbAboveCaps", "SlbCapsUnsure", "SlbQuotaAlone", "SlbUpstreamStuck"),
}
OF_INSTANCES = {
    *("SlbSettingsRefused", "SlbCertificateEnds", "SlbCertificateRefused", "SlbDiscoveryFails", "SlbJobsDie"),
    *("SlbJobsWait", "SlbCallbacksGivenUp", "SlbAcceptsNothing", "SlbDescriptorsLow", "SlbDnsFailsOpen"),
    *("SlbInstanceSilent", "SlbNoInstance"),
}
ELSEWHERE = {
    "SlbRequestsWait": "test_prometheus_alerts.py has its fault",
    "SlbRedisAway": "test_prometheus_alerts.py has its fault, in which nothing else may fire",
}

_with_prometheus = pytest.mark.skipif(
    not (PROMETHEUS.exists() and PROMTOOL.exists()), reason="apt-get install --no-install-recommends prometheus"
)


def test_each_alert_has_a_fault() -> None:
    rules = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules if "alert" in rule} == {
        *(OF_TRAFFIC | OF_REDIS | OF_INSTANCES),
        *ELSEWHERE,
    }


class Upstream:
    """A server of the tests' own. `fails`: it answers 500; `cuts`: it breaks off requests with the field X-Cut, as
    a bad way to it would; `holds`: it answers nothing; `breaks`: its answers break off in the middle; `takes`:
    seconds until it answers."""

    def __init__(self) -> None:
        self.fails = self.cuts = self.holds = self.breaks = False
        self.takes = 0.0
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self.server = TestServer(app, shutdown_timeout=0.1)

    @property
    def member(self) -> str:
        return f"{self.server.host}:{self.server.port}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.cuts and "X-Cut" in request.headers:
            assert request.transport is not None
            request.transport.abort()
        if self.holds:
            await asyncio.Event().wait()
        await asyncio.sleep(self.takes)
        if self.breaks:
            stream = web.StreamResponse()
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            assert request.transport is not None
            request.transport.abort()
            return stream
        return web.Response(status=500 if self.fails else 200)


class Watch:
    """The alerts that a Prometheus sees. `ask`: what goes on in the fleet, once before each look."""

    def __init__(self, prometheus: Prometheus, ask: Callable[[], Awaitable[object]]) -> None:
        self._prometheus = prometheus
        self._ask = ask
        self._began = self._since = time.time()
        self._expected: set[str] = set()

    async def begin(self) -> None:
        """All is well, and nothing fires."""
        self._began = self._since = await self._prometheus.scraped(after=time.time())
        await self._ask()
        assert await self._fired(self._began) == set()

    async def until_fired(self, *alerts: str) -> None:
        """Each of them has fired since the last time that all were over."""
        self._expected.update(alerts)

        async def missing() -> set[str]:
            return {*alerts} - await self._seen(self._since)

        await until(missing, lambda found: not found, LONG, "these fire")

    def may_fire(self, alert: str) -> None:
        """It belongs to the faults, and does not come with them each time."""
        self._expected.add(alert)

    async def until_over(self, *lasting: str) -> None:
        """None fires any more but those that are `lasting`; and none ever did but those that were waited for."""

        async def left() -> set[str]:
            await self._ask()
            return await self._prometheus.alerts() - {*lasting}

        await until(left, lambda found: not found, LONG, "all are over")
        assert await self._fired(self._began) - self._expected == set()
        self._since = time.time()

    async def until_described(self, *words: str) -> None:
        """Of the alerts that fire, each of these is in a description."""

        async def missing() -> set[str]:
            found = await self._prometheus.descriptions()
            return {each for each in words if not any(each in description for description in found)}

        await until(missing, lambda found: not found)

    @property
    def names(self) -> set[str]:
        """Of all alerts that were waited for."""
        return {each.partition(" ")[0] for each in self._expected}

    async def _seen(self, since: float) -> set[str]:
        await self._ask()
        return await self._prometheus.alerts(since)

    async def _fired(self, since: float) -> set[str]:
        found = await self._seen(since)
        return {each for each in found if not each.startswith(_OF_SCRAPES)}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def nothing_asked() -> None:
    """The fleet has no traffic."""


async def watched(
    slb: Commands, stack: AsyncExitStack, *apis: str, ask: Callable[[], Awaitable[object]] = nothing_asked
) -> Watch:
    """The processes at these are scraped."""
    targets = '", "'.join(at(each) for each in apis)
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, targets, slb.session, rules=RULES))
    watch = Watch(prometheus, ask)
    await watch.begin()
    return watch


def at(api: str) -> str:
    """What Prometheus calls the instance with this API."""
    return api.partition("://")[2]


class Routes:
    """Routes in Redis, with upstreams of the tests' own."""

    def __init__(self, valkey: Valkey, stack: AsyncExitStack) -> None:
        self.admin: Any = valkey.admin
        self._stack = stack

    async def made(self, path: str, count: int = 1, **settings: str) -> list[Upstream]:
        upstreams = [Upstream() for _ in range(count)]
        for each in upstreams:
            await each.server.start_server()
            self._stack.push_async_callback(each.server.close)
            self.admin.sadd(f"slb_{path[1:]}", each.member)
        if settings:
            self.admin.hset(f"slb:route:{path}", mapping=settings)
        return upstreams


def asked(slb: Commands, stack: AsyncExitStack, url: str) -> asyncio.Task[None]:
    """A request that waits for its answer for as long as it takes."""

    async def get() -> None:
        async with slb.session.get(url, timeout=ClientTimeout()) as reply:
            await reply.read()

    task = asyncio.create_task(get())
    stack.callback(task.cancel)
    return task


@_with_prometheus
async def test_faults_of_upstreams_and_of_the_way_to_them(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack
) -> None:
    routes, nothing_there = Routes(valkey, stack), "127.0.0.1:1"
    (failing,) = await routes.made("/fails")
    checked = await routes.made("/panics", 2, health_path="/", health_interval="200ms", health_timeout="60s")
    cut = await routes.made("/cut", 2, retries="0")
    await routes.made("/refuses", 1, eject_time="200ms", max_eject_time="200ms")
    spent = await routes.made("/spent", 2, eject_after="0")
    (full,) = await routes.made("/full", 1, max_inflight="1")
    one, other = [await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in "ab"]

    async def ask() -> None:
        for path in ("/fails", "/cut", "/refuses", "/full"):
            await slb.get(one.url + path)
        await slb.get(other.url + "/refuses")  # either may have its turn to try the one that is out
        await slb.get(one.url + "/spent", **{"X-Cut": ""})
        await slb.get(other.url + "/cut", **{"X-Cut": ""})

    watch = await watched(slb, stack, one.api, other.api, ask=ask)
    failing.fails = full.holds = True
    held = asked(slb, stack, one.url + "/full")
    for each in checked:
        each.fails = True
    for each in (*cut, *spent):
        each.cuts = True
    routes.admin.sadd("slb_refuses", nothing_there)
    await watch.until_fired(
        *(f"SlbRouteFails route={path}" for path in ("/fails", "/cut", "/spent", "/full")),
        "SlbRoutePanics route=/panics",
        f"SlbIsolated instance={at(other.api)} route=/cut",
        f"SlbUpstreamsEjected upstream={nothing_there}",
        *(f"SlbUpstreamOut upstream={member}" for member in (nothing_there, *(each.member for each in checked))),
        "SlbRetryBudgetSpent reason=upstream_reset route=/spent",
        "SlbSheds reason=pool_saturated route=/full",
    )
    await watch.until_described(f"the most came from {failing.member}.", "the most came from slb itself.")
    await watch.until_fired(f"SlbUpstreamStuck upstream={full.member}")  # 30 s after it began to hold
    year = datetime.now(UTC).year
    await watch.until_described(
        f"next to nothing for five minutes. Sick since {year}-",
        f"has given no byte for over a minute and a half. Sick since {year}-",
        f"the bad ones too, since {year}-",
        " requests failed there in the last hour. slb alerts says why; ",
    )
    failing.fails = full.holds = False
    held.cancel()
    for each in (*checked, *cut, *spent):
        each.fails = each.cuts = False
    routes.admin.srem("slb_refuses", nothing_there)
    await watch.until_over()
    assert watch.names == OF_TRAFFIC


@_with_prometheus
async def test_faults_of_a_slow_server_and_of_streams_that_are_cut_in_the_middle(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack
) -> None:
    """Either while its own route, or another server of it, does well: nothing fires for those."""
    routes = Routes(valkey, stack)
    slow, *_ = await routes.made("/slow", 3, eject_time="200ms", max_eject_time="200ms", policy="round_robin")
    (cut,) = await routes.made("/stream", 1, retries="0")
    await routes.made("/well", 1)
    one, other = [await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in "ab"]

    async def callers() -> None:
        while True:
            for path in ("/slow", "/well"):
                await slb.get(one.url + path)

    async def ask() -> None:
        await slb.get(one.url + "/stream")
        await slb.get(other.url + "/well")

    watch = await watched(slb, stack, one.api, other.api, ask=ask)
    calling = asyncio.create_task(callers())
    stack.callback(calling.cancel)
    slow.takes, cut.breaks = 0.4, True
    await watch.until_fired(f"SlbUpstreamsEjected upstream={slow.member}", "SlbRouteFails route=/stream")
    await watch.until_described(f"the most came from {cut.member}.", "so far: slow.")
    watch.may_fire(f"SlbUpstreamOut upstream={slow.member}")
    slow.takes, cut.breaks = 0.0, False
    await watch.until_over()


@_with_prometheus
async def test_faults_of_redis_and_of_an_instance_that_stands_still(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack
) -> None:
    routes = Routes(valkey, stack)
    admin = routes.admin
    (slow,) = await routes.made("/slow", 1, max_inflight="1", when_full="queue", queue_timeout="900s")
    (quick,) = await routes.made("/quick", 1, max_inflight="3")
    flags = ("--roles", "proxy,quota", "--name")
    one, other = [await slb.until_ready(await slb.serve(*flags, each, redis=valkey.url)) for each in "ab"]
    for serving in (one, other):
        for path in ("/slow", "/quick"):
            await slb.until_status(serving.url + path, 200)
    watch = await watched(slb, stack, one.api, other.api)

    admin.zadd("slb:{/quick}:inflight", {quick.member: 2})  # below the cap, else it is above it until it is mended
    admin.sadd("slb_x", "no member")
    admin.config_set("notify-keyspace-events", "")
    admin.execute_command("ACL", "SETUSER", "default", "-config")
    await watch.until_fired(
        *("SlbLedgerDamaged", "SlbEntriesSkipped kind=member"),
        *(f"SlbRedisPolled instance={at(each.api)}" for each in (one, other)),
    )
    admin.srem("slb_x", "no member")
    admin.execute_command("ACL", "SETUSER", "default", "+config")
    await watch.until_over()

    slow.holds = True
    watch.may_fire(f"SlbUpstreamStuck upstream={slow.member}")  # where it holds for over 30 s
    held = asked(slb, stack, other.url + "/slow")
    await until_held(valkey, "/slow", slow, 1)
    os.kill(other.process.pid, signal.SIGSTOP)
    await watch.until_fired(f"SlbInstanceSilent instance={at(other.api)}", "SlbInstancesDie")
    instead = asked(slb, stack, one.url + "/slow")
    await until_held(valkey, "/slow", slow, 1)
    os.kill(other.process.pid, signal.SIGCONT)
    await watch.until_fired("SlbAboveCaps")
    held.cancel()
    instead.cancel()
    slow.holds = False
    await watch.until_over()

    admin.execute_command("ACL", "SETUSER", "default", "resetkeys", "~slb_*", "~slb:[^{]*")
    await watch.until_fired(
        *(f"SlbCapsUnsure pool={path}" for path in ("/slow", "/quick")),
        *(f"SlbQuotaAlone instance={at(each.api)}" for each in (one, other)),
    )
    admin.execute_command("ACL", "SETUSER", "default", "~*")
    await watch.until_over()
    assert watch.names == OF_REDIS


async def until_held(valkey: Valkey, path: str, upstream: Upstream, count: int) -> None:
    """So many slots of it are held, as Redis has it."""

    async def score() -> object:
        return valkey.admin.zscore(f"slb:{{{path}}}:inflight", upstream.member)

    await until(score, lambda found: found == count)


@_with_prometheus
async def test_faults_of_what_instances_are_given_and_of_jobs(
    slb: Commands, jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey, authority: Authority, stack: AsyncExitStack
) -> None:
    members, config = slb.directory / "members.toml", slb.directory / "slb.toml"
    members.write_text('"/p" = ["127.0.0.1:1"]')
    pairs = ", ".join(f'"{authority.issue(each, "a.test")}"' for each in ("ends", "broken"))
    good = f"""roles = "proxy,jobs,discovery"
tls_certificates = [{pairs}]
discovery.file.path = "{members}"
jobs.callback_networks = ["127.0.0.0/8"]
"""
    config.write_text(good)
    given = await slb.until_ready(await slb.serve("--config", str(config), redis=valkey.url))
    crowded = await slb.until_ready(await slb.serve(redis=valkey.url))
    resource.prlimit(crowded.process.pid, resource.RLIMIT_NOFILE, (100, 100))
    responder = await dns_responder(slb, valkey)
    server, receiver = await gpu(), await Receiver(410).start()
    stack.push_async_callback(receiver.stop)
    await jobs.register(given, server, max_retries=0)
    watch = await watched(slb, stack, given.api, crowded.api, responder.api)
    for_an_hour = f"SlbCallbacksGivenUp model={MODEL}"
    clients = await stack.enter_async_context(AsyncExitStack())

    config.write_text(good + "max_headers = 0\n")
    authority.issue("ends", "a.test", ends=datetime.now(UTC) + timedelta(days=10))
    authority.write("broken.pem", b"half a certifi")
    members.unlink()
    server.answers = [(500, {})]
    await jobs.submit(given, "fails", callback_url=receiver.url)
    await jobs.until_ended(given, ["fails"])
    await jobs.ask("PUT", f"{given.api}/admin/model-configs/{MODEL}", {"max_retries": 0, "paused": True})
    await jobs.submit(given, "waits")
    await clients.enter_async_context(idle_connections(crowded.url, 200))
    await watch.until_fired(
        f"SlbSettingsRefused instance={at(given.api)}",
        f"SlbCertificateEnds certificate={slb.directory}/ends.pem",
        f"SlbCertificateRefused instance={at(given.api)}",
        f"SlbDiscoveryFails route=/p source=file/{members}",
        *(f"{name} model={MODEL}" for name in ("SlbJobsDie", "SlbJobsWait")),
        for_an_hour,
        f"SlbAcceptsNothing instance={at(crowded.api)} listener=data",
        f"SlbDescriptorsLow instance={at(crowded.api)}",
    )
    # Where a scrape takes too long, its connection is made anew.
    watch.may_fire(f"SlbAcceptsNothing instance={at(crowded.api)} listener=api")
    config.write_text(good)
    authority.issue("ends", "a.test")
    authority.issue("broken", "a.test")
    members.write_text('"/p" = ["127.0.0.1:1"]')
    await jobs.ask("PUT", f"{given.api}/admin/model-configs/{MODEL}", {"paused": False})
    await clients.aclose()
    await watch.until_over(for_an_hour)

    for serving in (given, crowded):
        os.kill(serving.process.pid, signal.SIGSTOP)
    await watch.until_fired(
        f"SlbDnsFailsOpen instance={at(responder.api)}",
        *(f"SlbInstanceSilent instance={at(each.api)}" for each in (given, crowded)),
    )
    for serving in (given, crowded):
        os.kill(serving.process.pid, signal.SIGCONT)
    await watch.until_over(for_an_hour)

    for serving in (given, crowded, responder):
        serving.process.kill()
    await watch.until_fired("SlbNoInstance")
    assert watch.names == OF_INSTANCES


async def dns_responder(slb: Commands, valkey: Valkey) -> Serving:
    """One that has found an instance ready."""
    flags = ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--redis", valkey.url]
    process = await slb.start("dns", *flags, "--ttl", "1s", "--data-dir", str(slb.directory / "data"))
    line = orjson.loads(await process.first_line())["message"]
    found = re.search(r"API (http://[0-9.:]+)", line)
    assert found is not None
    await slb.until_json(f"{found[1]}/status", lambda status: status["dns"]["mode"] == "live")
    return Serving("", found[1], line, process)
