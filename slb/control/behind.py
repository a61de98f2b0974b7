"""Redis has its data, but not all of it: which entries of this instance it lacks, older or evicted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from slb.control.eviction import Evictions
from slb.control.history import History, Snapshot, State, differing, missing, newer, state
from slb.control.slices import Slices, rested

_log = structlog.get_logger()


@dataclass
class Behind:
    """`lost`: what this instance serves until it has written it back; `floor`: of its history; `evicted`: how many
    entries were evicted, 0 where Redis came back with older data."""

    lost: Mapping[str, State]
    floor: int
    write_at: float
    evicted: int

    def log(self, redis: str) -> None:
        event = "redis_evicted" if self.evicted else "redis_came_back_behind"
        _log.warning(event, changes=self.evicted or len(self.lost), writing_back=True, redis=redis)


async def behind(good: Snapshot, found: Snapshot, evictions: Evictions, now: float) -> Behind | None:
    """What `found` lacks of `good`; None where it lacks nothing. The history of `found` must be the whole log."""
    lost = await states(good, newer(good, found))
    gone: dict[str, State] = {}
    if evictions.happened:
        gone = {
            entry: each
            for entry, each in (await states(good, missing(good, found))).items()
            if each.number >= found.history.revision(entry) and not evictions.was_removed(entry, found)
        }
        if not found.history.last:
            gone |= lost  # the log itself: the number of each entry
    return Behind(lost | gone, good.history.floor, now, len(gone)) if lost or gone else None


async def undoes(good: Snapshot, found: Snapshot, log: History) -> bool:
    """Whether `found` differs from `good` though `log`, read no earlier, has no newer change of it: another
    instance with an older table is writing it back."""
    slices = Slices()
    for entry in differing(good, found):
        if entry is not None and good.history.of.get(entry, 0) > log.revision(entry):
            return True
        await slices.rest()
    return False


async def states(good: Snapshot, entries: Iterable[str | None]) -> dict[str, State]:
    """The states of these entries in `good`; without those that name nothing that slb reads."""
    return {entry: each async for entry in rested(entries) if (each := state(entry, good))}
