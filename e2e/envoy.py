"""`python -m e2e.envoy`: two real Envoys, two external processors, twenty pods of one slot; what is promised of
them (docs/envoy.md) is shown one thing after another."""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
from rich.console import Console

from e2e.envoy_config import ADDRESS
from e2e.envoy_fleet import PODS, ROUTE, Fleet
from e2e.topology import CannotRun, patience

_SERVICE = "X-Service-Time"
_LOOK = 0.05
_SECONDS = 20.0
"""Between two looks at what has to become true, and until when, on an idle machine."""


class Broken(Exception):
    """What was promised and did not come, for a person."""


@dataclass(frozen=True)
class Answer:
    """`status` 0: there was none."""

    status: int
    pod: str = ""
    retry_after: str = ""
    body: str = ""


class Scenario:
    """Each method shows one promise, and leaves the fleet as it was. Raises Broken."""

    def __init__(self, fleet: Fleet, http: aiohttp.ClientSession) -> None:
        self._fleet = fleet
        self._http = http

    async def _get(self, number: int, seconds: float = 0.05, port: int = 0) -> Answer:
        """Through the Envoys in turn, or through `port`."""
        envoys = self._fleet.envoys
        url = f"http://{ADDRESS}:{port or envoys[number % len(envoys)]}{ROUTE}/{number}"
        try:
            async with self._http.get(url, headers={_SERVICE: f"{seconds}s"}) as reply:
                headers = reply.headers
                return Answer(
                    reply.status, headers.get("X-Upstream", ""), headers.get("Retry-After", ""), await reply.text()
                )
        except aiohttp.ClientError:
            return Answer(0)

    async def _all(self, count: int, seconds: float = 0.05, through_proxy: int = 0) -> Sequence[Answer]:
        """At once; every so many of them through slb's own proxy instead."""
        proxy = self._fleet.proxy
        ports = [proxy if through_proxy and each % through_proxy == 0 else 0 for each in range(count)]
        return await asyncio.gather(*(self._get(each, seconds, ports[each]) for each in range(count)))

    async def routes(self) -> str:
        """Twenty requests at once meet twenty pods, whichever Envoy and processor they pass; five times."""
        await self._set(policy="least_inflight", max_inflight=1)
        for _ in range(5):
            answers = await self._all(PODS, 0.5)
            _expect(_statuses(answers) == {200: PODS}, _failures(answers))
            _expect(len({each.pod for each in answers}) == PODS, f"pods {Counter(each.pod for each in answers)}")
            await self._until_free()
        return f"5 times {PODS} requests at once, each at a pod of its own"

    async def sheds(self) -> str:
        """More than the pods' slots are refused, with what slb's proxy would say."""
        await self._set(policy="least_inflight", max_inflight=1)
        answers = await self._all(PODS + 10, 1.0)
        _expect(_statuses(answers) == {200: PODS, 503: 10}, _failures(answers))
        refused = [each for each in answers if each.status == 503]
        _expect(all(each.retry_after for each in refused), "Retry-After is missing")
        _expect(
            {json.loads(each.body)["error"] for each in refused} == {"pool_saturated"}, f"bodies {refused[0].body}"
        )
        await self._until_free()
        return f"{PODS} of {PODS + 10} served, 10 refused: pool_saturated, Retry-After {refused[0].retry_after}"

    async def queues(self) -> str:
        """With a queue all are served, three each, whether they come through Envoys or slb's proxy."""
        await self._set(policy="least_inflight", max_inflight=1, when_full="queue", queue_timeout="60s")
        answers = await self._all(3 * PODS, 1.0, through_proxy=3)
        _expect(_statuses(answers) == {200: 3 * PODS}, _failures(answers))
        served = Counter(each.pod for each in answers)
        _expect(set(served.values()) == {3}, f"pods {served}")
        await self._until_free()
        return f"{3 * PODS} requests at once, a third through slb's proxy: all served, 3 by each pod"

    async def client_aborts(self) -> str:
        """Clients that leave, served or waiting, leave no slot behind."""
        await self._set(policy="least_inflight", max_inflight=1, when_full="queue", queue_timeout="60s")
        leaving = [asyncio.create_task(self._get(each, 30.0)) for each in range(PODS + 10)]
        await self._until(lambda: self._fleet.held() == PODS, "all slots to be taken")
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await self._until_free()
        await self._pods_are_idle()
        return f"{PODS + 10} clients left, {PODS} of them served and 10 waiting: no slot is held"

    async def envoy_dies(self) -> str:
        """kill -9 of an Envoy frees what its requests held, and takes those out of the queue that waited."""
        await self._set(policy="least_inflight", max_inflight=1, when_full="queue", queue_timeout="60s")
        lost = [asyncio.create_task(self._get(2 * each, 30.0)) for each in range(PODS + 10)]  # all by the first
        await self._until(lambda: self._fleet.held() == PODS, "all slots to be taken")
        self._fleet.kill_envoy(0)
        await asyncio.gather(*lost)
        await self._until_free()
        await asyncio.to_thread(self._fleet.start_envoy, 0)
        await self._pods_are_idle()
        return f"killed with {PODS} requests, and 10 that waited: no slot is held; and started again"

    async def one_processor_dies(self) -> str:
        """Of two: not one request fails, and it takes part again once it is back."""
        await self._set(policy="least_inflight")
        async with _Traffic(self._get) as traffic:
            await asyncio.sleep(1.0)
            self._fleet.kill_processor(0)
            await asyncio.sleep(3.0)
            await self._returns(0)
        _expect(set(traffic.statuses) == {200}, f"statuses {traffic.statuses}")
        return f"{traffic.statuses[200]} requests meanwhile, 0 failed; it takes part again"

    async def all_processors_die(self) -> str:
        """Envoy balances by itself, and asks again once they are back."""
        await self._set(policy="least_inflight")
        async with _Traffic(self._get) as traffic:
            await asyncio.sleep(1.0)
            for number in range(len(self._fleet.processors)):
                self._fleet.kill_processor(number)
            before = traffic.statuses.total()
            await asyncio.sleep(3.0)
            alone = traffic.statuses.total() - before
            for number in range(len(self._fleet.processors)):
                await self._returns(number)
        _expect(set(traffic.statuses) == {200}, f"statuses {traffic.statuses}")
        _expect(alone > 0, "no request came through while there was no processor")
        return f"{traffic.statuses[200]} requests, {alone} without any processor, 0 failed; both take part again"

    # -- what the above share

    async def _set(self, **settings: str | int) -> None:
        await asyncio.to_thread(lambda: self._fleet.settings(**settings))

    async def _returns(self, number: int) -> None:
        fleet = self._fleet
        await asyncio.to_thread(fleet.start_processor, number)
        await asyncio.to_thread(fleet.wait_for_processor, number)
        await self._until(lambda: fleet.answered_by(number) > 0, "it to be asked again")

    async def _until_free(self) -> None:
        await self._until(lambda: self._fleet.held() == 0, "all slots to be free")

    async def _pods_are_idle(self) -> None:
        """A pod serves what it has begun to its end, whoever has left: ask until each answers at once."""

        async def idle() -> bool:
            asked = (self._get(0, 0.0, port) for port in self._fleet.pods)
            with suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    return all(each.status == 200 for each in await asyncio.gather(*asked))
            return False

        await self._until_true(idle, "the pods to be idle", 60.0)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        async def looked() -> bool:
            return await asyncio.to_thread(holds)

        await self._until_true(looked, what)

    async def _until_true(self, holds: Callable[[], Awaitable[bool]], what: str, seconds: float = _SECONDS) -> None:
        end = time.monotonic() + patience(seconds)
        while not await holds():
            if time.monotonic() > end:
                raise Broken(f"waited in vain for {what}: {self._fleet.held()} slots are held")
            await asyncio.sleep(_LOOK)


class _Traffic:
    """Ten requests at a time while it is entered. `statuses`: how many ended how."""

    def __init__(self, get: Callable[[int], Awaitable[Answer]]) -> None:
        self.statuses: Counter[int] = Counter()
        self._get = get
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "_Traffic":
        self._tasks = [asyncio.create_task(self._send(each)) for each in range(10)]
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def _send(self, number: int) -> None:
        while not self._is_over:
            self.statuses[(await self._get(number)).status] += 1


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def _statuses(answers: Sequence[Answer]) -> Counter[int]:
    return Counter(each.status for each in answers)


def _failures(answers: Sequence[Answer]) -> str:
    told = {each.status: each.body for each in answers if each.status != 200}
    return f"statuses {dict(_statuses(answers))}, such as {told}"


async def _play(fleet: Fleet, console: Console, only: Sequence[str]) -> bool:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(90)) as http:
        scenario = Scenario(fleet, http)
        acts = (
            "routes",
            "sheds",
            "queues",
            "client_aborts",
            "envoy_dies",
            "one_processor_dies",
            "all_processors_die",
        )
        good = True
        for act in only or acts:
            try:
                console.print(f"{act:20} {await getattr(scenario, act)()}", markup=False, highlight=False)
            except Broken as error:
                good = False
                console.print(f"{act:20} BROKEN: {error}", style="red", markup=False, highlight=False)
        return good


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all that was promised came, else 1."""
    parser = argparse.ArgumentParser(prog="python -m e2e.envoy")
    parser.add_argument("acts", nargs="*", help="the only ones to be played")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console(soft_wrap=True)
    try:
        console.print("starting Redis, a proxy, two external processors, two Envoys, twenty pods")
        with Fleet() as fleet:
            return 0 if asyncio.run(_play(fleet, console, given.acts)) else 1
    except CannotRun as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
