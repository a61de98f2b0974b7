"""Which instances are alive, and which have died: each beats, and sees with each beat which others do."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import structlog
from redis.exceptions import RedisError, ResponseError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.instance_records import REMEMBERED, InstanceRecords
from slb.control.processes import has_ended, is_taken_over
from slb.control.resp import readable
from slb.control.scripts import INSTANCE_FIELDS
from slb.control.subscription import follow_channel
from slb.lifecycle import set_within
from slb.names import natural

BEAT = 2.0
LIFETIME = 10.0
_RETRY = 1.0
"""Seconds at most until a subscription that broke is made again."""
_TOGETHER = 0.05
"""Seconds in which all that is told leads to one look: any program may publish anything, as often as it likes."""
READY, DRAINING = "ready", "draining"
"""What an instance's `state` is from its first beat on, and from when it was asked to stop."""
_MISSED_BEATS = 2
"""So many beats an instance may be missing before it counts as gone."""

_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """One slb process as others see it. `started` is Unix time, `roles` are comma-separated; `process` is its
    identity in `slb.control.processes`, `binding` is its API's address there. `advertise`: HOST:PORT, with commas,
    where clients reach it, `serves` http, https or tcp there (a listener that makes no HTTP of a plain
    connection); `name_server` alike of one that answers DNS, with records of `dns_ttl` seconds."""

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
    state: str = READY
    advertise: str = ""
    serves: str = ""
    zone: str = ""
    weight: str = ""
    name_server: str = ""
    dns_ttl: str = ""

    @property
    def role_names(self) -> list[str]:
        return [role for role in self.roles.split(",") if role]

    @property
    def started_at(self) -> float:
        """0.0 where another program wrote what is none."""
        return _figure(self.started)

    @property
    def process_id(self) -> int:
        return int(_figure(self.pid))

    def as_hash(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in INSTANCE_FIELDS}


class Instances:
    """The heartbeat of this process (`info`), and the list of all that beat. `known`: those last seen alive.
    Each beat finds which have come and which have left. After an outage of Redis all are missing until they beat
    again, so one that is missing then stays in `known` for a few beats more.

    An instance has died where its process has ended on this machine, or this process has its address now; also one
    that ended before this process began, for a minute. `on_death` is called with the ids of these, and they leave
    the list. Without it (this process gives back nothing of theirs) they only leave `known`.

    Who begins, drains or leaves says so, and who follows (`follow_states`) looks at once, at the state of each;
    others see with a beat who is there, and ask nothing of those that they know."""

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
        self._names: dict[str, str] = {}
        self.known: Sequence[InstanceInfo] = ()
        self.on_death: Callable[[Collection[str]], None] | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._soon = asyncio.Event()
        self._told = ""
        self.beaten = asyncio.Event()
        """Set once others can see this process."""
        self._follows_states = False

    @property
    def silent(self) -> Sequence[str]:
        """The names of those that have not beaten for longer than their lifetime, for a minute, and of which it is
        not known whether they have ended: they may serve on without Redis."""
        known = {self.info.id, *(each.id for each in self.known), *self._died}
        return [self._names.get(each) or each for each in self._listed if each not in known]

    @property
    def count(self) -> int:
        """How many instances were last known, at least this one."""
        return max(1, len(self.known))

    def count_of(self, roles: Collection[str]) -> int:
        """How many of them have one of these roles, at least this one."""
        return max(1, sum(not set(each.roles.split(",")).isdisjoint(roles) for each in self.known))

    def is_elsewhere(self, roles: Collection[str]) -> bool:
        """Whether one on another host has one of these roles."""
        others = (each for each in self.known if each.host != self.info.host)
        return any(not set(each.role_names).isdisjoint(roles) for each in others)

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
            await set_within(self._soon, self._beat - (self._clock() - started))
            if self._soon.is_set():
                await asyncio.sleep(_TOGETHER)
                self._soon.clear()

    async def follow_states(self) -> NoReturn:
        """Read the states of all others too, and at once where one tells that it has another; until cancelled. With
        `run` or `follow` at the same time."""
        self._follows_states = True
        await follow_channel(
            self._connection, keys.INSTANCES_CHANNEL, lambda channel, text: self._soon.set(), _RETRY, self._soon.set
        )

    def advertise(self, data: str, name_server: str) -> None:
        """What this process advertises from its next beat on."""
        self.info = replace(self.info, advertise=data, name_server=name_server)

    def hold_address(self, binding: str) -> None:
        """From the next beat on `binding` is what this process has bound; nothing where another process has it
        too: then it proves of neither that it has ended."""
        self.info = replace(self.info, binding=binding)
        self._soon.set()

    def longest_answer(self) -> float:
        """Seconds until nobody has an answer any more that a responder gave before now, a second for the way to
        resolvers included; 0 where none is known."""
        return max(
            (ttl + 1.0 for each in self.known if each.name_server and (ttl := _seconds(each.dns_ttl))), default=0.0
        )

    def begin_drain(self) -> None:
        """Beat at once, as one that is about to stop."""
        self.info = replace(self.info, state=DRAINING)
        self._soon.set()

    async def beat(self) -> None:
        """Record that this process is alive, and read which others are."""
        now = await self._records.time()
        ends = await self._records.listed()
        info = self.info
        await self._records.write(info.id, info.as_hash(), now)
        if info.state != self._told:
            await self._tell()
            self._told = info.state
        self.beaten.set()
        await self._look(ends, now, [info])

    async def _tell(self) -> None:
        """Best effort: who does not hear of it sees it with its own next beat."""
        try:
            await self._connection.client.publish(keys.INSTANCES_CHANNEL, self.info.id)
        except ResponseError as error:  # not allowed
            _log.debug("instance_not_told", error=str(error))

    async def look(self) -> None:
        """Read which instances are alive, and write nothing."""
        now = await self._records.time()
        await self._look(await self._records.listed(), now, [])

    async def _look(self, ends: Mapping[str, float], now: int, own: Sequence[InstanceInfo]) -> None:
        others = {each.id: each for each in self.known if each.id != self.info.id}
        new = [each for each in ends if each not in others and each != self.info.id]
        came = _infos(await self._records.read([each for each in new if ends[each] > now]))
        ended = [each for each in new if ends[each] <= now and each not in self._listed]
        gone = _infos(await self._records.read(ended, keys.identity_key))
        # One that has stopped is not in the list. One whose life has ended, as while Redis was away, still is.
        await self._notice_deaths([*(each for each in others.values() if each.id in ends), *came, *gone])
        self._names = {each: self._names.get(each, "") for each in ends}
        self._names.update({each.id: each.name for each in (*came, *gone)})
        if old := [each for each in new if ends[each] + REMEMBERED * 1000 <= now]:
            for each in await self._records.unlist(old):
                self._connection.note("died", self._names[each] or each, "it had not beaten for over a minute")
        self._listed = ends.keys()
        stayed = [each for each in others.values() if ends.get(each.id, 0.0) > now]
        if self._follows_states and stayed:
            again = {each.id: each for each in _infos(await self._records.read([each.id for each in stayed]))}
            stayed = [again.get(each.id, each) for each in stayed]
        self._see([*own, *stayed, *came], self._is_steady(ends.get(self.info.id, 0.0) - now))

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
                names = {each.id: each.name for each in died}
                for id_ in await self._records.remove(ids):  # one of those that noticed it
                    self._connection.note("died", names[id_], "its process has ended")

    def _has_died(self, other: InstanceInfo) -> bool:
        return has_ended(other.process) or is_taken_over(other.binding, self.info.binding)

    def _is_steady(self, left: float) -> bool:
        """Whether Redis has answered this process's beats for a while: then an instance that is missing has ended.
        `left`: milliseconds that its place in the list would have lasted without this beat."""
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
                await self._tell()
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("heartbeat_not_removed", error=str(error))

    async def list(self) -> Sequence[InstanceInfo]:
        """All that beat, by name. Raises RedisUnavailable."""
        async with self._connection.answering():
            found = await self._records.read(sorted(await self._records.listed()))
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
            self.on_change()
        return alive


def _by_name(found: Sequence[InstanceInfo]) -> Sequence[InstanceInfo]:
    return sorted(found, key=lambda info: (natural(info.name), info.id))


def _figure(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if abs(number) < 1e15 else 0.0


def _seconds(text: str) -> float:
    """Of a TTL that somebody wrote, an hour at most; 0 for what is none."""
    return min(float(text), 3600.0) if _DECIMAL.fullmatch(text) else 0.0


def _infos(found: Mapping[str, Mapping[str, str]]) -> Sequence[InstanceInfo]:
    return [
        InstanceInfo(instance, **{name: written.get(name, "") for name in INSTANCE_FIELDS})
        for instance, written in found.items()
    ]
