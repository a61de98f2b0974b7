"""The process that has the same sockets and serves still, as the one that follows it sees it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog

from slb.lifecycle import set_within, unless_set
from slb.takeover.claim import Claim
from slb.takeover.messages import READY, StoppedEarly

_TO_LEAVE = 10.0
"""Seconds that it may take to let go, once it is told; then this process goes on beside it."""

_log = structlog.get_logger("slb.takeover")


class Predecessor:
    """`gone`: it accepts no more, for it was told or has ended. `ends`: any is set when this process has to stop.
    `claim`: None in a worker, whose supervisor has it."""

    def __init__(self, *ends: asyncio.Event, claim: Claim | None = None) -> None:
        self.gone = asyncio.Event()
        self._ends = ends
        self._claim = claim

    async def outlive(self, work: Coroutine[Any, Any, object]) -> None:
        """Do `work`, but no longer than the other process serves. Raises StoppedEarly where this process has to
        stop meanwhile."""
        for event in (self.gone, *self._ends):
            work = unless_set(event, work)
        await work
        if any(each.is_set() for each in self._ends):
            raise StoppedEarly("it had to stop before it served")

    async def watch(self, on_gone: Callable[[], None]) -> None:
        """Return once it is gone, after a call of `on_gone`. With a claim only."""
        assert self._claim is not None
        connection = self._claim.connection
        connection.setblocking(False)
        try:
            found = await asyncio.get_running_loop().sock_recv(connection, 16)  # that it has left, or its end
        except OSError:
            found = b""
        _log.info("took_over", pid=self._claim.pid, it="has left" if found else "has ended")
        connection.close()
        self.gone.set()
        on_gone()

    async def replace(self) -> None:
        """Tell it that this process serves, and wait until it accepts no more."""
        if self._claim is None or self.gone.is_set():
            return
        with suppress(OSError):  # it has ended: `watch` sees that
            await asyncio.get_running_loop().sock_sendall(self._claim.connection, READY)
        await set_within(self.gone, _TO_LEAVE)
        if not self.gone.is_set():
            _log.warning("predecessor_silent", pid=self._claim.pid)
