"""A route that is changed through instances, written down here, and compared with what each of them shows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from aiohttp import ClientError, ClientSession

from tests.chaos.checker import Violation
from tests.chaos.cluster import Instance
from tests.chaos.server import Server

PATH = "/q"
KEY = "slb_q"
STEADY = "10.9.255.1:80"
LEASED = "10.9.255.2:80"
"""Has a lease that is renewed all the while."""
LAPSED = "10.9.255.3:80"
"""Has a lease that is not renewed."""

LEASED_SECONDS, LAPSED_SECONDS = 15, 5
RENEW_SECONDS, RENEW_DEADLINE = 1.0, 3.0
SOON = 5.0
"""Seconds in which every table has to be right again."""

WRITTEN = frozenset({200, 202, 404})
"""Statuses of a change that Redis has, be it served by that instance yet or not, or that it had before."""

ANSWER_SECONDS = 20.0
_LOOK = 0.1


class RouteBook:
    """`truth`: the members that were registered and not deregistered, whatever Redis remembers. No requests are
    sent to them."""

    def __init__(self, session: ClientSession, server: Server, rng: Random) -> None:
        self._session = session
        self._server = server
        self._rng = rng
        self._number = 0
        self.truth: set[str] = set()

    async def begin(self, instances: Sequence[Instance]) -> None:
        """Register the first ones."""
        await self._call("POST", instances, STEADY)
        await self.change(instances, 3)

    @asynccontextmanager
    async def renewing(self, alive: Callable[[], Sequence[Instance]]) -> AsyncIterator[None]:
        """LEASED is registered, and renewed until this ends; `alive` gives the instances of the moment."""
        await self._call("POST", alive(), LEASED, LEASED_SECONDS)
        renewing = asyncio.create_task(self._renew(alive))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, alive: Callable[[], Sequence[Instance]]) -> None:
        rng = Random(1)  # the other one gives the run its order, which must not depend on how many calls there are
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                async with asyncio.timeout(RENEW_DEADLINE):
                    await self._status("POST", rng.choice(alive()), LEASED, LEASED_SECONDS)
            except TimeoutError:
                continue  # that instance is frozen: another is called

    async def let_lapse(self, instances: Sequence[Instance]) -> None:
        """Register LAPSED. Only while nothing is done to Redis: every table is right without it LAPSED_SECONDS and
        2 s later."""
        await self._call("POST", instances, LAPSED, LAPSED_SECONDS)
        self.truth.discard(LAPSED)

    async def change(self, instances: Sequence[Instance], times: int = 1) -> None:
        """One more, and often one less. Only while Redis is whole: it has to be answered."""
        for _ in range(times):
            self._number += 1
            await self._call("POST", instances, f"10.9.{self._number // 250}.{self._number % 250 + 1}:80")
            others = sorted(self.truth - {STEADY, LEASED})
            if len(others) > 2:
                await self._call("DELETE", instances, self._rng.choice(others))

    async def judged(self, instances: Sequence[Instance], now: float, what: str) -> list[Violation]:
        """One for all tables, Redis's own among them, that are not right within SOON and are wrong in the same way;
        they are put right then."""
        wrong: dict[str, set[str]] = {}
        try:
            async with asyncio.timeout(SOON):
                while wrong := await self._wrong(instances):
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            pass  # what is wrong still is told
        alike: dict[str, list[str]] = {}
        for who, has in wrong.items():
            alike.setdefault(self._difference(has), []).append(who)
        found = [
            Violation("routes", now, f"{' '.join(who)}: {difference}: {what}") for difference, who in alike.items()
        ]
        if wrong:
            await self._mend(instances, set().union(*wrong.values()))
        return found

    async def _wrong(self, instances: Sequence[Instance]) -> dict[str, set[str]]:
        shown = {each.name: await self._shown(each) for each in instances}
        admin: Any = self._server.admin
        shown["Redis"] = set(await asyncio.to_thread(admin.smembers, KEY))
        return {who: has for who, has in shown.items() if has != self.truth}

    async def _shown(self, instance: Instance) -> set[str]:
        try:
            async with self._session.get(f"{instance.api}/routes{PATH}") as reply:
                if reply.status != 200:
                    return set()
                return {each["member"] for each in (await reply.json())["members"]}
        except (ClientError, TimeoutError, OSError):
            return set()

    def _difference(self, has: set[str]) -> str:
        more, less = sorted(has - self.truth), sorted(self.truth - has)
        return f"{' '.join(more) or 'none'} too many, {' '.join(less) or 'none'} missing"

    async def _mend(self, instances: Sequence[Instance], shown: set[str]) -> None:
        for member in sorted(self.truth):
            await self._call("POST", instances, member)
        for member in sorted(shown - self.truth):
            await self._call("DELETE", instances, member)

    async def _call(self, method: str, instances: Sequence[Instance], member: str, ttl: int | None = None) -> None:
        """Asked again while it is refused: the next fault may have come already. Raises TimeoutError."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while await self._status(method, self._rng.choice(instances), member, ttl) not in WRITTEN:
                await asyncio.sleep(_LOOK)
        (self.truth.add if method == "POST" else self.truth.discard)(member)

    async def _status(self, method: str, instance: Instance, member: str, ttl: int | None) -> int:
        body = {"path": PATH, "target": member, **({"ttl": ttl} if ttl else {})}
        try:
            async with self._session.request(method, f"{instance.api}/register", json=body) as reply:
                return reply.status
        except (ClientError, OSError):
            return 0
