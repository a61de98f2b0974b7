"""Services of Kubernetes as sources: one watch of a namespace's EndpointSlices for all routes of this process."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from aiohttp import ClientSession, TCPConnector

from slb.config import Settings
from slb.discovery.found import Asked, Found
from slb.discovery.kube_access import Access, Credentials, access_of
from slb.discovery.kube_api import KubeApi
from slb.discovery.list_watch import AskTiming, Kind, ListWatch
from slb.discovery.slices import SERVICE, Extras, Family, Slice, Wanted, extras_of, members_of, slice_of
from slb.errors import ConfigError, InvalidName
from slb.names import normal_path

_MOST_NAMED = 50
"""Services that are named in the selector; of more, all slices of the namespace are read."""

_NOTHING = Extras()


class Target(NamedTuple):
    """What one route follows."""

    path: str
    service: str
    wanted: Wanted


def target_of(path: str, text: str, family: Family = "ipv4") -> Target:
    """Of `service/NAME`, `service/NAME:PORT` (a port's name or number), or one of these behind `https+`. Raises
    ConfigError."""
    scheme, plus, rest = text.rpartition("+")
    kind, _, named = rest.partition("/")
    service, colon, port = named.partition(":")
    if (scheme, plus) not in (("", ""), ("http", "+"), ("https", "+")):
        raise ConfigError(f"{text!r}: the scheme is http or https, as in https+service/flux:web")
    if kind != "service" or not _is_label(service) or (colon and not _is_label(port)):
        raise ConfigError(f"{text!r} is not service/NAME or service/NAME:PORT")
    try:
        return Target(normal_path(path), service, Wanted(port, scheme, family))
    except InvalidName as error:
        raise ConfigError(str(error)) from None


def _is_label(text: str) -> bool:
    """As Kubernetes writes names of services and ports; no comma or parenthesis gets into a selector."""
    return 0 < len(text) <= 63 and text.isascii() and text.replace("-", "").isalnum() and text == text.lower()


class Kubernetes:
    """One namespace. It is watched while any of its `sources` is followed."""

    def __init__(
        self,
        access: Access,
        targets: Sequence[Target],
        rng: Random,
        selector: str = "",
        annotations: bool = False,
        timing: AskTiming | None = None,
    ) -> None:
        self._access = access
        self._rng = rng
        self._selector = selector
        self._annotations = annotations
        self._timing = timing
        self._services = {target.service for target in targets}
        self._credentials = Credentials(access)
        self._task: asyncio.Task[None] | None = None
        self._clear()
        self.asked = Asked()
        self.sources = [ServiceSource(self, target) for target in targets]

    def _clear(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._of_service: defaultdict[str, set[str]] = defaultdict(set)
        self._pods: dict[str, Extras] = {}
        self._extras: dict[str, Extras] = {}
        self._lacks = {"endpointslices", *(("pods", "services") if self._annotations else ())}
        self._ended: set[str] = set()

    @property
    def namespace(self) -> str:
        return self._access.namespace

    # -- of the sources

    def join(self) -> None:
        """A source begins to be followed."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"kubernetes {self.namespace}")

    async def leave(self) -> None:
        """A source is not followed any more."""
        if self._task is None or any(source.is_followed for source in self.sources):
            return
        task, self._task = self._task, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
        self._clear()

    def found(self, target: Target) -> Found | None:
        """All members of its service; None while not everything has been listed."""
        if self._lacks:
            return None
        mine = [self._slices[name] for name in sorted(self._of_service.get(target.service, ()))]
        extras = self._extras.get(target.service, _NOTHING)
        members = members_of(mine, target.wanted, self._pods, extras)
        return Found(members, is_gone=not mine and target.service in self._ended)

    # -- of the watches

    async def _run(self) -> None:
        connector = TCPConnector(limit=0, force_close=False)
        async with ClientSession(connector=connector, trust_env=False, auto_decompress=True) as session:
            api = KubeApi(session, self._access.url, self._credentials)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._of_slices(api).run())
                if self._annotations:
                    group.create_task(self._of_annotations(api, "pods", self._pods).run())
                    group.create_task(self._of_annotations(api, "services", self._extras).run())

    def _of_slices(self, api: KubeApi) -> ListWatch[Slice]:
        place = f"namespaces/{self.namespace}/endpointslices"
        paths = [f"/apis/discovery.k8s.io/{version}/{place}" for version in ("v1", "v1beta1")]
        kind = Kind("endpointslices", paths, self._selected())
        return self._list_watch(api, kind, slice_of, self._on_slices, self._on_slice)

    def _of_annotations(self, api: KubeApi, name: str, kept: dict[str, Extras]) -> ListWatch[tuple[str, Extras]]:
        """Of pods and services; those without any of slb's annotations are not kept."""

        def on_all(found: dict[str, tuple[str, Extras]], unread: Collection[str]) -> None:
            names = {each.rpartition("/")[2] for each in unread}
            known = {name: extras for name, extras in kept.items() if name in names}
            kept.clear()
            kept.update(known)
            kept.update(found.values())
            self._listed(name)

        def on_one(key: str, found: tuple[str, Extras] | None) -> None:
            if found is None:
                kept.pop(key.rpartition("/")[2], None)
            else:
                kept[found[0]] = found[1]
            self._tell(None)

        kind = Kind(name, [f"/api/v1/namespaces/{self.namespace}/{name}"])
        return self._list_watch(api, kind, _annotated, on_all, on_one)

    def _list_watch(
        self,
        api: KubeApi,
        kind: Kind,
        parse: Callable[[Mapping[str, Any]], Any],
        on_all: Callable[[dict[str, Any], Collection[str]], None],
        on_one: Callable[[str, Any], None],
    ) -> ListWatch[Any]:
        return ListWatch(api, kind, parse, on_all, on_one, self.asked, self._rng, self._timing)

    def _selected(self) -> str:
        """Slices of services that no route names are not asked for, unless that would be a long question."""
        named = sorted(self._services)
        one_of = f"{SERVICE} in ({','.join(named)})" if len(named) <= _MOST_NAMED else ""
        return ",".join(filter(None, (self._selector, one_of)))

    def _on_slices(self, found: dict[str, Slice], unread: Collection[str]) -> None:
        """After a list. A service without slices is not taken for gone: that only a watch tells for sure."""
        found = {name: each for name, each in self._slices.items() if name in unread} | found
        self._slices = {name: each for name, each in found.items() if each.service in self._services}
        self._of_service.clear()
        for name, each in self._slices.items():
            self._of_service[each.service].add(name)
            self._ended.discard(each.service)
        self._listed("endpointslices")

    def _on_slice(self, name: str, found: Slice | None) -> None:
        before = self._slices.pop(name, None)
        if before is not None:
            self._of_service[before.service].discard(name)
            if found is None and not self._of_service[before.service]:
                self._ended.add(before.service)
        if found is not None and found.service in self._services:
            self._slices[name] = found
            self._of_service[found.service].add(name)
            self._ended.discard(found.service)
        self._tell({each.service for each in (before, found) if each is not None})

    def _listed(self, name: str) -> None:
        self._lacks.discard(name)
        self._tell(None)

    def _tell(self, services: set[str] | None) -> None:
        """Something of these has changed, or of any."""
        for source in self.sources:
            if services is None or source.target.service in services:
                source.changed.set()


class ServiceSource:
    """One service for one route."""

    def __init__(self, kubernetes: Kubernetes, target: Target) -> None:
        self._kubernetes = kubernetes
        self.target = target
        self.path = target.path
        port = f":{target.wanted.port}" if target.wanted.port else ""
        self.name = f"kubernetes/{kubernetes.namespace}/{target.service}{port}"
        self.changed = asyncio.Event()
        self.is_followed = False

    @property
    def asked(self) -> Asked:
        return self._kubernetes.asked

    async def follow(self) -> AsyncIterator[Found]:
        """The whole set at each change. A slice may end a moment before its endpoints are in another: the writer
        waits for that."""
        self.is_followed = True
        self.changed.set()
        said: Found | None = None
        self._kubernetes.join()
        try:
            while True:
                await self.changed.wait()
                self.changed.clear()
                found = self._kubernetes.found(self.target)
                if found is not None and found != said:
                    said = found
                    yield found
        finally:
            self.is_followed = False
            await self._kubernetes.leave()


def services_of(settings: Settings, rng: Random) -> list[ServiceSource]:
    """The sources that these settings name. Raises ConfigError."""
    named = settings.discovery_kubernetes_routes
    if not named or "discovery" not in settings.roles:
        return []
    access = access_of(
        settings.discovery_kubernetes_api_server,
        settings.discovery_kubernetes_namespace,
        settings.discovery_kubernetes_token_file,
        settings.discovery_kubernetes_ca,
    )
    family = settings.discovery_kubernetes_family
    targets = [target_of(path, text, family) for path, text in named.items()]
    selector, annotations = settings.discovery_kubernetes_selector, settings.discovery_kubernetes_annotations
    return Kubernetes(access, targets, rng, selector, annotations).sources


def _annotated(written: Mapping[str, Any]) -> tuple[str, Extras] | None:
    metadata = written["metadata"]
    extras = extras_of(metadata.get("annotations"))
    return (str(metadata["name"]), extras) if extras != _NOTHING else None
