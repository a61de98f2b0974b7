"""`slb quota`, `slb dns`: a process that answers the API, decides who may call which model or answers DNS, and
takes no traffic."""

import asyncio

from slb.app import log_stopping
from slb.core import Core
from slb.lifecycle import set_within


class RouterApp:
    """One instance: a core with the quota router or the DNS responder, and a heartbeat."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.reconfigure = core.reconfigure
        core.fleet.show_itself()

    async def start(self) -> None:
        core = self.core
        core.start_watching()
        parts = core.api_parts()
        parts.status_extra = core.status_extra
        await core.answer_api(parts)
        await core.start_heartbeat()

    async def stop(self, hurried: asyncio.Event) -> bool:
        """/readyz says no; after drain_delay, or when `hurried`, current requests are answered. Returns False."""
        self.core.api.draining = True
        delay = self.core.leave_answers()
        log_stopping(self.core)
        await set_within(hurried, delay)
        await self.core.stop()
        await self.core.instances.remove()
        return False
