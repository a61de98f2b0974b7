"""A route that is changed through instances, its settings and drain flags too, written down here, and compared with
what each of them shows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from aiohttp import ClientError, ClientSession

from tests.chaos.checker import Violation
from tests.chaos.cluster import Instance
from tests.support.redis_nodes import NoMaster, RedisServer

PATH = "/q"
KEY, SETTINGS_KEY, UPSTREAM_KEY = "slb_q", "slb:route:/q", "slb:upstream:"
DEFAULTS = {"retries": 1, "max_inflight": 0, "queue_limit": 1000}
"""The settings that are changed."""
STEADY = "10.9.255.1:80"
LEASED = "10.9.255.2:80"
"""Has a lease that is renewed all the while, each time with the same weight."""
DRAINABLE = STEADY, LEASED
LAPSED = "10.9.255.3:80"
"""Has a lease that is not renewed."""

LEASED_SECONDS, LAPSED_SECONDS = 15, 5
RENEW_SECONDS, RENEW_DEADLINE = 1.0, 3.0
SOON = 5.0
"""Seconds in which every table has to be right again."""

WRITTEN = frozenset({200, 202, 404})
"""Statuses of a change that Redis has, be it served by that instance yet or not, or that it had before."""

SET = frozenset({200, 202})

ANSWER_SECONDS = 20.0
_LOOK = 0.1


class RouteBook:
    """`truth`: the members that were registered and not deregistered, whatever Redis remembers; `settings` and
    `drained`: what was set on the route and on them. No requests are sent to them."""

    def __init__(self, session: ClientSession, server: RedisServer, rng: Random) -> None:
        self._session = session
        self._server = server
        self._rng = rng
        self._number = 0
        self.truth: set[str] = set()
        self.settings = dict(DEFAULTS)
        self.drained: set[str] = set()

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
        """One more, and often one less; and `amend`. Only while Redis is whole: it has to be answered."""
        for _ in range(times):
            await self.amend(instances)
            self._number += 1
            await self._call("POST", instances, f"10.9.{self._number // 250}.{self._number % 250 + 1}:80")
            others = sorted(self.truth - {STEADY, LEASED})
            if len(others) > 2:
                await self._call("DELETE", instances, self._rng.choice(others))

    async def amend(self, instances: Sequence[Instance]) -> None:
        """Set a setting, or take it back to its default; drain a member, or put it back. Nothing else of the two
        hashes may change by it, whatever Redis has lost of them the moment before."""
        name = self._rng.choice(list(DEFAULTS))
        value = self._rng.choice([None, *range(2, 10)])
        await self._patch(instances, f"/routes{PATH}", {name: value})
        self.settings[name] = DEFAULTS[name] if value is None else value
        member = self._rng.choice(sorted(self.truth.intersection(DRAINABLE)))
        await self._patch(instances, f"/upstreams/{member}", {"drain": member not in self.drained})
        self.drained ^= {member}

    async def judged(self, instances: Sequence[Instance], now: float, what: str) -> list[Violation]:
        """One for all tables, Redis's own among them, that are not right within SOON and are wrong in the same way;
        they are put right then."""
        wrong: dict[str, set[str]] = {}
        try:
            async with asyncio.timeout(SOON):
                while wrong := await self._wrong(instances):
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            pass  # what is wrong still is reported
        alike: dict[str, list[str]] = {}
        for instance, has in wrong.items():
            alike.setdefault(self._difference(has), []).append(instance)
        found = [
            Violation("routes", now, f"{' '.join(names)}: {difference}: {what}")
            for difference, names in alike.items()
        ]
        if wrong:
            await self._mend(instances, set().union(*wrong.values()))
        return found

    async def _wrong(self, instances: Sequence[Instance]) -> dict[str, set[str]]:
        shown = {each.name: await self._shown(each) for each in instances}
        shown["Redis"] = await asyncio.to_thread(self._stored)
        return {instance: has for instance, has in shown.items() if has != self._right}

    @property
    def _right(self) -> set[str]:
        return _facts(self.truth, self.drained, self.settings)

    def _stored(self) -> set[str]:
        def at(key: str) -> Any:
            return self._server.admin_of(key)

        try:
            drained = [
                each for each in DRAINABLE if at(UPSTREAM_KEY + each).hget(UPSTREAM_KEY + each, "drain") == "true"
            ]
            settings = at(SETTINGS_KEY).hgetall(SETTINGS_KEY)
            return _facts(at(KEY).smembers(KEY), drained, DEFAULTS | settings)
        except NoMaster:
            return set()

    async def _shown(self, instance: Instance) -> set[str]:
        try:
            async with self._session.get(f"{instance.api}/routes{PATH}") as reply:
                if reply.status != 200:
                    return set()
                route = await reply.json()
                members = [each["member"] for each in route["members"]]
                drained = [each["member"] for each in route["members"] if each["drain"]]
                return _facts(members, drained, route["settings"])
        except (ClientError, TimeoutError, OSError):
            return set()

    def _difference(self, has: set[str]) -> str:
        more, less = sorted(has - self._right), sorted(self._right - has)
        return f"{' '.join(more) or 'none'} too many, {' '.join(less) or 'none'} missing"

    async def _mend(self, instances: Sequence[Instance], shown: set[str]) -> None:
        for member in sorted(self.truth):
            await self._call("POST", instances, member)
        for member in sorted(each for each in shown - self._right if each.endswith(":80")):
            await self._call("DELETE", instances, member)
        await self._patch(instances, f"/routes{PATH}", self.settings)
        for member in DRAINABLE:
            await self._patch(instances, f"/upstreams/{member}", {"drain": member in self.drained})

    async def _call(self, method: str, instances: Sequence[Instance], member: str, ttl: int | None = None) -> None:
        """Asked again while it is refused: the next fault may have come already. Raises TimeoutError."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while await self._status(method, self._rng.choice(instances), member, ttl) not in WRITTEN:
                await asyncio.sleep(_LOOK)
        (self.truth.add if method == "POST" else self.truth.discard)(member)

    async def _status(self, method: str, instance: Instance, member: str, ttl: int | None) -> int:
        attributes = {"weight": 2} if member == LEASED and ttl else {}
        body = {"path": PATH, "target": member, **attributes, **({"ttl": ttl} if ttl else {})}
        return await self._answer(method, f"{instance.api}/register", body)

    async def _patch(self, instances: Sequence[Instance], path: str, changes: Mapping[str, object]) -> None:
        """Asked again as above; 404 too, which an instance answers that has just started."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while await self._answer("PATCH", self._rng.choice(instances).api + path, changes) not in SET:
                await asyncio.sleep(_LOOK)

    async def _answer(self, method: str, url: str, body: Mapping[str, object]) -> int:
        try:
            async with self._session.request(method, url, json=body) as reply:
                return reply.status
        except (ClientError, OSError):
            return 0


def _facts(members: Iterable[str], drained: Iterable[str], settings: Mapping[str, object]) -> set[str]:
    """All that is compared, a text each."""
    return {
        *members,
        *(f"{each} drained" for each in drained),
        *(f"{name}={settings[name]}" for name in DEFAULTS),
    }
