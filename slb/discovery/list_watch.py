"""Follows all objects of one kind in the Kubernetes API: lists them, watches what changes, and lists again where
the watch cannot go on."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

import structlog
from aiohttp import ClientError

from slb.backoff import Backoff
from slb.control.cancelled import raise_if_cancelled
from slb.discovery.found import Asked
from slb.discovery.kube_api import Answered, Broken, Expired, KubeApi

T = TypeVar("T")
_SPREAD = (0.8, 1.2)
_UNAUTHORIZED, _NOT_FOUND = 401, 404
_SHOWN = 253  # characters of a name, and of what is wrong with it
_MOST_PAGES = 2000
"""Of a list: 100,000 objects where the server heeds `limit`. One that always has another page is no API server."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AskTiming:
    """Seconds. `watch`: how long a watch is asked to last, at random, so that those of many clients do not end
    together; `relist`: the list is read again after so long, for a watch of a server whose data was restored from a
    backup is silent without an error; `first`, `longest`: pauses after failures."""

    watch: tuple[float, float] = (300.0, 600.0)
    relist: float = 600.0
    first: float = 0.8
    longest: float = 30.0


class Kind(NamedTuple):
    """`paths`: where the objects are, in the versions of the API to try; `selector`: of labels, "" for none."""

    name: str
    paths: Sequence[str]
    selector: str = ""


class _Unreadable(Exception):
    """An object of another form: what is known of it holds."""


class ListWatch(Generic[T]):
    """`parse`: an object to what is kept of it, None for nothing; it may raise ValueError, and the object is passed
    over. `on_all` is called with all, by namespace and name, after each list, and with the names of those that were
    passed over; `on_one` with each change: None where the object has been deleted."""

    def __init__(
        self,
        api: KubeApi,
        kind: Kind,
        parse: Callable[[Mapping[str, Any]], T | None],
        on_all: Callable[[dict[str, T], Collection[str]], None],
        on_one: Callable[[str, T | None], None],
        asked: Asked,
        rng: Random,
        timing: AskTiming | None = None,
    ) -> None:
        self._api = api
        self._kind = kind
        self._parse = parse
        self._on_all = on_all
        self._on_one = on_one
        self._asked = asked
        self._rng = rng
        self._timing = timing or AskTiming()
        self._backoff = Backoff()
        self._path = kind.paths[0]
        self._version = ""
        self._listed_at = 0.0
        self._logged = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._list_where_needed()
                await self._watch()
            except Expired as error:
                self._version = ""
                await self._pause(f"the version is too old: {error}", is_news=False)
            except Answered as error:
                self._version = "" if error.status >= 500 or error.status == _NOT_FOUND else self._version
                is_passing = error.status == _UNAUTHORIZED
                await self._pause(str(error), is_news=not is_passing, at_least=error.retry_after)
            except TimeoutError:
                self._version = ""  # by the list, which is to come soon, it shows whether the server is back
                await self._pause("no answer in time", is_news=True)
            except Broken as error:
                self._version = ""  # the list may have what the watch could not tell
                await self._pause(str(error))
            except (ClientError, OSError, ValueError) as error:
                await self._pause(str(error) or repr(error))
            raise_if_cancelled()

    async def _pause(self, trouble: str, is_news: bool = False, at_least: float = 0.0) -> None:
        """After a time of calm a cut connection is no news: it is tried again at once."""
        timing = self._timing
        pause = self._backoff.pause(_now(), timing.first, timing.longest)
        if is_news:
            pause = max(pause, timing.first)
        if pause:
            self._note(trouble)
        await asyncio.sleep(max(pause, at_least) * self._rng.uniform(*_SPREAD))

    def _note(self, trouble: str) -> None:
        self._asked.trouble = f"{self._kind.name}: {trouble}"
        if trouble != self._logged:
            self._logged = trouble
            _log.warning("kubernetes_does_not_answer", kind=self._kind.name, error=trouble)

    def _answered(self) -> None:
        self._asked.answered_at = time.time()
        if self._logged:
            _log.info("kubernetes_answers", kind=self._kind.name)
        if self._asked.trouble.startswith(f"{self._kind.name}: "):
            self._asked.trouble = ""
        self._logged = ""

    async def _list_where_needed(self) -> None:
        if self._version and _now() - self._listed_at < self._timing.relist:
            return
        began = _now()
        try:
            found, unread, self._version = await self._list()
        except Answered as error:
            if error.status != _NOT_FOUND or self._path == self._kind.paths[-1]:
                self._path = self._kind.paths[0]
                raise
            self._path = self._kind.paths[self._kind.paths.index(self._path) + 1]
            _log.info("kubernetes_older_api", kind=self._kind.name, path=self._path)
            found, unread, self._version = await self._list()
        self._listed_at = began
        self._answered()
        self._on_all(found, unread)

    async def _list(self) -> tuple[dict[str, T], set[str], str]:
        found: dict[str, T] = {}
        unread: set[str] = set()
        following = ""
        for _ in range(_MOST_PAGES):
            page = await self._api.page(self._path, self._kind.selector, following)
            for written in page.get("items") or ():
                try:
                    name, kept = self._read(written)
                except _Unreadable:
                    unread.add(_name_of(written))
                    continue
                if kept is not None:
                    found[name] = kept
            metadata = page["metadata"]
            following = str(metadata.get("continue") or "")
            if not following:
                return found, unread, _version_of(metadata)
            await asyncio.sleep(0)
        raise Broken(f"a list of more than {_MOST_PAGES} pages")

    async def _watch(self) -> None:
        """Until it ends. A server, or a proxy in front of it, that ends each at once is not asked in a circle."""
        began, timing = _now(), self._timing
        rest = max(1.0, timing.relist - (began - self._listed_at))
        seconds = max(1, round(min(self._rng.uniform(*timing.watch), rest)))
        watched = self._api.watch(self._path, self._kind.selector, self._version, seconds, self._answered)
        async for event in watched:
            self._asked.answered_at = time.time()
            self._take(event)
        if _now() - began < min(1.0, seconds / 2):
            await self._pause("the watch ended at once")

    def _take(self, event: Mapping[str, Any]) -> None:
        written = event.get("object")
        if not isinstance(written, dict) or not isinstance(written.get("metadata"), dict):
            raise Broken("an event without an object")
        kind = event.get("type")
        if kind in ("ADDED", "MODIFIED"):
            with suppress(_Unreadable):
                self._on_one(*self._read(written))
        elif kind == "DELETED":
            self._on_one(_name_of(written), None)
        self._version = _version_of(written["metadata"])

    def _read(self, written: Any) -> tuple[str, T | None]:
        name = _name_of(written)
        try:
            return name, self._parse(written)
        except (ValueError, KeyError, TypeError) as error:
            kind = self._kind.name
            _log.warning("kubernetes_object_passed_over", kind=kind, name=name[:_SHOWN], error=str(error)[:_SHOWN])
            raise _Unreadable from None


def _name_of(written: Any) -> str:
    metadata = written.get("metadata") if isinstance(written, dict) else None
    if not isinstance(metadata, dict):
        raise Broken("an object without metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _version_of(metadata: Mapping[str, Any]) -> str:
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise Broken("no resourceVersion")
    return version


def _now() -> float:
    return asyncio.get_running_loop().time()
