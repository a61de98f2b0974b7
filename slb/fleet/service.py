"""The parts of the fleet's view in one process, made and wired."""

import asyncio
from functools import partial

from slb.control.change_log import ChangeLog
from slb.control.connection import Connection
from slb.control.fleet_channel import FleetChannel
from slb.control.instances import Instances
from slb.control.ledger import slots_in_use
from slb.control.scores import ScoresOfPools
from slb.fleet.answers import Answers
from slb.fleet.history import History
from slb.fleet.hours import LOOK, Hours, Queued
from slb.fleet.kept_up import every, kept_up
from slb.fleet.more import MoreSources
from slb.fleet.own import OwnFrames, Sources, load_at
from slb.fleet.view import FleetView
from slb.observe.changes import What
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror


def sources_of(instances: Instances, mirror: Mirror, metrics: Metrics, is_worker: bool) -> Sources:
    """What each process shows of itself; its parts add what they have besides."""
    name = instances.info.name
    group = name.rpartition("/")[0] if is_worker else name
    more = MoreSources(lambda: metrics.rings(), metrics.quota)
    return Sources(lambda: instances.info, group, mirror, metrics, more)


class FleetService:
    """`sources`: what this process shows of itself, once it does (`show_itself`)."""

    def __init__(self, connection: Connection, sources: Sources, instances: Instances) -> None:
        self.sources = sources
        info = sources.info()
        self._answers = Answers(info.id, lambda: sources.info().name, sources.metrics.decisions)
        self.log = ChangeLog(connection, sources.metrics.changes, info.id, info.name)
        channel = FleetChannel(connection, info.id)
        counted, scores = partial(slots_in_use, connection), ScoresOfPools(connection)
        self.view = FleetView(channel, sources, instances, self._answers, self.log, counted, scores)

    def show_itself(self) -> None:
        """Show viewers what this process is and does: for those that take traffic, or answer for others. To be
        called before `run`."""
        self.view.showing.frames = OwnFrames(self.sources)
        self._answers.history = History(self.sources.metrics.traffic, self._inflight)
        hours = Hours(self.sources.mirror, self.sources.metrics.traffic, self._queued)
        self._answers.hours = self.sources.hours = hours
        self._answers.load_at = partial(load_at, self.sources)

    def note(self, what: What) -> None:
        """What becomes of this process, for the log of changes."""
        info = self.sources.info()
        self.sources.metrics.changes.note(what, info.name, f"version {info.version}, {info.roles}")

    async def leave(self) -> None:
        """The last entry of this process, best effort. After `run` was cancelled."""
        if self.view.showing.frames is not None:
            self.note("stopped")
        await self.log.flush()

    def _inflight(self) -> int:
        return sum(live.inflight for live in self.sources.mirror.upstreams.values())

    def _queued(self) -> Queued:
        return self.sources.gates.queued() if self.sources.gates is not None else ()

    async def run(self) -> None:
        """Until cancelled."""
        history, hours = self._answers.history, self._answers.hours
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            group.create_task(kept_up(self.log.run))
            if history is not None:
                group.create_task(kept_up(history.run))
            if hours is not None:
                group.create_task(kept_up(partial(every, LOOK, hours.look)))
