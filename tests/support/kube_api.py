"""A Kubernetes API server for tests, over TLS: lists, watches, and what goes wrong with them.

Modelled on what a real kube-apiserver 1.20.2 with etcd 3.4 was seen to answer: ADDED, MODIFIED, DELETED and
BOOKMARK, a clean end after `timeoutSeconds`, pages with `continue`, a watch from a version that is too old (status
410, or 200 and one ERROR event), 401 and 403 as Status objects, silence for a version of the future.
tests/discovery/test_real_kubernetes.py asks a real one the same questions, where there is one.
"""

import asyncio
import json
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

SLICES = "endpointslices"


def endpoint(address: str, pod: str = "", **conditions: bool | None) -> dict[str, Any]:
    """One pod, ready unless said otherwise; `zone`, `node` by its name."""
    name = pod or f"pod-{address}"
    return {
        "addresses": [address],
        "conditions": {"ready": True, **conditions},
        "targetRef": {"kind": "Pod", "name": name, "uid": f"uid-{name}"},
        "nodeName": "node-1",
        "zone": "zone-a",
    }


def slice_of(
    endpoints: Iterable[Mapping[str, Any]],
    name: str = "flux-1",
    service: str = "flux",
    ports: Any = ({"name": "http", "port": 8000, "protocol": "TCP"},),
    family: str = "IPv4",
    namespace: str = "ml",
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "ports": None if ports is None else list(ports),
        "endpoints": list(endpoints),
    }


class KubeApi:
    """`url`; `asked`: the path and query of each request; `tokens`: those that are taken, None for all; `refusals`:
    answers for the next requests, (status, headers, message); `cut`: after so many bytes the next watch's
    connection is cut; `expired`: how a watch from before the last `compact` ends, "status" or "event"."""

    def __init__(self, context: ssl.SSLContext | None = None, version: str = "v1") -> None:
        self.version = version
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.tokens: set[str] | None = None
        self.refusals: list[tuple[int, dict[str, str], str]] = []
        self.cut: int | None = None
        self.expired = "status"
        self.watching = 0
        self._context = context
        self._number = 100
        self._oldest = 0
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._log: list[tuple[int, str, str, dict[str, Any]]] = []
        self._news = asyncio.Condition()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._streams: list[web.Request] = []
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._server = TestServer(app)

    async def __aenter__(self) -> "KubeApi":
        await self._server.start_server(ssl=self._context, shutdown_timeout=0.1)
        scheme = "http" if self._context is None else "https"
        self.url = f"{scheme}://localhost:{self._server.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        self.end_watches()
        await self._server.close()

    # -- what is in it

    async def put(self, written: Mapping[str, Any], kind: str = SLICES) -> None:
        name = (kind, str(written["metadata"]["name"]))
        async with self._news:
            event = "MODIFIED" if name in self._objects else "ADDED"
            self._number += 1
            metadata = {**written["metadata"], "resourceVersion": str(self._number)}
            self._objects[name] = {**written, "metadata": metadata}
            self._log.append((self._number, event, kind, self._objects[name]))
            self._news.notify_all()

    async def delete(self, name: str, kind: str = SLICES) -> None:
        async with self._news:
            gone = self._objects.pop((kind, name))
            self._number += 1
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._number)}}
            self._log.append((self._number, "DELETED", kind, gone))
            self._news.notify_all()

    async def bookmark(self) -> None:
        """Tell all watches the present version."""
        async with self._news:
            self._number += 1
            for kind in (SLICES, "pods", "services"):
                written = {"metadata": {"resourceVersion": str(self._number)}}
                self._log.append((self._number, "BOOKMARK", kind, written))
            self._news.notify_all()

    async def lose(self, name: str, kind: str = SLICES) -> None:
        """Delete without an event: it is in the part of the log that a 410 is about, or a backup was restored."""
        async with self._news:
            del self._objects[kind, name]
            self._number += 1

    def compact(self) -> None:
        """Forget all events so far."""
        self._oldest = self._number
        self._log.clear()

    # -- what goes wrong

    def freeze(self) -> None:
        """Take connections, and say nothing."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def end_watches(self) -> None:
        """Cut the connections of all watches."""
        for request in list(self._streams):
            if request.transport is not None:
                request.transport.abort()

    def queries(self, watches: bool) -> list[dict[str, str]]:
        """Of the lists, or of the watches, so far."""
        return [query for _, query in self.asked if ("watch" in query) is watches]

    # -- answers

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, dict(request.query)))
        await self._thawed.wait()
        if self.refusals:
            status, headers, message = self.refusals.pop(0)
            return _status(status, message, headers)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            return _status(401, "Unauthorized")
        kind = self._kind_at(request.path)
        if kind is None:
            return web.Response(status=404, text="404 page not found\n")
        return await (self._watch if "watch" in request.query else self._list)(request, kind)

    def _kind_at(self, path: str) -> str | None:
        *group, _, _, kind = path.strip("/").split("/")
        known = {
            SLICES: ["apis", "discovery.k8s.io", self.version],
            "pods": ["api", "v1"],
            "services": ["api", "v1"],
        }
        return kind if known.get(kind) == group else None

    async def _list(self, request: web.Request, kind: str) -> web.Response:
        mine = [each for (of, _), each in sorted(self._objects.items()) if of == kind and _fits(request, each)]
        first, most = int(request.query.get("continue", "0")), int(request.query.get("limit", "500"))
        metadata: dict[str, Any] = {"resourceVersion": str(self._number)}
        if len(mine) > first + most:
            metadata |= {"continue": str(first + most), "remainingItemCount": len(mine) - first - most}
        return web.json_response({"kind": "List", "metadata": metadata, "items": mine[first : first + most]})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        too_old = since < self._oldest
        if too_old and self.expired == "status":
            return _status(410, f"too old resource version: {since} ({self._oldest})", reason="Expired")
        reply = web.StreamResponse(headers={"Content-Type": "application/json"})
        reply.enable_chunked_encoding()
        await reply.prepare(request)
        self._streams.append(request)
        self.watching += 1
        try:
            if too_old:
                status = _status_of(410, f"too old resource version: {since} ({self._oldest})", "Expired")
                await reply.write(_line("ERROR", status))
                return reply
            async with asyncio.timeout(int(request.query["timeoutSeconds"])):
                await self._stream(request, reply, kind, since)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._streams = [each for each in self._streams if each is not request]
            self.watching -= 1
        return reply

    def _has_news(self, since: int) -> bool:
        return any(number > since for number, *_ in self._log)

    async def _stream(self, request: web.Request, reply: web.StreamResponse, kind: str, since: int) -> None:
        left, self.cut = self.cut, None
        while True:
            async with self._news:
                await self._news.wait_for(partial(self._has_news, since))
                due = [each for each in self._log if each[0] > since]
            since = due[-1][0]
            await self._thawed.wait()
            for _, event, of, written in due:
                if of != kind or (event != "BOOKMARK" and not _fits(request, written)):
                    continue
                line = _line(event, written)
                if left is not None and len(line) >= left:
                    await reply.write(line[:left])
                    assert request.transport is not None
                    await asyncio.sleep(0)
                    request.transport.close() if left % 2 else request.transport.abort()
                    return
                left = left - len(line) if left is not None else None
                await reply.write(line)


def _fits(request: web.Request, written: Mapping[str, Any]) -> bool:
    """By the selectors that slb makes: NAME=VALUE, and `NAME in (A,B)`."""
    labels = written["metadata"].get("labels") or {}
    rest = request.query.get("labelSelector", "")
    before, is_in, after = rest.partition(" in (")
    if is_in:
        name, (values, _, more) = before.rpartition(",")[2], after.partition(")")
        if labels.get(name) not in values.split(","):
            return False
        rest = before.rpartition(",")[0] + more
    wanted = [part.partition("=")[::2] for part in rest.split(",") if part]
    return all(labels.get(name) == value for name, value in wanted)


def _line(event: str, written: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": written}).encode() + b"\n"


def _status_of(code: int, message: str, reason: str = "") -> dict[str, Any]:
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**said, "message": message, "reason": reason, "code": code}


def _status(code: int, message: str, headers: Mapping[str, str] | None = None, reason: str = "") -> web.Response:
    return web.json_response(_status_of(code, message, reason), status=code, headers=headers)
