"""Whether Redis still has its data, and what to do where it has not. Decisions only; the sync acts on them.

`slb:generation` exists as long as Redis has its data. While it does, Redis is right, even where it is empty. If it
is missing, Redis lost its data by accident: the last good routes are written back, and the key is made again."""

from collections.abc import Mapping
from dataclasses import dataclass

from slb.control.history import Snapshot, missing
from slb.control.slices import Slices, rested
from slb.model import RouteRecord

_NOTHING = RouteRecord()


@dataclass(frozen=True, slots=True)
class RestoreTiming:
    """Seconds. The freshest instance writes back first: the others wait in proportion to the age of their table,
    and find it done. An instance that has just started waits longer than those that ran before."""

    settle: float = 10.0
    share_of_age: float = 0.01
    longest_delay: float = 10.0

    def delay(self, age: float, first_sync: bool, uptime: float) -> float:
        """How long to wait before writing back a table last known true `age` seconds ago."""
        others_first = max(0.0, self.settle - uptime) if first_sync else 0.0
        return others_first + min(self.longest_delay, max(0.0, age) * self.share_of_age)


async def lost(good: Snapshot, now: Snapshot) -> bool:
    """Whether anything of `good` is missing in `now`: a route, a member, a setting, an attribute."""
    slices = Slices()
    for entry in missing(good, now):
        if entry is not None:
            return True
        await slices.rest()
    return False


async def union(good: Snapshot, now: Snapshot) -> Snapshot:
    """`now` with everything of `good` that it lacks: what is served until Redis has its data again."""
    both = Snapshot(dict(now.records), dict(now.attributes), now.generation)
    async for member, attributes in rested(good.attributes.items()):
        both.attributes[member] = with_fields(attributes, now.attributes.get(member))
    async for path, record in rested(good.records.items()):
        both.records[path] = joined(record, now.records.get(path))
    return both


def joined(good: RouteRecord, now: RouteRecord | None) -> RouteRecord:
    """Members of both; each setting from Redis, or else from `good`."""
    found = now or _NOTHING
    settings = with_fields(good.settings or {}, found.settings) or None
    if found.members <= good.members and settings == good.settings:
        return good
    return RouteRecord(good.members | found.members, settings)


def with_fields(good: Mapping[str, str], now: Mapping[str, str] | None) -> Mapping[str, str]:
    """Each field from Redis, or else from `good`; `good` itself where the result is equal."""
    return {**good, **now} if now and not now.items() <= good.items() else good
