"""Answers to calls that change something: when this instance serves it, or has not followed in time."""

from collections.abc import Callable
from functools import partial

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts
from slb.routing.mirror import Mirror

FOLLOWED, NOT_YET = 200, 202
change = partial(Endpoint, is_followed=True)
"""An endpoint that answers with the status `followed` gives."""
_WITHIN = 1.0
"""Seconds an answer waits for this process's own mirror to show what was written."""


async def followed(parts: ApiParts, shows: Callable[[Mirror], bool]) -> int:
    """The status of the answer: 200 once the mirror shows it; 202 where it does not in time: it is written, and
    requests go by what was before for now."""
    return FOLLOWED if await parts.watcher.shown(shows, _WITHIN) else NOT_YET
