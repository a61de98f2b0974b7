"""Where a session's routes come from: Redis, as slb's instances have them, or a list that the caller gives."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import structlog
from pydantic import SecretStr, ValidationError

from slb.addresses import AddressRules
from slb.config import Settings, instead_on_a_route
from slb.control.connection import Connection, connect
from slb.control.disk import table_file
from slb.control.generation import RestoreTiming
from slb.control.health_news import HealthNews, hear_of_requests
from slb.control.recovery import SyncTiming
from slb.control.slices import step_through
from slb.control.watcher import Watcher, WatchTiming
from slb.errors import ConfigError, InvalidName
from slb.lifecycle import Tasks, set_within
from slb.model import RouteRecord, Upstream, UpstreamAttributes, setting_fault
from slb.names import normal_member
from slb.observe.metrics import Metrics
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.passive import ALL_FAIL, OF_TURNS, SOME_SERVE, Passive
from slb.routing.rings import Rings
from slb.routing.witness import Witness

Upstreams = Sequence[str] | Mapping[str, Mapping[str, Any]]
"""`host:port` of each; or each with its attributes: weight, slots, zone, node."""

Followed = AsyncIterable[Mapping[str, Mapping[str, Any]]]
"""All upstreams with their attributes, `drain` among them, whenever they have changed."""

_ROOT = "/"
_HEARS_AGAIN = 30.0
"""Seconds between two attempts to hear the fleet, at most: a login may not have the right to."""

_log = structlog.get_logger()


class _NeverRestore(RestoreTiming):
    """A library only reads. What Redis has lost is written back by slb's instances."""

    def delay(self, age: float, first_sync: bool, uptime: float) -> float:
        return math.inf


READING_ONLY = WatchTiming(sync=SyncTiming(_NeverRestore(settle=math.inf), orphan_age=math.inf))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a feed's mirror is made with. `settings` are route settings: of the fixed list, or the defaults."""

    settings: Mapping[str, Any]
    zone: str
    clock: Callable[[], float]
    rng: Random

    def checked(self) -> Settings:
        """The settings. Raises ConfigError for unknown names and invalid values."""
        for name, value in self.settings.items():
            if fault := setting_fault(name, value):
                raise ConfigError(f"settings: {fault}{instead_on_a_route(name)}")
        try:
            return Settings(defaults=dict(self.settings))
        except ValidationError as error:
            fault = error.errors()[0]["msg"].removeprefix("Value error, [defaults] ")
            raise ConfigError(f"settings: {fault}") from None


class Feed(ABC):
    """`mirror`, its `rings` and the ejected upstreams are kept up to date between `open` and `close`. Upstreams at
    which calls fail are ejected (docs/health.md): tell `witness` of each. `metrics`: of this work; `_instances`:
    how many, as far as it knows, have requests for the same upstreams."""

    _instances = 1

    def __init__(self, surroundings: Surroundings) -> None:
        self._settings = surroundings.checked()
        self.mirror = Mirror(self._settings.route_settings, surroundings.rng, surroundings.clock, surroundings.zone)
        self.rings = Rings(self.mirror, surroundings.clock)
        self.metrics = Metrics()
        counts, mirror = self.metrics.health, self.mirror
        self._clock = surroundings.clock
        self._wake = asyncio.Event()
        self._availability = Availability(mirror, counts)
        self._passive = Passive(
            mirror, self._availability, counts, self._clock, self._wake.set, instances=lambda: self._instances
        )
        self.witness: Witness = self._passive
        mirror.on_swap(counts.forget_upstreams)
        mirror.on_swap(lambda _: counts.follow_routes(mirror.table.routes))
        mirror.on_swap(lambda _: self._wake.set())
        self._tasks = Tasks()

    @abstractmethod
    async def open(self, patience: float) -> None:
        """Begin; wait for a first table, but at most `patience` seconds."""

    async def _follow(self) -> None:
        """Makes the rings of the present table first: a call without its ring could go to any upstream."""
        for _, ring in list(self.rings.routes()):
            await step_through(ring.steps())
        self._tasks.start("rings", self.rings.run())
        self._tasks.start("ejection", self._eject())

    async def _eject(self) -> None:
        """End ejections whose time is over, until cancelled; after a swap, look which routes are in panic."""
        while True:
            self._wake.clear()
            self._passive.sweep()
            for route in self.mirror.table.routes.values():
                self._availability.note_panic(route)
            for path in self.metrics.health.panicking - self.mirror.table.routes.keys():
                self._availability.forget_route(path)
            due = self._passive.due()
            await set_within(self._wake, None if due is None else due - self._clock())

    async def close(self) -> None:
        await self._tasks.stop()


class FixedFeed(Feed):
    """One route, `/`, with the given upstreams. Raises ConfigError for invalid ones, or those that `rules`
    refuse."""

    def __init__(self, upstreams: Upstreams, rules: AddressRules, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._rules = rules
        self._members, self._attributes = _checked(upstreams, rules)
        if self._settings.route_settings(_ROOT, {}).max_inflight:
            raise ConfigError("settings: max_inflight: a fixed list has no fleet to count in; set max_outbound")

    async def open(self, patience: float) -> None:
        members, attributes = self._members, self._attributes
        await step_through(self.mirror.replace({_ROOT: RouteRecord(frozenset(members))}, attributes))
        if self._members is not members:  # replaced meanwhile
            self._show(attributes)
        await self._follow()

    def replace(self, upstreams: Upstreams) -> None:
        """Use other upstreams from now on; the counts of those that stay are kept."""
        before = self._attributes
        self._members, self._attributes = _checked(upstreams, self._rules)
        if self.mirror.ready:
            self._show(before)

    def _show(self, before: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the mirror's upstreams by these; `before`: the attributes of those it had."""
        gone: dict[str, dict[str, str]] = {member: {} for member in before if member not in self._attributes}
        self.mirror.update({_ROOT: RouteRecord(frozenset(self._members))}, {**gone, **self._attributes})


class FollowedFeed(Feed):
    """One route, `/`, with the upstreams that `followed` tells, such as a service of Kubernetes. The last ones stay
    while it tells nothing. Those that are invalid, or that `rules` refuse, are passed over."""

    def __init__(self, followed: Followed, rules: AddressRules, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._followed = followed
        self._rules = rules
        self._attributes: dict[str, Mapping[str, str]] = {}
        self._is_told = asyncio.Event()
        if self._settings.route_settings(_ROOT, {}).max_inflight:
            raise ConfigError("settings: max_inflight: there is no fleet to count in; set max_outbound")

    async def open(self, patience: float) -> None:
        self._tasks.start("upstreams", self._hear())
        await set_within(self._is_told, patience)
        await self._follow()

    async def _hear(self) -> None:
        async for told in self._followed:
            self._take(told)
            self._is_told.set()
        await asyncio.Event().wait()  # it has ended: the last ones stay

    def _take(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        found: dict[str, Mapping[str, str]] = {}
        for written, said in told.items():
            try:
                found[_member(written, self._rules)] = {name: str(value) for name, value in said.items()}
            except ConfigError as error:
                _log.warning("upstream_passed_over", error=str(error))
        gone: dict[str, Mapping[str, str]] = {member: {} for member in self._attributes.keys() - found.keys()}
        self._attributes = found
        self.mirror.update({_ROOT: RouteRecord(frozenset(found))}, {**gone, **found})


class RedisFeed(Feed):
    """All routes of a Redis. While it is away the last table is served; from `data_dir` too, where one is kept.

    What the fleet's instances find of upstreams counts here. They are told nothing: sessions are many, each message
    goes to all who listen, and a session's network may be one that nobody has looked at."""

    _instances = 2  # itself and others: they try an upstream first that comes back

    def __init__(self, url: str, data_dir: Path | None, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        more: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
        self._connect_by = Settings(redis_url=SecretStr(url), **more)
        self._data_dir = data_dir
        self._rng = surroundings.rng
        self._connection: Connection | None = None

    def _hear(self, about: str, news: str, number: int) -> None:
        """Of routes the instances ask each other: a session would be one more that asks, or answers. It takes no
        turns with them: it cannot ask for one, and an instance that has no requests would keep it."""
        if news not in (ALL_FAIL, SOME_SERVE) and news not in OF_TURNS:
            hear_of_requests(self._passive, about, news, number)

    async def open(self, patience: float) -> None:
        """Raises RedisRefused where Redis refuses the login; a Redis that does not answer is tried again."""
        connection = self._connection = await connect(self._connect_by, self.metrics, self._clock)
        kept = None if self._data_dir is None else table_file(self._data_dir, connection.url_shown)
        watcher = Watcher(
            connection, self.mirror, self.metrics, kept, READING_ONLY, clock=self._clock, rng=self._rng
        )
        self._tasks.start("watcher", watcher.run())
        self._tasks.start("health", HealthNews(connection, _HEARS_AGAIN).run(self._hear))
        await watcher.shown(lambda mirror: mirror.ready, patience)
        await self._follow()

    async def close(self) -> None:
        await super().close()
        if self._connection is not None:
            await self._connection.aclose()


def feed_of(
    redis_url: str | None,
    upstreams: Upstreams | Followed | None,
    data_dir: Path | None,
    rules: AddressRules,
    surroundings: Surroundings,
) -> Feed:
    """The feed for these arguments. Raises ConfigError."""
    if redis_url is not None and upstreams is None:
        return RedisFeed(redis_url, data_dir, surroundings)
    if redis_url is not None or upstreams is None:
        raise ConfigError("redis_url or upstreams: give one of them")
    if data_dir is not None:
        raise ConfigError("data_dir: only a session that follows Redis keeps a table; give it with redis_url")
    if isinstance(upstreams, AsyncIterable):
        return FollowedFeed(upstreams, rules, surroundings)
    return FixedFeed(upstreams, rules, surroundings)


def _checked(upstreams: Upstreams, rules: AddressRules) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Members in normal form, and the attributes of each in the form of Redis. Raises ConfigError."""
    if isinstance(upstreams, str) or not isinstance(upstreams, Iterable):
        raise ConfigError(f"upstreams = {upstreams!r}: give a list")
    members: list[str] = []
    attributes: dict[str, dict[str, str]] = {}
    for written in upstreams:
        member = _member(written, rules)
        if member in members:
            raise ConfigError(f"upstreams: {member} stands there twice")
        members.append(member)
        if isinstance(upstreams, Mapping) and (given := _attributes(member, upstreams[written])):
            attributes[member] = given
    if not members:
        raise ConfigError("upstreams is empty: give at least one")
    return members, attributes


def _member(written: object, rules: AddressRules) -> str:
    if not isinstance(written, str):
        raise ConfigError(f"upstreams: {written!r}: a text such as 10.0.0.1:80")
    try:
        member = normal_member(written)
    except InvalidName as error:
        raise ConfigError(f"upstreams: {error}") from None
    if refused := rules.literal_refusal(Upstream.of(member)):
        raise ConfigError(f"upstreams: {member}: {refused}")
    return member


def _attributes(member: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"upstreams: {member}: {given!r}: a mapping of attributes, such as {{'zone': 'a'}}")
    try:
        known = UpstreamAttributes.model_validate(dict(given))
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(map(str, fault["loc"]))
        raise ConfigError(f"upstreams: {member}: {name} = {fault['input']!r}: {fault['msg']}") from None
    return {name: str(value) for name, value in known.model_dump(exclude_none=True).items()}
