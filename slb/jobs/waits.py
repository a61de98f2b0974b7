"""Callers that wait for the ends of jobs."""

import asyncio
from collections.abc import Awaitable, Callable

from slb.job import ENDED, JobShown
from slb.jobs.ends import Ends

_LOOK = 0.25
"""Seconds between two looks at a job that is waited for."""

Look = Callable[[str, str], Awaitable[JobShown]]
"""A job as it stands, by its id and its model."""


class Waits:
    """All that wait for one job share the looks at it, however many they are. `ends` tells of attempts that have
    ended here."""

    def __init__(self, look: Look, ends: Ends) -> None:
        self._look = look
        self._ends = ends
        self._turns: dict[tuple[str, str], asyncio.Task[JobShown]] = {}
        self._looking: set[asyncio.Task[JobShown]] = set()

    async def until_ended(self, id_: str, model: str, seconds: float, is_wanted: Callable[[], bool]) -> JobShown:
        """The job once it has ended, or as it stands after so long, or once nobody wants to know. Raises what the
        look raises."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        found = await self._look(id_, model)
        while found.state not in ENDED and (left := until - loop.time()) > 0 and is_wanted():
            turn = self._turn_of(id_, found.model)
            await asyncio.wait((turn,), timeout=left)
            if turn.done():
                found = turn.result()
        return found

    def _turn_of(self, id_: str, model: str) -> asyncio.Task[JobShown]:
        """The next look, of which none has begun: what it will see is not older than its callers."""
        turn = self._turns.get((id_, model))
        if turn is None:
            turn = self._turns[id_, model] = asyncio.create_task(self._turn(id_, model), name="job wait")
            self._looking.add(turn)
            turn.add_done_callback(self._looked)
        return turn

    async def _turn(self, id_: str, model: str) -> JobShown:
        try:
            await self._ends.of(model, id_, _LOOK)
        finally:
            del self._turns[id_, model]
        return await self._look(id_, model)

    def _looked(self, turn: asyncio.Task[JobShown]) -> None:
        self._looking.discard(turn)
        if not turn.cancelled():
            turn.exception()  # those that waited may all have left
