"""Discovery in one process: its sources, and the writer that writes what they say."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from slb.config import Settings
from slb.control.cancelled import raise_if_cancelled
from slb.discovery.dns_questions import Questions, Server
from slb.discovery.file import MembersFile
from slb.discovery.found import Source
from slb.discovery.registered import RegisteredNames
from slb.discovery.writer import Writer
from slb.observe.discovery import SourceShown
from slb.setting_values import host_port

_PAUSE = 1.0  # seconds


class Discovery:
    """`known`: the sources (path, name) that any instance ever followed, None while that, or what is registered,
    is not known for sure. `names`: those in DNS that routes register; `file`: None where there is none; `others`:
    sources that stay."""

    def __init__(
        self,
        writer: Writer,
        known: Callable[[], Awaitable[Sequence[tuple[str, str]] | None]],
        questions: Questions,
        names: RegisteredNames,
        file: MembersFile | None = None,
        others: Sequence[Source] = (),
    ) -> None:
        self._writer = writer
        self._known = known
        self._questions = questions
        self._names = names
        self._file = file
        self._others = others
        names.on_change = self._follow
        if file is not None:
            file.on_change = self._follow
        self._follow()

    def _follow(self) -> None:
        of_file = self._file.sources if self._file is not None else ()
        self._writer.follow([*self._others, *of_file, *self._names.sources])

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._writer.run())
            group.create_task(self._adopt())
            if self._file is not None:
                group.create_task(self._file.run())
        raise_if_cancelled()

    async def _adopt(self) -> None:
        """Once: end what was given up while no instance ran."""
        while (known := await self._known()) is None:
            await asyncio.sleep(_PAUSE)
        self._names.adopt(known)
        if self._file is not None:
            self._file.adopt(known)

    async def leave(self) -> None:
        """Let others write at once, once `run` has ended."""
        await self._writer.leave()

    def reconfigure(self, settings: Settings) -> None:
        self._questions.servers = dns_servers(settings)
        self._names.look_again()
        if self._file is not None:
            self._file.look_again()

    def shown(self) -> list[SourceShown]:
        """Without names that are registered no more, once their members are gone."""
        return [
            each
            for each in self._writer.shown()
            if each.members or not self._names.has_ended(each.path, each.source)
        ]


def dns_servers(settings: Settings) -> list[Server]:
    return [host_port(each) for each in settings.discovery_dns_servers]
