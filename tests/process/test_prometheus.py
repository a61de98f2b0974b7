"""What a real Prometheus makes of slb's metrics."""

import asyncio
import math
import os
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from aiohttp import web

from tests.process.commands import Commands, Serving
from tests.process.serving import until_all_ready
from tests.support.certificates import Authority
from tests.support.documents import DOCUMENTS, samples
from tests.support.prometheus import INTERVAL, PROMETHEUS, PROMTOOL, Prometheus, Series, growth, substituted
from tests.support.valkey import Valkey
from tools.grafana.fleet import FLEET
from tools.grafana.model import OURS, Panel
from tools.grafana.routes import ROUTE, UPSTREAMS

pytestmark = pytest.mark.skipif(
    not (PROMETHEUS.exists() and PROMTOOL.exists()), reason="apt-get install --no-install-recommends prometheus"
)

BURST = 20
IDLE = 1.0
"""Seconds over which a rate is taken while nothing is sent."""
WINDOW = 10 * INTERVAL


class Fleet:
    """Upstreams at /p that come and go; every second one answers 500. `sent`: when each request was, and the first
    digit of its answer."""

    def __init__(self, slb: Commands, serving: Serving, stack: AsyncExitStack) -> None:
        self._slb = slb
        self._serving = serving
        self._stack = stack
        self._started = 0
        self.sent: list[tuple[float, str]] = []

    async def joined(self) -> str:
        """One more; its member, once every worker serves it."""
        status = 500 if self._started % 2 else 200
        self._started += 1

        async def answer(request: web.Request) -> web.Response:
            await request.read()
            return web.Response(status=status, text="x" * 100)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        await self._register("post", f"{host}:{port}")
        return f"{host}:{port}"

    async def left(self, member: str) -> None:
        await self._register("delete", member)

    async def _register(self, method: str, member: str) -> None:
        body = {"path": "/p", "target": member}
        async with self._slb.session.request(method, f"{self._serving.api}/register", json=body) as reply:
            assert reply.status == 200, await reply.text()

    async def send(self, count: int) -> None:
        for _ in range(count):
            at = time.time()
            async with self._slb.session.post(
                f"{self._serving.url}/p", data=b"four", headers={"Connection": "close"}
            ) as reply:
                self.sent.append((at, str(reply.status)[0]))

    def sent_between(self, start: float, end: float, digit: str = "") -> int:
        return sum(start <= at <= end and code.startswith(digit) for at, code in self.sent)


class Deploy:
    """A rolling deploy, under traffic and without any; `idle`: from when to when Prometheus can have seen nothing
    new."""

    def __init__(self, fleet: Fleet, prometheus: Prometheus) -> None:
        self._fleet = fleet
        self._prometheus = prometheus
        self.idle: list[tuple[float, float]] = []

    async def under_traffic(self, members: list[str]) -> None:
        fleet = self._fleet
        await fleet.send(BURST)
        running = asyncio.create_task(fleet.send(BURST))
        members.append(await fleet.joined())
        await fleet.left(members.pop(0))
        await running
        await fleet.send(BURST)

    async def in_peace(self, members: list[str], besides: Sequence[int] = ()) -> None:
        """`besides`: processes that are killed meanwhile."""
        since = await self._prometheus.scraped(after=time.time())
        members.append(await self._fleet.joined())
        await self._fleet.left(members.pop(0))
        for pid in besides:
            os.kill(pid, signal.SIGKILL)
        await self._prometheus.scraped(after=time.time() + IDLE + 2 * INTERVAL)
        self.idle.append((since, time.time()))


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def deployed(
    slb: Commands, serving: Serving, stack: AsyncExitStack, rounds: int, kills: bool
) -> tuple[Fleet, Deploy, Prometheus]:
    fleet = Fleet(slb, serving, stack)
    members = [await fleet.joined(), await fleet.joined()]
    target = serving.api.removeprefix("http://")
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, target, slb.session))
    deploy = Deploy(fleet, prometheus)
    for number in range(rounds):
        await deploy.under_traffic(members)
        pids = await until_all_ready(slb, serving) if kills else []
        await deploy.in_peace(members, pids[number % 2 : number % 2 + 1])
        if kills:
            await until_all_ready(slb, serving)
    return fleet, deploy, prometheus


async def check(fleet: Fleet, deploy: Deploy, prometheus: Prometheus) -> None:
    """rate() extrapolates what it saw to the ends of its window: what was sent bounds it only up to a factor, and
    hardly where series live short. So what it starts from is bounded exactly, and rate() itself where nothing was
    sent, or where series live long."""
    scrapes = await prometheus.scrapes()
    for name, digit in (
        ("slb_requests_total", ""),
        ('slb_requests_total{code=~"5.."}', "5"),
        ("slb_route_requests_total", ""),
        ('slb_route_requests_total{code="5xx"}', "5"),
        ("slb_request_duration_seconds_count", ""),
        ("slb_upstream_request_duration_seconds_count", ""),
        ("slb_response_bytes_total / 100", ""),
    ):
        metric, _, unit = name.partition(" / ")
        grown = [(at, value / float(unit or 1)) for at, value in growth(await prometheus.series(metric))]
        for at, later in pairwise(scrapes):  # what is counted while it answers counts too
            seen = sum(value for when, value in grown if when <= at)
            assert seen <= fleet.sent_between(0, later, digit), (name, at)
        for start, end in deploy.idle:
            rates = await prometheus.range(f"sum(rate({metric}[{int(IDLE * 1000)}ms]))", start + IDLE, end, 0.1)
            assert {value for _, value in rates} <= {0.0}, name
    await _totals_are_what_was_sent(fleet, prometheus, scrapes)


async def _totals_are_what_was_sent(fleet: Fleet, prometheus: Prometheus, scrapes: list[float]) -> None:
    """To the last request, for these are there before the first."""
    sent = Counter(digit for _, digit in fleet.sent)
    for digit in "25":
        grown = growth(await prometheus.series(f'slb_route_requests_total{{code="{digit}xx"}}'))
        assert sum(value for _, value in grown) == sent[digit] > 0
    gap = max(later - at for at, later in pairwise(scrapes))
    most = WINDOW / max(WINDOW - 2 * gap, INTERVAL)  # a window lacks a gap at each end, and is taken for whole
    rates: Series = await prometheus.range(
        f"sum(rate(slb_route_requests_total[{int(WINDOW * 1000)}ms]))", scrapes[0] + WINDOW, scrapes[-1], 0.1
    )
    assert rates
    for at, rate in rates:
        assert rate * WINDOW <= most * fleet.sent_between(at - WINDOW - gap, at + gap) + 1e-6


async def test_no_rate_is_above_what_was_sent_while_upstreams_come_and_go(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack
) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await check(*await deployed(slb, serving, stack, rounds=3, kills=False))


async def test_no_rate_is_above_what_was_sent_while_upstreams_and_workers_come_and_go(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack
) -> None:
    serving = await slb.until_ready(await slb.serve("--workers", "2", redis=valkey.url))
    await until_all_ready(slb, serving)
    await check(*await deployed(slb, serving, stack, rounds=2, kills=True))


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_promtool_finds_no_fault_with_the_metrics(
    slb: Commands, valkey: Valkey, stack: AsyncExitStack, workers: str
) -> None:
    serving = await slb.until_ready(await slb.serve("--workers", workers, redis=valkey.url))
    fleet = Fleet(slb, serving, stack)
    await fleet.joined()
    await slb.until_status(f"{serving.url}/p", 200)
    await slb.get(f"{serving.url}/nowhere")
    _, text = await slb.get(f"{serving.api}/metrics")
    for name in ("slb_build_info", "process_resident_memory_bytes", "process_open_fds"):
        assert text.count(f"\n{name}") == 1, name
    documented = "".join(file.read_text() for file in DOCUMENTS)
    assert [name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if f"`{name}" not in documented] == []
    promtool = await asyncio.create_subprocess_exec(
        PROMTOOL,
        "check",
        "metrics",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await promtool.communicate(text.encode())
    assert (promtool.returncode, output) == (0, b"")


@pytest.mark.parametrize("scraped", samples("yaml", "scrape_configs:"))
async def test_the_documented_scrape_configuration_is_accepted_and_scrapes(
    slb: Commands, valkey: Valkey, authority: Authority, stack: AsyncExitStack, scraped: str
) -> None:
    secret, _, toml = (await slb.run("token", "make", "--name", "prometheus", "--right", "metrics")).out.partition(
        "\n\n"
    )
    tokens, token = slb.directory / "tokens.toml", slb.directory / "slb-token"
    tokens.write_text(toml)
    token.write_text(secret)
    env = {"SLB_TOKENS_PATH": str(tokens), "SLB_API_TLS_CERTIFICATES": authority.issue("api", "127.0.0.1")}
    serving = await slb.serve(redis=valkey.url, env=env)
    for written, here in (
        ("/etc/prometheus/slb-ca.pem", str(authority.file)),
        ("/etc/prometheus/slb-token", str(token)),
        ('"slb-1.internal:8081", "slb-2.internal:8081"', f'"{serving.api.removeprefix("https://")}"'),
    ):
        assert written in scraped
        scraped = scraped.replace(written, here)
    file = slb.directory / "scraped.yml"
    file.write_text(scraped)
    promtool = await asyncio.create_subprocess_exec(PROMTOOL, "check", "config", file)
    assert await promtool.wait() == 0
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, "", slb.session, scraped))
    assert await prometheus.series("slb_build_info")


SHOWN = (
    (
        FLEET,
        {
            *("Instances", "Requests/s", "Failed", "In flight", "Upstreams out", "Answers by class of status"),
            *(
                "Duration",
                "Time to first byte",
                "Requests by instance",
                "Client connections",
                "Redis answers",
                "CPU",
            ),
            *("Staleness of the mirror", "Resident memory", "Descriptors in use", "API requests"),
        },
    ),
    (ROUTE, {"Requests by route", "Failed", "By status and reason", "Duration", "Bodies"}),
    (UPSTREAMS, {"In flight, added up", "Requests", "Mean time at the upstream"}),
)
"""The panels that show something, where nothing but traffic has happened."""


async def test_the_dashboards_show_what_a_fleet_does(slb: Commands, valkey: Valkey, stack: AsyncExitStack) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    fleet = Fleet(slb, serving, stack)
    await fleet.joined()
    await fleet.joined()
    target = serving.api.removeprefix("http://")
    prometheus = await stack.enter_async_context(Prometheus(slb.directory, target, slb.session))
    for _ in range(2):
        await fleet.send(BURST)
        await prometheus.scraped(after=time.time())
    for board, wanted in SHOWN:
        for each in board.variables:
            assert await prometheus.instant(substituted(f"count by ({each.label}) ({each.metric})")), each.name
        assert wanted - {panel.title for panel in board.panels if await shows(prometheus, panel)} == set()


async def shows(prometheus: Prometheus, panel: Panel) -> bool:
    """Whether a panel has a figure. Raises where Prometheus takes one of its expressions for faulty."""
    found = [await prometheus.instant(substituted(line.replace("%s", OURS))) for line in panel.lines]
    return any(not math.isnan(value) for values in found for value in values)
