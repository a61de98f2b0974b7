"""The health of this instance's upstreams: active and passive, followed by one loop."""

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from random import Random
from typing import Protocol
from zlib import crc32

from slb.addresses import AddressRules
from slb.control.cancelled import raise_if_cancelled
from slb.control.health_news import ANSWERING, FAILING, LATE, OF_REQUESTS, SLOW, SUSPECT, hear_of_requests
from slb.health.active import Active, ActiveTiming, Store
from slb.health.probe import Prober, TlsContext
from slb.health.roster import Roster
from slb.lifecycle import set_within
from slb.observe.changes import Note, unnoted
from slb.observe.health import HealthCounts
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.passive import Connect, Passive, connects_to_none

_GAP = 0.1
"""Seconds between two looks: what falls due meanwhile is asked for in one command."""
_TOLD_AFTER = 0.1
"""Seconds in which failures are added up, before the others are told."""
_MOST_TOLD = 100
"""Upstreams that are told of at once: where more fail, the others see it for themselves."""


class News(Protocol):
    """Gives what other instances find, and sends them what is found here: key, state, results in a row against it;
    or of a member or a route one of `NEWS`; or what failures or slow requests added (`FAILING`, `SLOW`, `LATE`), or
    how many answers came after failures (`ANSWERING`)."""

    async def run(self, on_news: Callable[[str, str, int], None]) -> None: ...
    async def publish(self, about: str, news: str, number: int = 0) -> None: ...


class HealthService:
    """What requests say of upstreams goes to `passive`; `run` does all else. `carries_traffic`: what other
    instances met counts here. `note`: for the fleet's log of changes. `instances`: how many carry traffic;
    `host`: that of this one; `elsewhere`: whether some of them are on others. `connect`: as `Passive` has it."""

    def __init__(
        self,
        mirror: Mirror,
        counts: HealthCounts,
        store: Store,
        news: News,
        rules: AddressRules,
        rng: Random,
        timing: ActiveTiming | None = None,
        gap: float = _GAP,
        tls: TlsContext | None = None,
        carries_traffic: bool = True,
        note: Note = unnoted,
        instances: Callable[[], int] = lambda: 1,
        connect: Connect = connects_to_none,
        host: str = "",
        elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        self._mirror = mirror
        self._news = news
        self._gap = gap
        self._wake = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._carries_traffic = carries_traffic
        self._unpublished: dict[str, tuple[str, int]] = {}
        self._publishing: asyncio.Task[None] | None = None
        self._availability = Availability(mirror, counts, note)
        self._teller = f"{rng.getrandbits(64):016x}"
        self._telling: asyncio.TimerHandle | None = None
        self.passive = Passive(
            mirror,
            self._availability,
            counts,
            time.monotonic,
            self._wake.set,
            self._publish,
            self._tell_soon,
            instances,
            connect,
            rng.getrandbits(29),
        )
        self._make_prober = partial(Prober, rules, tls)
        self._make_active = partial(
            Active,
            store,
            availability=self._availability,
            counts=counts,
            passed=self.passive.passed,
            rng=rng,
            clock=time.monotonic,
            note=note,
            timing=timing or ActiveTiming(),
            host=f"{crc32(host.encode()):08x}",
            elsewhere=elsewhere,
        )
        mirror.on_swap(lambda _: self._wake.set())

    async def run(self) -> None:
        """Check, eject and let back, until cancelled."""
        prober = self._make_prober()
        active = self._make_active(prober)
        roster = Roster(self._availability, active.add)
        try:
            await self._loop(active, roster)
        finally:
            if self._telling is not None:
                self._telling.cancel()
            for task in (self._listening, self._publishing):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
            await active.aclose()
            await prober.aclose()

    async def _loop(self, active: Active, roster: Roster) -> None:
        while True:
            self._wake.clear()
            await roster.follow(self._mirror.table)
            self.passive.sweep()
            await active.turn()
            raise_if_cancelled()
            self._listen(active, roster)
            await asyncio.sleep(self._gap)
            dues = [due for due in (active.due(), self.passive.due()) if due is not None]
            await set_within(self._wake, min(dues) - time.monotonic() if dues else None)

    def _listen(self, active: Active, roster: Roster) -> None:
        """Follow what other instances find; without traffic, from the first check on. Raises the exception that
        ended the task: it should not end."""
        if self._listening is not None and self._listening.done():
            self._listening.result()
        if self._listening is None and (self._carries_traffic or active.due() is not None):
            self._listening = asyncio.create_task(self._news.run(partial(self._receive, active, roster)))

    def _receive(self, active: Active, roster: Roster, key: str, state: str, run: int) -> None:
        if state in OF_REQUESTS:
            if self._carries_traffic:
                hear_of_requests(self.passive, key, state, run, self._teller)
        elif state == SUSPECT:
            host, _, key = key.partition(" ")
            if (watched := roster.named(key)) is not None:
                active.suspect(watched, host, run)
        elif (watched := roster.named(key)) is not None:
            active.adopt(watched, state, run)

    def _tell_soon(self) -> None:
        """Failures of the next moment are told together."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TOLD_AFTER, self._tell)

    def _tell(self) -> None:
        self._telling = None
        judge = self.passive.judge
        for told in islice(judge.telling(), _MOST_TOLD):
            about = f"{told.path} {told.upstream.member} {self._teller} {told.answers}"
            if told.added:
                self._publish(about, FAILING, round(100 * told.added))
            else:
                self._publish(about, ANSWERING, math.ceil(100 * told.left))
        for slow in islice(judge.telling_slow(), _MOST_TOLD):
            about = f"{slow.path} {slow.upstream.member} {self._teller} {round(1000 * slow.seconds)}"
            self._publish(about, LATE if slow.is_open else SLOW, round(100 * slow.added))

    def _publish(self, about: str, news: str, number: int = 0) -> None:
        """One after another, only the last of each member."""
        self._unpublished[about] = news, number
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_all())

    async def _publish_all(self) -> None:
        while self._unpublished:
            about = next(iter(self._unpublished))
            await self._news.publish(about, *self._unpublished.pop(about))
