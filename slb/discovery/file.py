"""A file of members as a source for each route in it, followed like the config file."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import structlog

from slb.addresses import AddressRules
from slb.changed_files import LOOK_EVERY, ChangedFiles
from slb.discovery.found import Asked, Found
from slb.discovery.members_file import Members, read_members
from slb.errors import ConfigError

_log = structlog.get_logger("slb.discovery")


class FileSource:
    """One route of a file. A route that the file has no more has no members: nothing says that this was meant, so
    it is held back like any empty answer."""

    def __init__(self, path: str, name: str, asked: Asked, found: Found) -> None:
        self.path = path
        self.name = name
        self.asked = asked
        self._found = found
        self._is_changed = asyncio.Event()

    def tell(self, found: Found) -> None:
        if found != self._found:
            self._found = found
            self._is_changed.set()

    async def follow(self) -> AsyncIterator[Found]:
        """As `Source` has it; the last set that could be read."""
        while True:
            self._is_changed.clear()
            yield self._found
            await self._is_changed.wait()


class MembersFile:
    """Reads `file` whenever it has changed. `sources`: one for each route that it ever had. A file that cannot be
    read, or not as a whole, changes nothing, and is logged with what is wrong. `on_change` is called when there are
    others than before."""

    def __init__(self, file: Path, rules: AddressRules, look_every: float = LOOK_EVERY) -> None:
        self._file = file
        self._name = f"file/{quote(str(file))}"
        self._rules = rules
        self._look_every = look_every
        self._asked = Asked()
        self._again = asyncio.Event()
        self._sources: dict[str, FileSource] = {}
        self._once: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None

    @property
    def sources(self) -> Sequence[FileSource]:
        return list(self._sources.values())

    def look_again(self) -> None:
        """Read it now, as other address rules may hold."""
        self._again.set()

    def adopt(self, known: Iterable[tuple[str, str]]) -> None:
        """Sources (path, name) that any instance has ever followed: routes that this file once had are its own
        still, without members where it has them no more."""
        self._once.update(path for path, name in known if name == self._name)
        self._again.set()

    async def run(self) -> None:
        """Until cancelled."""
        files = ChangedFiles([self._file], self._look_every)
        while True:
            await self._read()
            await files.changed(self._again)

    async def _read(self) -> None:
        try:
            members = await asyncio.to_thread(read_members, self._file, self._rules)
        except ConfigError as error:
            if str(error) != self._asked.trouble:
                _log.error("discovery_file_refused", error=str(error))
            self._asked.trouble = str(error)
            return
        self._asked.trouble, self._asked.answered_at = "", time.time()
        count = sum(map(len, members.values()))
        _log.info("discovery_file_read", file=str(self._file), routes=len(members), members=count)
        self._tell(members)

    def _tell(self, members: Members) -> None:
        for path, source in self._sources.items():
            source.tell(Found(members.get(path, {})))
        new = sorted((members.keys() | self._once) - self._sources.keys())
        for path in new:
            self._sources[path] = FileSource(path, self._name, self._asked, Found(members.get(path, {})))
        if new:
            self.on_change()
