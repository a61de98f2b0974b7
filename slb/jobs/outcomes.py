"""How attempts ended that Redis cannot be told for now: in memory, and in a file that outlives this process."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import orjson
import structlog
from pydantic import Field, TypeAdapter

from slb.control.kept_lines import KeptLines, Orphan
from slb.job import Claimed
from slb.jobs.verdict import NOTHING_TRIED, Move, MoveName
from slb.setting_types import LONGEST_DURATION

KIND = "job-outcomes"
"""What the names of the files begin with."""
_AGAIN = 1.0
"""Seconds before a disk that is full is written to again."""

_Key = tuple[str, str, str]
_Seconds = Annotated[float, Field(ge=0, le=LONGEST_DURATION)]
_LINE = TypeAdapter(tuple[str, str, str, MoveName, str, _Seconds, str, Annotated[float, Field(ge=0)]])
"""Model, job, token, the move's name, its text, its seconds, the model to go on at; and when it ended, in
seconds since the epoch."""

_log = structlog.get_logger("slb.jobs")


class Kept(NamedTuple):
    """One attempt's end, by model, job and token; `ended`: when, in seconds since the epoch."""

    model: str
    id: str
    token: str
    move: Move
    ended: float

    @property
    def job(self) -> Claimed:
        """Enough of the attempt to tell Redis its end."""
        return Claimed(self.model, self.id, self.token, 0, 0, "", "", "")


class Outcomes:
    """An outcome is kept until Redis has it. Where the disk takes none, it is in memory alone, which is logged."""

    def __init__(self, file: KeptLines) -> None:
        self._file = file
        self._kept: set[_Key] = set()
        self._unwritten: dict[_Key, bytes] = {}
        self._found: dict[str, list[Kept]] = {}
        self._orphans: list[tuple[Orphan, set[_Key]]] = []
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._fault = ""

    def keep(self, job: Claimed, move: Move, ended: float) -> None:
        """Redis did not take it; `ended`: when it did, in seconds since the epoch. What is kept already is not kept
        twice; that nothing was tried need not be."""
        key = _key(job)
        if key in self._kept or move.name in NOTHING_TRIED:
            return
        self._kept.add(key)
        self._unwritten[key] = _line(job, move, ended)
        self._wake.set()

    def written(self, job: Claimed) -> None:
        """Redis has it."""
        key = _key(job)
        if key in self._kept:
            self._kept.discard(key)
            self._unwritten.pop(key, None)
            for _, keys in self._orphans:
                keys.discard(key)
            self._wake.set()

    async def recover(self) -> None:
        """Find what processes have left that ended before Redis was back."""
        try:
            orphans = await asyncio.to_thread(self._file.orphans)
        except OSError as error:
            _log.warning("job_outcomes_not_read", error=str(error))
            return
        for orphan in orphans:
            found = [kept for line in orphan.lines if (kept := _read(line)) is not None]
            for kept in found:
                self._found.setdefault(kept.model, []).append(kept)
            keys = {_key(kept.job) for kept in found}
            self._kept |= keys
            self._orphans.append((orphan, keys))
        self._wake.set()

    def found_of(self, model: str) -> Iterable[Kept]:
        """What was found for a model, once."""
        return self._found.pop(model, ())

    async def run(self) -> None:
        """Write what is kept, and remove what is not, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.flush():
                await asyncio.sleep(_AGAIN)
                self._wake.set()

    async def flush(self) -> bool:
        """Let the disk have what is kept. Whether it does."""
        async with self._writing:
            fault = ""
            try:
                await self._write()
            except OSError as error:
                fault = str(error)
            if fault and fault != self._fault:
                _log.warning("job_outcomes_not_kept", file=str(self._file.path), error=fault)
            elif self._fault and not fault:
                _log.info("job_outcomes_kept", file=str(self._file.path))
            self._fault = fault
            return not fault

    async def aclose(self) -> None:
        """Write what is left to the next process."""
        await self.flush()
        async with self._writing:
            self._file.close()

    async def _write(self) -> None:
        lines = dict(self._unwritten)
        if lines:
            await asyncio.to_thread(self._file.append, list(lines.values()))
            for key in lines:
                self._unwritten.pop(key, None)
        elif not self._kept:
            await asyncio.to_thread(self._file.clear)
        for orphan, keys in [each for each in self._orphans if not each[1]]:
            self._orphans.remove((orphan, keys))
            await asyncio.to_thread(orphan.remove)


def _key(job: Claimed) -> _Key:
    return job.model, job.id, job.token


def _line(job: Claimed, move: Move, ended: float) -> bytes:
    told = (move.name, move.text.decode(), move.seconds, move.on)
    return orjson.dumps([job.model, job.id, job.token, *told, ended])


def _read(line: bytes) -> Kept | None:
    """None for a line that was cut, or that holds anything else than an outcome."""
    try:
        model, id_, token, name, text, seconds, on, ended = _LINE.validate_json(line, strict=True)
        return Kept(model, id_, token, Move(name, text.encode(), seconds, on), ended)
    except ValueError:
        _log.warning("job_outcome_unreadable", line=line[:200].decode(errors="replace"))
        return None
