"""Three real instances on one real Valkey, clients that come and go, and what can be done to all of them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

import orjson
from aiohttp import ClientError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from slb.control.cancelled import raise_if_cancelled
from slb.control.keys import pool_keys
from tests.chaos.history import Expired, History, Left, Queued, Returned, Scored, Span
from tests.chaos.upstream import ASK, INSTANCE, PRIORITY, Leases, Upstream
from tests.process.commands import Commands, Serving
from tests.support.redis_nodes import NoMaster, RedisServer
from tests.support.waiting import eventually

PRIORITIES = {"critical": 3, "batch": 1}
_LOOK = 0.025
_SETTLE = 2.5
"""Seconds in which instances send what they hold to a Redis that lost its data."""
_INFLIGHT, _HOLDERS = pool_keys("/p")[:2]


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that a client waited for to its end and that was not answered with 200; 0 is no answer."""

    asked: float
    time: float
    instance: str
    status: int


class Instance:
    """A `slb serve`; `id` is what it calls itself in Redis."""

    def __init__(self, name: str, serving: Serving, identity: str) -> None:
        self.name = name
        self.id = identity
        self.url = f"{serving.url}/p"
        self.api = serving.api
        self.process = serving.process

    def turns(self) -> list[tuple[float, bool]]:
        """When it began to decide alone (False), and when with all the others again (True)."""
        found = []
        for line in self.process.log.read_bytes().splitlines():
            if b"ledger_shared" in line or b"ledger_local" in line:
                event = orjson.loads(line)
                found.append((datetime.fromisoformat(event["timestamp"]).timestamp(), "shared" in event["event"]))
        return found

    @property
    def shares(self) -> bool:
        """Whether Redis decides with it. A trouble that is shorter than its patience does not turn it at all."""
        return all(shared for _, shared in self.turns()[-1:])


class Cluster:
    """`start` instances, let `clients` come, break things; `history` has all of it."""

    def __init__(
        self, slb: Commands, valkey: RedisServer, history: History, leases: Leases, upstreams: Iterable[Upstream]
    ) -> None:
        self.history = history
        self._leases = leases
        self.alive: list[Instance] = []
        self._slb = slb
        self._valkey = valkey
        self.members = frozenset(upstream.member for upstream in upstreams)
        self._everybody: list[Instance] = []
        self._asks = 0
        self._has_moved = False
        self.failures: list[Failure] = []

    def register(self) -> None:
        """The route, written before any instance reads it."""
        admin = self._valkey.admin_of
        weights = ",".join(f"{name}={weight}" for name, weight in PRIORITIES.items())
        settings = {"policy": "least_inflight", "max_inflight": "1", "when_full": "queue", "priorities": weights}
        admin("slb:route:/p").hset("slb:route:/p", mapping=settings)
        admin("slb_p").sadd("slb_p", *self.members)

    async def start(self) -> Instance:
        """One more instance, ready."""
        name = f"i{len(self._everybody)}"
        serving = await self._slb.serve("--name", name, "--log-format", "json", redis=self._valkey.url)
        await self._slb.until_ready(serving)
        made = Instance(name, serving, (await self._slb.json(f"{serving.api}/status"))["id"])
        self._everybody.append(made)
        self.alive.append(made)
        return made

    # -- clients

    @asynccontextmanager
    async def clients(self, count: int, rng: Random) -> AsyncIterator[None]:
        """So many, each with one request after another, until this ends; then all are answered."""
        stopping = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._client(stopping, Random(rng.random())))
            try:
                yield
            finally:
                stopping.set()

    async def _client(self, stopping: asyncio.Event, rng: Random) -> None:
        while not stopping.is_set():
            patience = rng.uniform(0, 2) if rng.random() < 0.1 else None
            await self._ask(rng.choice(self.alive), rng.choice(list(PRIORITIES)), patience)

    async def _ask(self, instance: Instance, priority: str, patience: float | None) -> None:
        self._asks += 1
        ask = f"r{self._asks}"
        now = self.history.clock()
        self.history.add(Queued(now, ask, instance.name, "/p", priority, self._asks, self.members))
        headers = {ASK: ask, INSTANCE: instance.name, PRIORITY: priority, "Connection": "close"}
        status, has_left = 0, False
        try:
            async with asyncio.timeout(patience), self._slb.session.get(instance.url, headers=headers) as reply:
                await reply.read()
                status = reply.status
        except (ClientError, OSError) as error:
            has_left = patience is not None and isinstance(error, TimeoutError)
        if status != 200:
            ended = self.history.clock()
            self._leases.left(ask, instance.name)
            self.history.add(Left(ended, ask))
            if not has_left:
                self.failures.append(Failure(now, ended, instance.name, status))
            await asyncio.sleep(_LOOK)  # a client whose instance is dead does not come back at once

    # -- what is done to it

    def kill(self, instance: Instance) -> None:
        """kill -9."""
        self.alive.remove(instance)
        self.history.stall(instance.name)
        self._leases.stopped(instance.name)
        instance.process.kill()

    @asynccontextmanager
    async def frozen(self, instance: Instance) -> AsyncIterator[None]:
        """SIGSTOP; at the end it goes on, and this returns when Redis lists it again."""
        self.alive.remove(instance)
        span = self.history.stall(instance.name)
        self._leases.stopped(instance.name)
        os.kill(instance.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self._leases.goes_on(instance.name)
            os.kill(instance.process.pid, signal.SIGCONT)
        await eventually(lambda: self.holds_lease(instance), what="a thawed instance never came back")
        span.end = self.history.clock()
        self.alive.append(instance)

    def holds_lease(self, instance: Instance) -> bool:
        """Whether Redis counts what it holds."""
        admin: Any = self._valkey.admin_of(_INFLIGHT)
        return instance.id in map(_instance_of, admin.zrange(_HOLDERS, 0, -1))

    @asynccontextmanager
    async def redis_trouble(self) -> AsyncIterator[None]:
        """While this lasts Redis is broken; this returns when all that live share again."""
        with self.history.redis_disturbed():
            yield
            self._has_moved = True  # one that was replaced may answer again, and has nothing
            mended = self.history.clock()
            await eventually(lambda: all(each.shares for each in self.alive), 20, "not shared")
            await asyncio.sleep(max(0.0, mended + _SETTLE - self.history.clock()))

    def note_local_turns(self, pad: float) -> None:
        """When single instances decided alone, if only because this machine was too busy for their patience."""
        for instance in self._everybody:
            began: float | None = None
            for time, shared in [*instance.turns(), (self.history.clock(), True)]:
                if not shared:
                    began = began or time
                elif began is not None:
                    self.history.disturbed.append(Span(began - pad, time + pad))
                    began = None

    # -- what Redis has

    async def watch(self) -> None:
        """Read Redis all the time, until cancelled."""
        client = _reader(self._valkey.admin_of(_INFLIGHT))
        known: dict[str, bool] = {}
        before = self.history.clock()
        try:
            while True:
                raise_if_cancelled()
                await asyncio.sleep(_LOOK)
                asked = self.history.clock()
                try:
                    async with asyncio.timeout(1), client.pipeline(transaction=True) as pipe:
                        pipe.zrange(_INFLIGHT, 0, -1, withscores=True)
                        pipe.zrange(_HOLDERS, 0, -1)
                        scores, holders = await pipe.execute()
                except (RedisError, OSError, TimeoutError):
                    self._has_moved = True
                if self._has_moved:
                    self._has_moved = False
                    await client.aclose()
                    with suppress(NoMaster):
                        client = _reader(self._valkey.admin_of(_INFLIGHT))
                    continue
                now = self.history.clock()
                self._follow(known, {_instance_of(each) for each in holders}, before, now)
                self.history.add(Scored(now, "/p", {member: int(score) for member, score in scores}))
                before = asked
        finally:
            await client.aclose()

    def _follow(self, known: dict[str, bool], present: set[str], before: float, now: float) -> None:
        """Whose lease has ended since `before`, when Redis was asked the last time: its answer may be read much
        later. And who has one again. `known`: name -> whether it had one."""
        if self.history.whole(before, now):
            for each in self._everybody:
                had, has = known.get(each.name), each.id in present
                if had and not has:
                    self.history.add(Expired(before, each.name))
                elif had is False and has:
                    self.history.add(Returned(now, each.name))
                if has or had is not None:
                    known[each.name] = has

    def remaining(self) -> dict[str, int]:
        """What is counted in Redis, name -> how many."""
        admin: Any = self._valkey.admin_of(_INFLIGHT)
        found: dict[str, int] = {}
        for member, score in admin.zrange(_INFLIGHT, 0, -1, withscores=True):
            found[f"score of {member}"] = int(score)
        for key in admin.scan_iter("slb:{/p}:*"):
            if key.startswith("slb:{/p}:held:"):
                held = {name: int(count) for name, count in admin.hgetall(key).items() if ":" in name}
                found |= {f"{key} {name}": count for name, count in held.items()}
            elif key.endswith((":tickets", ":grants")):
                found[key] = admin.hlen(key)
            elif ":queue:class:" in key:
                found[key] = admin.zcard(key)
        return {name: count for name, count in found.items() if count}


def _reader(admin: Any) -> Redis:
    """Of the same server."""
    given = admin.connection_pool.connection_kwargs
    where = (
        {"unix_socket_path": given["path"]} if "path" in given else {"host": given["host"], "port": given["port"]}
    )
    return Redis(**where, decode_responses=True)


def _instance_of(holder: str) -> str:
    return holder.rpartition("-")[0]
