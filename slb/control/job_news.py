"""What becomes of jobs, as `lua/jobs_shown.lua` publishes it: one subscription, read for all who follow."""

from collections.abc import Callable
from typing import NoReturn, get_args

import orjson

from slb.control import keys
from slb.control.connection import Connection
from slb.control.job_replies import read_shown
from slb.control.subscription import follow_channel
from slb.job import JobShown, JobState

_RETRY = 1.0
_STATES = frozenset(get_args(JobState))
_LONGEST = 1 << 17
"""Characters of a message: what was submitted, and the result, have 8 KiB each before they are quoted."""


async def follow_jobs(
    connection: Connection, on_move: Callable[[JobShown], None], on_begin: Callable[[], None]
) -> NoReturn:
    """Listen until cancelled. `on_move` is called with each move; `on_begin` each time from which on they come:
    some before it may have been missed."""

    def read(_: str, text: str) -> None:
        if (job := read_move(text)) is not None:
            on_move(job)

    await follow_channel(connection, keys.JOBS_CHANNEL, read, _RETRY, on_begin)


def read_move(text: str) -> JobShown | None:
    """None for any other text: any program may publish."""
    if len(text) > _LONGEST:
        return None
    try:
        model, id_, *row = orjson.loads(text)
        found = read_shown(id_, model, row)
        is_json = all(_is_json(each) for each in (found.written, found.result, found.progress) if each)
    except (ValueError, TypeError):
        return None
    is_one = is_json and found.state in _STATES and all(isinstance(each, str | int | float) for each in found)
    return found if is_one else None


def _is_json(text: str) -> bool:
    orjson.loads(text)
    return True
