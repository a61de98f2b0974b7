"""The last table on disk, so that an instance that starts while Redis is away has something to serve.

A file of JSON lines: a header, one line a route, one an upstream, one for each known change, and a last line with
their number, so that a file cut short is recognised. It is replaced by a rename: several instances of a machine may
share it, and the last writer wins. Its modification time is when its contents were last known to be true."""

import asyncio
import os
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import orjson
import structlog

from slb.control.history import LAST_NUMBER, History, Snapshot
from slb.control.old_tables import remove_old_tables
from slb.control.private import create_private, read_private
from slb.control.slices import rested
from slb.dns_names import normal_target
from slb.model import RouteRecord
from slb.names import is_normal_path
from slb.routing.mirror import Mirror

_VERSION = 2
DEBOUNCE = 1.0
_AGAIN = 10.0
"""Seconds until a table that could not be written is tried again, though nothing has changed."""

_log = structlog.get_logger()


def table_file(data_dir: Path, url_shown: str) -> Path:
    """Where the table of this Redis is kept: another Redis has other routes."""
    return data_dir / f"table-{blake2b(url_shown.encode(), digest_size=6).hexdigest()}.json"


class DiskTable:
    """Reads the table once, and writes the mirror's whenever it has changed."""

    def __init__(
        self,
        path: Path,
        mirror: Mirror,
        debounce: float = DEBOUNCE,
        again: float = _AGAIN,
        history: Callable[[], History] = History,
    ) -> None:
        self._path = path
        self._mirror = mirror
        self._history = history
        self._debounce, self._again = debounce, again
        self._fault = ""
        self._changed = asyncio.Event()

    def load(self, wall: Callable[[], float] = time.time) -> tuple[Snapshot, float] | None:
        """The table kept, and its age in seconds; None for a damaged one, which is logged. Removes old tables."""
        remove_old_tables(self._path, wall)
        try:
            written, changed = read_private(self._path)
            return _parsed(written), max(0.0, wall() - changed)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError) as error:
            _log.warning("disk_table_unusable", file=str(self._path), error=str(error))
            return None

    def changed(self) -> None:
        """The mirror has changed: write it soon."""
        self._changed.set()

    def still_true(self) -> None:
        """The mirror, and with it the file, is what Redis has now."""
        if not self._changed.is_set():
            try:
                os.utime(self._path)
            except OSError as error:
                _log.debug("disk_table_not_touched", error=str(error))

    async def run(self) -> None:
        """Write after each change, once a burst of changes is over; until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._again if self._fault else self._debounce)
            await self.flush()

    async def flush(self) -> None:
        """Write what has changed, now. A full disk must not end anything: it is logged once, and tried again."""
        if not self._changed.is_set():
            return
        self._changed.clear()
        fault = ""
        try:
            await asyncio.to_thread(self._write, await self._text())
        except OSError as error:
            fault = str(error)
            self._changed.set()  # what is on the disk is of before: it may not be taken for true
        if fault and fault != self._fault:
            _log.warning("disk_table_not_written", file=str(self._path), error=fault)
        elif self._fault and not fault:
            _log.info("disk_table_written", file=str(self._path))
        self._fault = fault

    async def _text(self) -> bytearray:
        """All lines, in one buffer: orjson's own would each take a page for a while."""
        records = list(self._mirror.records.items())
        attributes = list(self._mirror.attributes.items())
        history = self._history().copy()
        changes = [entry for entry in history.of.items() if _is_utf8(entry[0])]
        generation = history.generation if _is_utf8(history.generation or "") else None
        values: Iterator[Mapping[str, object]] = chain(
            [{"version": _VERSION, "generation": generation, "floor": history.floor}],
            ({"path": at, "members": sorted(it.members), "settings": _sound(it.settings)} for at, it in records),
            ({"member": member, "attributes": _sound(each)} for member, each in attributes),
            ({"entry": entry, "number": number} for entry, number in changes),
            [{"routes": len(records), "upstreams": len(attributes), "changes": len(changes)}],
        )
        text = bytearray()
        async for value in rested(values):
            text += orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
        return text

    def _write(self, text: bytearray) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}.{id(self)}")
        try:
            with os.fdopen(create_private(unfinished), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
        finally:
            unfinished.unlink(missing_ok=True)


def _sound(texts: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Without what is not UTF-8 in Redis: JSON has no place for it, and no setting has such a value."""
    if texts is None or all(key.isascii() and value.isascii() for key, value in texts.items()):
        return texts
    return {key: value for key, value in texts.items() if _is_utf8(key + value)}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parsed(written: bytes) -> Snapshot:
    """Raises ValueError, KeyError or TypeError where `_write` has not finished it. Paths and members are checked as
    by the reader."""
    header, *lines, last = [orjson.loads(line) for line in written.splitlines()]
    if header["version"] != _VERSION:
        raise ValueError(f"version {header['version']} of the file is not known")
    generation = None if header["generation"] is None else _text(header["generation"])
    snapshot = Snapshot(history=History(floor=_number(header["floor"]), generation=generation))
    for line in lines:
        if "path" in line:
            settings = None if line["settings"] is None else _texts(line["settings"])
            members = frozenset(_member(each) for each in line["members"])
            snapshot.records[_path(line["path"])] = RouteRecord(members, settings)
        elif "entry" in line:
            snapshot.history.of[_text(line["entry"])] = _number(line["number"])
        else:
            snapshot.attributes[_member(line["member"])] = _texts(line["attributes"])
    counts = len(snapshot.records), len(snapshot.attributes), len(snapshot.history.of)
    if (last["routes"], last["upstreams"], last["changes"]) != counts:
        raise ValueError("the file is cut short")
    return snapshot


def _number(value: object) -> int:
    if type(value) is int and 0 <= value < LAST_NUMBER:
        return value
    raise ValueError(f"{reprlib.repr(value)} is no number of a change")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{reprlib.repr(value)} is no text")


def _path(value: object) -> str:
    if isinstance(value, str) and is_normal_path(value):
        return value
    raise ValueError(f"{reprlib.repr(value)} is no path in normal form")


def _member(value: object) -> str:
    if isinstance(value, str) and normal_target(value) == value:
        return value
    raise ValueError(f"{reprlib.repr(value)} is no member in normal form")


def _texts(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return value
    raise ValueError(f"{reprlib.repr(value)} is no table of texts")
