"""The health of this instance's upstreams: active and passive, followed by one loop."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from slb.addresses import AddressRules
from slb.control.cancelled import raise_if_cancelled
from slb.control.health_news import REFUSED, SERVED
from slb.health.active import Active, ActiveTiming, Store
from slb.health.probe import Prober, TlsContext
from slb.health.roster import Roster
from slb.lifecycle import set_within
from slb.observe.changes import Note, unnoted
from slb.observe.health import HealthCounts
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.passive import Passive

_GAP = 0.1
"""Seconds between two looks: what falls due meanwhile is asked for in one command."""


class News(Protocol):
    """Gives what other instances find: key, state, results in a row against it; or of a member `REFUSED` or
    `SERVED`, which `publish` sends to them."""

    async def run(self, on_news: Callable[[str, str, int], None]) -> None: ...
    async def publish(self, member: str, news: str) -> None: ...


class HealthService:
    """`passive.failed` and `passive.refused` are for the proxy to call; `run` does all else. `carries_traffic`:
    refusals that other instances met count here. `note`: for the fleet's log of changes."""

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
    ) -> None:
        self._mirror = mirror
        self._news = news
        self._gap = gap
        self._wake = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._carries_traffic = carries_traffic
        self._unpublished: dict[str, str] = {}
        self._publishing: asyncio.Task[None] | None = None
        self._availability = Availability(mirror, counts, note)
        self.passive = Passive(mirror, self._availability, counts, time.monotonic, self._wake.set, self._publish)
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
        if state in (REFUSED, SERVED):
            if self._carries_traffic:
                self.passive.receive(key, state == REFUSED)
        elif (watched := roster.named(key)) is not None:
            active.adopt(watched, state, run)

    def _publish(self, member: str, refused: bool) -> None:
        """One after another, only the last of each member."""
        self._unpublished[member] = REFUSED if refused else SERVED
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_all())

    async def _publish_all(self) -> None:
        while self._unpublished:
            member = next(iter(self._unpublished))
            await self._news.publish(member, self._unpublished.pop(member))
