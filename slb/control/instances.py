"""Which instances are alive, and which have died: each beats, and sees with each beat which others do."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.instance_records import REMEMBERED, InstanceRecords
from slb.control.processes import has_ended, is_taken_over
from slb.control.resp import readable
from slb.control.scripts import INSTANCE_FIELDS
from slb.names import natural

BEAT = 2.0
LIFETIME = 10.0
_MISSED_BEATS = 2
"""So many beats an instance may be missing before it counts as gone."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """One slb process as others see it. `started` is Unix time, `roles` are comma-separated; `process` is its
    identity in `slb.control.processes`, `binding` is its API's address there."""

    id: str
    name: str = ""
    address: str = ""
    api: str = ""
    version: str = ""
    roles: str = ""
    started: str = ""
    pid: str = ""
    host: str = ""
    process: str = ""
    binding: str = ""

    def as_hash(self) -> dict[str, str]:
        """What is written to Redis; the id is in the key."""
        return {name: getattr(self, name) for name in INSTANCE_FIELDS}


class Instances:
    """The heartbeat of this process (`info`), and the list of all that beat. `known`: those last seen alive.
    Each beat finds which have come and which have left. After an outage of Redis all are missing until they beat
    again, so one that is missing then stays in `known` for a few beats more.

    An instance has died where its process has ended on this machine, or this process has its address now; also one
    that ended before this process began, for a minute. `on_death` is called with the ids of these, and they leave
    the list. Without it (this process gives back nothing of theirs) they only leave `known`."""

    def __init__(
        self,
        connection: Connection,
        info: InstanceInfo,
        beat: float = BEAT,
        lifetime: float = LIFETIME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._records = InstanceRecords(connection, lifetime)
        self.info = info
        self._beat = beat
        self._lifetime = lifetime
        self._clock = clock
        self._missing: dict[str, float] = {}
        self._steady_since: float | None = None
        self._died: dict[str, float] = {}
        self._listed: Collection[str] = ()
        self.known: Sequence[InstanceInfo] = ()
        self.on_death: Callable[[Collection[str]], None] | None = None

    @property
    def count(self) -> int:
        """How many instances were last known, at least this one."""
        return max(1, len(self.known))

    async def run(self) -> None:
        """Beat until cancelled. A beat that fails is made up by the next: the watcher logs Redis being away."""
        await self._each_beat(self.beat)

    async def follow(self) -> None:
        """Follow which instances beat, without beating, until cancelled."""
        await self._each_beat(self.look)

    async def _each_beat(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            started = self._clock()
            try:
                with readable():
                    await act()
            except (RedisError, OSError, TimeoutError) as error:
                _log.debug("heartbeat_failed", error=str(error))
            raise_if_cancelled()
            await asyncio.sleep(max(0.0, self._beat - (self._clock() - started)))

    async def beat(self) -> None:
        """Record that this process is alive, and read which others are."""
        now = await self._records.time()
        ends = await self._records.listed()
        await self._records.write(self.info.id, self.info.as_hash(), now)
        await self._look(ends, now, [self.info])

    async def look(self) -> None:
        """Read which instances are alive, and write nothing."""
        now = await self._records.time()
        await self._look(await self._records.listed(), now, [])

    async def _look(self, ends: Mapping[str, float], now: int, own: Sequence[InstanceInfo]) -> None:
        others = {each.id: each for each in self.known if each.id != self.info.id}
        present = await self._records.present(others)
        met = {self.info.id, *others}
        came, gone = await self._came(ends, now, met), await self._gone(ends, now, met)
        # One that has stopped is in neither. One whose hash has ended, as while Redis was away, is in the list.
        standing = [each for each in others.values() if each.id in ends or each.id in present]
        await self._notice_deaths([*standing, *came, *gone])
        self._listed = ends.keys()
        stayed = [others[each] for each in present]
        self._see([*own, *stayed, *came], self._is_steady(ends.get(self.info.id, 0.0) - now))

    async def _came(self, ends: Mapping[str, float], now: int, met: set[str]) -> Sequence[InstanceInfo]:
        """The living in the list that are not known yet; what is to be remembered no longer is taken out of it."""
        new = [each for each, end in ends.items() if end > now and each not in met]
        old = [each for each, end in ends.items() if end + REMEMBERED * 1000 <= now and each != self.info.id]
        if old:
            await self._records.unlist(old)
        return _infos(await self._records.read(new[: keys.MOST_INSTANCES]))

    async def _gone(self, ends: Mapping[str, float], now: int, met: set[str]) -> Sequence[InstanceInfo]:
        """Those whose life was over when they were first seen in the list."""
        gone = [each for each, end in ends.items() if end <= now and each not in met and each not in self._listed]
        return _infos(await self._records.read(gone[: keys.MOST_INSTANCES], keys.identity_key))

    async def _notice_deaths(self, others: Sequence[InstanceInfo]) -> None:
        now = self._clock()
        self._died = {each: until for each, until in self._died.items() if until > now}
        died = [each for each in others if each.id not in self._died and self._has_died(each)]
        if died:
            ids = [each.id for each in died]
            self._died |= dict.fromkeys(ids, now + self._lifetime)
            _log.warning("instances_died", names=[each.name for each in died])
            if self.on_death is not None:
                self.on_death(ids)
                await self._records.remove(ids)

    def _has_died(self, other: InstanceInfo) -> bool:
        return has_ended(other.process) or is_taken_over(other.binding, self.info.binding)

    def _is_steady(self, left: float) -> bool:
        """Whether Redis has answered this process's beats for a while: then an instance that is missing has left or
        died. `left`: the milliseconds its place in the list would have lasted without this beat."""
        now, patience = self._clock(), _MISSED_BEATS * self._beat
        if left < (self._lifetime - patience) * 1000 or left <= 0:
            self._steady_since = None
        elif self._steady_since is None:
            self._steady_since = now
        return self._steady_since is not None and now - self._steady_since >= patience

    async def remove(self) -> None:
        """Leave the list, at a clean stop. Best effort: the lifetime does it otherwise."""
        try:
            with readable():
                await self._records.remove([self.info.id])
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("heartbeat_not_removed", error=str(error))

    async def list(self) -> Sequence[InstanceInfo]:
        """All that beat, by name. Raises RedisUnavailable."""
        async with self._connection.answering():
            found = await self._records.read(sorted(await self._records.listed())[: keys.MOST_INSTANCES])
        return _by_name(self._see(_infos(found)))

    def _see(self, found: Sequence[InstanceInfo], is_steady: bool = False) -> Sequence[InstanceInfo]:
        """Those of the `found` that have not died. `known` stays the same object while nothing changes, for callers
        that derive data from it. None that is missing is spared where it `is_steady`."""
        now = self._clock()
        alive = [each for each in found if each.id not in self._died]
        seen = {each.id for each in alive} | self._died.keys()
        unseen = [each for each in self.known if each.id not in seen]
        self._missing = {each.id: self._missing.get(each.id, now) for each in unseen}
        patience = 0.0 if is_steady else _MISSED_BEATS * self._beat
        spared = [each for each in unseen if now - self._missing[each.id] < patience]
        known = _by_name([*alive, *spared])
        if known != self.known:
            self.known = known
        return alive


def _by_name(found: Sequence[InstanceInfo]) -> Sequence[InstanceInfo]:
    return sorted(found, key=lambda info: (natural(info.name), info.id))


def _infos(found: Mapping[str, Mapping[str, str]]) -> Sequence[InstanceInfo]:
    return [
        InstanceInfo(instance, **{name: written.get(name, "") for name in INSTANCE_FIELDS})
        for instance, written in found.items()
    ]
