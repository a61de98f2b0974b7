"""What answers as the Kubernetes API and is none, or is broken: the last good set stays, a good answer is taken."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from slb.discovery import list_watch
from tests.discovery.kube_rig import heard
from tests.support.kube_api import endpoint, slice_of
from tests.support.waiting import eventually

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
GOOD = slice_of([endpoint("10.0.0.1")])


class Server:
    """Every list is `page(query)`; every watch has `events`, and ends."""

    def __init__(self) -> None:
        self.page: Callable[[Any], bytes] = lambda _: listed(GOOD)
        self.events: list[bytes] = []
        self.lists = 0
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server.port}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            return web.Response(body=self.page(request.query), content_type="application/json")
        reply = web.StreamResponse()
        await reply.prepare(request)
        for line in self.events:
            await reply.write(line + b"\n")
        return reply


def listed(*slices: object, following: str = "") -> bytes:
    metadata = {"resourceVersion": "7", **({"continue": following} if following else {})}
    return json.dumps({"metadata": metadata, "items": slices}).encode()


def event(kind: str, written: dict[str, Any], version: str) -> bytes:
    metadata = {**written["metadata"], "resourceVersion": version}
    return json.dumps({"type": kind, "object": {**written, "metadata": metadata}}).encode()


def gone() -> bytes:
    return b'{"type": "ERROR", "object": {"code": 410}}'


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.server.start_server(shutdown_timeout=0.1)
    yield made
    await made.server.close()


async def test_a_list_without_end_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "_MOST_PAGES", 5)
    server.events = [gone()]
    async with heard(server.url) as source:
        await source.says(A)
        server.page = lambda query: listed(
            {**GOOD, "metadata": {**GOOD["metadata"], "name": f"flux-{query.get('continue', '')}"}},
            following=query.get("continue", "") + "x",
        )
        await eventually(lambda: "more than 5 pages" in source.source.asked.trouble)
        await source.says(A)
        server.page = lambda _: listed(slice_of([endpoint("10.0.0.2")]))
        await source.says(B)


BROKEN_LISTS = [
    b"",
    b"null",
    b"[]",
    b"[" * 200_000,
    b'{"items": {}, "metadata": {}}',
    b'{"items": []}',
    b'{"items": [], "metadata": {"resourceVersion": 7}}',
    b'{"items": [1, null, "x", []], "metadata": {"resourceVersion": "7"}}',
    b'{"items": [{}], "metadata": {"resourceVersion": "7"}}',
    b'{"items": [], "metadata": {"resourceVersion": "7"}} and more',
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", BROKEN_LISTS, ids=range(len(BROKEN_LISTS)))
async def test_a_broken_list_changes_nothing(server: Server, body: bytes) -> None:
    server.events = [gone()]
    async with heard(server.url) as source:
        await source.says(A)
        server.page, before = lambda _: body, server.lists
        await eventually(lambda: server.lists > before + 1)
        assert source.source.asked.trouble
        await source.says(A)
        server.page = lambda _: listed(slice_of([endpoint("10.0.0.2")]))
        await source.says(B)


def changed(**fields: Any) -> dict[str, Any]:
    """A slice of the same service under another name, with these fields."""
    return {**slice_of([endpoint("10.0.0.9")], name="flux-2"), **fields}


UNREADABLE = [
    changed(endpoints=[7, None, "x"]),
    changed(endpoints={"addresses": ["10.0.0.9"]}),
    changed(endpoints=[{"addresses": [None]}]),
    changed(endpoints=[{"addresses": {"0": "10.0.0.9"}}]),
    changed(endpoints=[{"addresses": ["10.0.0.9"], "conditions": 7}]),
    changed(ports=[{"name": "http", "port": [8000]}]),
    changed(ports={"http": 8000}),
    changed(metadata={"name": "flux-2", "labels": ["kubernetes.io/service-name"]}),
]
"""No EndpointSlices."""

USELESS = [
    changed(endpoints=[{"addresses": ["10.0.0.9/../x"]}]),
    changed(endpoints=[{"addresses": ["169.254.169.254 x"]}]),
    changed(ports=[{"name": "http", "port": 1e308}]),
    changed(ports=[{"name": "http", "port": -1}]),
    changed(metadata={"name": {"x": 1}, "labels": {"kubernetes.io/service-name": {"flux": 1}}}),
]


@pytest.mark.parametrize("written", UNREADABLE + USELESS, ids=range(len(UNREADABLE + USELESS)))
async def test_a_broken_slice_is_passed_over_beside_good_ones(server: Server, written: dict[str, Any]) -> None:
    server.page = lambda _: listed(GOOD, written)
    async with heard(server.url) as source:
        await source.says(A)


@pytest.mark.parametrize("written", UNREADABLE, ids=range(len(UNREADABLE)))
@pytest.mark.parametrize("is_told", [False, True], ids=["listed", "told"])
async def test_what_is_known_of_a_slice_holds_where_it_cannot_be_read_any_more(
    server: Server, written: dict[str, Any], is_told: bool
) -> None:
    named = {"namespace": "ml", "name": "flux-1", "resourceVersion": "8"}
    broken = {**written, "metadata": {**written["metadata"], **named}}
    other = slice_of([endpoint("10.0.0.2")], name="flux-2")
    async with heard(server.url) as source:
        await source.says(A)
        if is_told:
            server.events = [event("MODIFIED", broken, "8"), event("ADDED", other, "9")]
        else:
            server.page, server.events = lambda _: listed(broken, other), [gone()]
        await source.says(A, B)
        assert all(A in found.members for found in source.all)


async def test_one_slice_that_is_listed_twice_is_one(server: Server) -> None:
    server.page = lambda _: listed(GOOD, slice_of([endpoint("10.0.0.2")]), GOOD)
    async with heard(server.url) as source:
        await source.says(A)


BROKEN_EVENTS = [
    b"",
    b"{}",
    b"nothing",
    b'{"type": "ADDED"}',
    b'{"type": "DELETED", "object": {"metadata": {}}}',
    b'{"type": "MODIFIED", "object": {"metadata": {"name": "flux-1"}}}',
    b'{"type": "ERROR"}',
    b'{"type": "ERROR", "object": {"code": "abc"}}',
    b'{"type": "ERROR", "object": {"code": 1e99}}',
    b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": {}}}}',
    b'{"type": 7, "object": {"metadata": {"resourceVersion": "8"}}}',
]


@pytest.mark.parametrize("line", BROKEN_EVENTS, ids=range(len(BROKEN_EVENTS)))
async def test_a_broken_event_is_followed_by_another_try(server: Server, line: bytes) -> None:
    async with heard(server.url) as source:
        await source.says(A)
        server.events = [line]
        await eventually(lambda: bool(source.source.asked.trouble))
        await source.says(A)
        server.events = [event("MODIFIED", slice_of([endpoint("10.0.0.2")]), "9")]
        await source.says(B)
