"""`slb quota`: a process that answers the API and decides who may call which model, and takes no traffic."""

import asyncio

from slb.app import log_stopping, run_loop, serve_app
from slb.config import Settings
from slb.core import Core, announce, connected_core
from slb.lifecycle import Stopping, set_within
from slb.listening import Sockets
from slb.observe.log import configure_logging
from slb.reload import Source, reload_on_hangup


class RouterApp:
    """One instance: a core with the quota router, and a heartbeat."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def start(self) -> None:
        """Follow Redis, answer the API, beat."""
        core = self.core
        core.start_watching()
        await core.api.listen(core.api_parts(), core.sockets.api)
        core.tasks.start("heartbeat", core.instances.run())

    async def stop(self, hurried: asyncio.Event) -> bool:
        """/readyz says no; after drain_delay, or when `hurried`, what is being answered is answered still: nothing
        is cut off."""
        self.core.api.draining = True
        log_stopping(self.core)
        await set_within(hurried, self.core.settings.drain_delay)
        await self.core.stop()
        await self.core.instances.remove()
        return False


def run_router(settings: Settings, source: Source, end_with_stdin: bool = False) -> int:
    """`slb serve --roles quota`; the exit code. Raises SlbError where it cannot start.

    `source`: where to read the settings again when they change.
    """
    configure_logging(settings.log_level, settings.log_format)
    with Sockets.bind(settings) as sockets:
        return run_loop(lambda stopping: _serve(settings, source, sockets, stopping), end_with_stdin)


async def _serve(settings: Settings, source: Source, sockets: Sockets, stopping: Stopping) -> int:
    asked = reload_on_hangup()
    async with connected_core(settings, sockets) as core:
        core.follow_settings(source, core.reconfigure, asked)
        return await serve_app(RouterApp(core), stopping, lambda: announce(core, is_ready=True))
