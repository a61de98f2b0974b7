"""What the jobs' script replies, read. `lua/jobs.lua` lists it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from slb.job import Buffered, Claimed, JobShown, Line, ModelStats, Waiting

ADRIFT = "@"
"""Stands before the model, as `lua/jobs_state.lua` names the lines of jobs that nobody follows."""


_MOST = 2**53
"""Above it Lua's numbers are not exact."""


class Left(NamedTuple):
    """What a GPU runs on its own for a job that was cancelled: the job, where, the fallback model whose GPU that is
    ("" for the job's own), and the GPU's id of it."""

    id: str
    member: str
    on: str
    remote: str


class Pulse(NamedTuple):
    """What each reply has besides its answers. `queued`: how many wait for a slot, by the fallback model that they
    have gone on at, "" for their own; `adrift`: how many GPUs run on their own that nobody follows, by the same;
    `due`: seconds until something is due, None where nothing is; `dropped`: attempts of
    this holder's that were cancelled, id and token; `left`: what is to be cancelled at GPUs, which nobody else is
    told."""

    queued: Mapping[str, int]
    due: float | None
    dropped: tuple[tuple[str, str], ...]
    left: tuple[Left, ...] = ()
    adrift: Mapping[str, int] = {}


def read_pulse(queued: list[Any], due: int, dropped: list[str], left: list[str]) -> Pulse:
    """Raises ValueError, TypeError where it is none."""
    waiting = dict(zip(queued[::2], queued[1::2], strict=True))
    adrift = {on.removeprefix(ADRIFT): waiting.pop(on) for on in [*waiting] if on.startswith(ADRIFT)}
    in_vain = tuple(found for each in left if (found := _left(each)) is not None)
    ended = tuple(_attempt(each) for each in dropped)
    return Pulse(waiting, due / 1000 if due >= 0 else None, ended, in_vain, adrift)


def _left(text: str) -> Left | None:
    """None where another program has written it."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    is_whole = isinstance(fields, list) and len(fields) == len(Left._fields)
    return Left(*fields) if is_whole and all(isinstance(each, str) for each in fields) else None


def _attempt(text: str) -> tuple[str, str]:
    id_, _, token = text.rpartition(" ")
    return id_, token


def read_claimed(model: str, on: str, answer: list[Any]) -> Claimed:
    """`answer`: what the ask `claim` replies, where there was a job."""
    id_, token, attempts, failures, remote, at, waited, written, busy = answer
    counts = (int(attempts), int(failures))
    return Claimed(model, id_, token, *counts, remote, at, written, on, max(0, waited) / 1000, int(busy))


def read_buffered(row: list[Any]) -> Buffered:
    """`row`: of what the ask `buffered` replies."""
    id_, number, tasks = row
    return Buffered(id_, number, int(tasks))


def read_line(answer: list[Any]) -> Line:
    """`answer`: what the ask `line` replies, where the job waits."""
    class_, position, mean, running, classes, since = answer
    return Line(
        class_,
        position,
        float(mean) / 1000 if mean else None,
        running,
        tuple(each / 1000 for each in since),
        tuple(Waiting(name, float(passed), size) for name, passed, size in classes),
    )


def read_stats(answer: list[Any]) -> ModelStats:
    """`answer`: what the ask `stats` replies."""
    buffered, queued, retrying, processing, callbacks, dead, ended, oldest, since, dead_since, *counts = answer
    counted = dict(zip(counts[::2], map(_number, counts[1::2]), strict=True))
    waiting = (buffered, queued, retrying, processing, callbacks, dead, ended)
    return ModelStats(*waiting, oldest, _seconds(since), counted, _seconds(dead_since))


def read_shown(id_: str, model: str, row: list[Any]) -> JobShown:
    """`row`: what the ask `show` replies. Raises ValueError, TypeError where it is none; what is damaged of
    it is left out."""
    state, priority, attempts, failures, begun, ended, error, member, sent, sent_error, on, *more = row
    retries, submitted, position, written, result, moves, progress, busy, owner = more
    return JobShown(
        id=id_,
        model=model,
        state=state,
        priority=priority,
        attempts=_number(attempts),
        failures=_number(failures),
        begun=_seconds(begun),
        ended=_seconds(ended),
        error=error,
        member=member,
        on=on,
        callback_attempts=_number(sent),
        callback_error=sent_error,
        task_retries=_number(retries, -1),
        submitted=_seconds(submitted),
        position=position,
        written=written,
        result=result,
        moves=_number(moves),
        progress=progress,
        busy=_number(busy),
        owner=owner,
    )


def _seconds(milliseconds: str) -> float:
    return _number(milliseconds) / 1000


def _number(text: Any, otherwise: int = 0) -> int:
    """`otherwise` where there is none; another program may have written it."""
    try:
        number = int(text or otherwise)
    except ValueError:
        return otherwise
    return number if abs(number) < _MOST else otherwise
