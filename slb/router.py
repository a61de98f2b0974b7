"""`slb quota`: a process that answers the API and decides who may call which model, and takes no traffic."""

import asyncio

from slb.app import log_stopping
from slb.core import Core
from slb.lifecycle import set_within


class RouterApp:
    """One instance: a core with the quota router, and a heartbeat."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.reconfigure = core.reconfigure

    async def start(self) -> None:
        core = self.core
        core.start_watching()
        await core.api.listen(core.api_parts(), core.sockets.api)
        core.tasks.start("heartbeat", core.instances.run())

    async def stop(self, hurried: asyncio.Event) -> bool:
        """/readyz says no; after drain_delay, or when `hurried`, current requests are answered. Returns False."""
        self.core.api.draining = True
        log_stopping(self.core)
        await set_within(hurried, self.core.settings.drain_delay)
        await self.core.stop()
        await self.core.instances.remove()
        return False
