"""`slb quota`, `slb dns`: a process that answers the API, decides who may call which model or answers DNS, and
takes no traffic."""

import asyncio

from slb.announcing import log_stopping
from slb.core import Core
from slb.lifecycle import set_within


class RouterApp:
    """One instance: a core with the quota router or the DNS responder, and a heartbeat."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.reconfigure = core.reconfigure
        self.let_go = core.let_go
        core.fleet.show_itself()

    async def start(self) -> None:
        core = self.core
        core.start_watching()
        parts = core.api_parts()
        parts.status_extra = core.status_extra
        await core.listen(parts, is_serving=False)
        await core.start_heartbeat()
        await core.listen(parts, is_serving=True)

    async def stop(self, hurried: asyncio.Event) -> bool:
        """/readyz says no; after drain_delay, or when `hurried`, current requests are answered. Returns False."""
        self.core.begin_stop()
        delay = self.core.leave_answers()
        log_stopping(self.core)
        await set_within(hurried, delay)
        await self.core.stop()
        await self.core.instances.remove()
        return False
