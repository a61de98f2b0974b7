"""Whole gates of several instances in one process, on one real Valkey, with clients that never stop asking; and
upstreams that record how many requests they had at once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from types import TracebackType

from slb.admission.entry import Entry
from slb.admission.gate import Gate
from slb.admission.gates import Gates, turn_of
from slb.balance.upstream import Handle
from slb.control.connection import Connection
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.errors import Reason
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey
from tests.support.waiting import eventually
from tests.unit.routing.mirror_rig import make_mirror, record, replace

ROUTE = "/p"
CAPPED = {"max_inflight": "1", "policy": "least_inflight"}
QUEUED = {**CAPPED, "when_full": "queue", "queue_timeout": "60s"}


class Pods:
    """The upstreams of a test. `running`: by member, what each has now; `over`: the most one ever had above
    `capacity`."""

    def __init__(self, count: int, capacity: int = 1) -> None:
        self.members = [f"10.0.0.{number}:80" for number in range(1, count + 1)]
        self.running: Counter[str] = Counter()
        self.served = 0
        self.most = 0
        self.over = 0
        self._capacity = capacity

    def begin(self, member: str) -> None:
        self.running[member] += 1
        self.over = max(self.over, self.running[member] - self._capacity)
        self.most = max(self.most, self.running.total())

    def end(self, member: str) -> None:
        self.running[member] -= 1
        self.served += 1


class Visit:
    """One request at a gate. `answer`: the member it was admitted to, or the reason it was turned away for."""

    def __init__(self, pods: Pods, service: float | None) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.entry: Entry | None = None
        self.handle: Handle | None = None
        self._pods = pods
        self._service = service

    def admitted(self, handle: Handle) -> None:
        self.handle = handle
        self._pods.begin(handle.upstream.member)
        self.answer.set_result(handle.upstream.member)
        if self._service is not None:
            asyncio.get_running_loop().call_later(self._service, self.end)

    def rejected(self, reason: Reason, detail: str) -> None:
        self.answer.set_result(reason.name)
        self.ended.set()

    def end(self) -> None:
        """Its upstream has answered."""
        assert self.handle is not None
        self._pods.end(self.handle.upstream.member)
        self.handle.release()
        self.ended.set()


class Proxy:
    """One instance without its sockets: ledger, mirror, gates. Nothing of Redis is asked for before `start`."""

    def __init__(
        self, url: str, name: str, pods: Pods, timing: LaneTiming, fleet: int, settings: dict[str, str]
    ) -> None:
        self.metrics = Metrics()
        self.connection = Connection(url, self.metrics)
        self.ledger = Ledger(self.connection, name, self.metrics, Random(name), timing)
        self.mirror = make_mirror()
        self.pods = pods
        self.gates = Gates(self.ledger, self.mirror, self.metrics, lambda: fleet, Random(name))
        self._settings = settings
        self._clients: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Have the route."""
        replace(self.mirror, {ROUTE: record(*self.pods.members, **self._settings)})
        self._tasks = [asyncio.create_task(self.ledger.run()), asyncio.create_task(self.gates.run())]

    @property
    def gate(self) -> Gate:
        """That of the only route."""
        return self.gates.of(self.mirror.table.routes[ROUTE])

    def visit(self, service: float | None = None) -> Visit:
        """A request that comes now, and takes so many seconds; None: until the test ends it."""
        route = self.mirror.table.routes[ROUTE]
        visit = Visit(self.pods, service)
        visit.entry = self.gate.enter(route, (), (), turn_of(route.settings, ""), visit)
        return visit

    def send_clients(self, count: int, service: float) -> None:
        """So many that ask one request after another until `stop`."""
        self._clients += [asyncio.create_task(self._client(service)) for _ in range(count)]

    async def _client(self, service: float) -> None:
        while True:
            visit = self.visit(service)
            await visit.ended.wait()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End without a word."""
        for task in (*self._clients, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._clients, *self._tasks, return_exceptions=True)
        await self.connection.aclose()


class Fleet:
    """Use with `async with`: so many instances that have all joined, unless `cold`; named `i<number>` from `first`
    on."""

    def __init__(
        self,
        valkey: Valkey,
        count: int,
        pods: Pods,
        settings: dict[str, str],
        timing: LaneTiming | None = None,
        url: str = "",
        cold: bool = False,
        first: int = 0,
    ) -> None:
        self._cold = cold
        self._stack = AsyncExitStack()
        self.pods = pods
        self.proxies = [
            Proxy(url or valkey.url, f"i{number}", pods, timing or LaneTiming(), count, settings)
            for number in range(first, first + count)
        ]

    async def __aenter__(self) -> "Fleet":
        for each in self.proxies:
            each.start()
            self._stack.push_async_callback(each.stop)
        if not self._cold:
            await eventually(
                lambda: all(each.gate.lane.state.answered.is_set() for each in self.proxies), what="joined"
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def send_clients(self, count: int, service: float) -> None:
        """So many to each instance."""
        for each in self.proxies:
            each.send_clients(count, service)

    async def serves(self, more: int) -> None:
        """Until so many more requests have been served."""
        wanted = self.pods.served + more
        await eventually(lambda: self.pods.served >= wanted, timeout=30, what=f"{more} more served")

    def all(self, condition: Callable[[Gate], bool]) -> bool:
        """Whether it holds of every gate."""
        return all(condition(each.gate) for each in self.proxies)
