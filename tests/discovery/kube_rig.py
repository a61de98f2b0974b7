"""A source of Kubernetes that a test follows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from slb.discovery.found import Found, Member
from slb.discovery.kube_access import Access
from slb.discovery.kubernetes import Kubernetes, ServiceSource, target_of
from slb.discovery.list_watch import AskTiming
from tests.support.waiting import eventually

QUICK = AskTiming(watch=(300.0, 600.0), relist=600.0, first=0.05, longest=0.2)


class Heard:
    """What a source has said so far."""

    def __init__(self, source: ServiceSource) -> None:
        self.source = source
        self.all: list[Found] = []
        self._task = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        async for found in self.source.follow():
            self.all.append(found)

    @property
    def members(self) -> dict[str, Member] | None:
        return dict(self.all[-1].members) if self.all else None

    async def says(self, *members: str) -> None:
        """Wait until it has just these."""
        await eventually(lambda: set(self.members or ()) == set(members) and bool(self.all), what=str(members))

    async def drains(self, *members: str) -> None:
        """Wait until just these drain."""
        await eventually(
            lambda: {each for each, said in (self.members or {}).items() if said.is_draining} == set(members)
        )

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@asynccontextmanager
async def heard(
    url: str,
    target: str = "service/flux:http",
    token: Path | None = None,
    authority: Path | None = None,
    timing: AskTiming = QUICK,
    annotations: bool = False,
    selector: str = "",
) -> AsyncIterator[Heard]:
    access = Access(url, "ml", token, authority)
    kubernetes = Kubernetes(access, [target_of("/a", target)], Random(1), selector, annotations, timing)
    made = Heard(kubernetes.sources[0])
    try:
        yield made
    finally:
        await made.close()
