"""The parts of the fleet's view in one process, made and wired."""

import asyncio

from slb.control.connection import Connection
from slb.control.fleet_channel import FleetChannel
from slb.control.instances import Instances
from slb.fleet.answers import Answers
from slb.fleet.history import History
from slb.fleet.kept_up import kept_up
from slb.fleet.own import OwnFrames, Sources
from slb.fleet.view import FleetView


class FleetService:
    """`sources`: what this process shows of itself, once it does (`show_itself`)."""

    def __init__(self, connection: Connection, sources: Sources, instances: Instances) -> None:
        self.sources = sources
        info = sources.info()
        self._answers = Answers(info.id, lambda: sources.info().name, sources.metrics.decisions)
        self.view = FleetView(FleetChannel(connection, info.id), sources, instances, self._answers)

    def show_itself(self) -> None:
        """Show viewers what this process is and does: for those that take traffic, or answer for others. To be
        called before `run`."""
        self.view.frames = OwnFrames(self.sources)
        self._answers.history = History(self.sources.metrics.traffic, self._inflight)

    def _inflight(self) -> int:
        return sum(live.inflight for live in self.sources.mirror.upstreams.values())

    async def run(self) -> None:
        """Until cancelled."""
        history = self._answers.history
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            if history is not None:
                group.create_task(kept_up(history.run))
