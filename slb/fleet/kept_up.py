"""Keeps work going that must not end a process when it fails, and does it again and again."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

_PAUSE = 5.0

_log = structlog.get_logger("slb.fleet")


async def kept_up(work: Callable[[], Awaitable[None]]) -> None:
    """Until cancelled. A fault of slb's own in what it shows is logged, and no reason to end a process that serves
    traffic."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- logged with its traceback
            _log.exception("fleet_view_failed", error=repr(error))
        await asyncio.sleep(_PAUSE)


async def every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do it now and every so many seconds, until cancelled."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        await work()
        due = max(due + seconds, loop.time())
        await asyncio.sleep(due - loop.time())
