"""The fleet's view as its readers meet it: streams of any speed, and notes of what callers change."""

import asyncio
from typing import Any

import orjson
import pytest

from slb.api import fleet as fleet_endpoint
from slb.control import keys
from slb.control.change_log import Entry
from slb.tokens import digest_of
from tests.support.waiting import eventually, soon, until, within
from tests.unit.api.conftest import Api, ApiMaker


class FakeFleet:
    """A view whose state is what the test says."""

    def __init__(self) -> None:
        self.version = 1
        self.change = b'{"routes":{"/1":{}}}'
        self.whole = b'{"instances":{},"routes":{"/1":{}}}'
        self.viewers = 0
        self._updated = asyncio.Event()

    def state(self) -> bytes:
        return self.whole

    def self_shown(self) -> dict[str, Any]:
        return {"id": "id-1", "name": "one"}

    def enter(self) -> None:
        self.viewers += 1

    def leave(self) -> None:
        self.viewers -= 1

    async def first(self) -> None:
        pass

    async def updated(self, version: int, seconds: float) -> bool:
        if version == self.version:
            await self._updated.wait()
        return True

    def move(self, change: bytes) -> None:
        self.version += 1
        self.change = change
        updated, self._updated = self._updated, asyncio.Event()
        updated.set()

    async def history(self) -> dict[str, Any]:
        return {"step": 5, "series": {}}

    async def hour(self, name: str) -> dict[str, Any]:
        return {"name": name, "step": 30, "requests": [0.5]}

    async def explain(self, request_id: str) -> list[dict[str, Any]]:
        return [] if request_id != "a/b" else [{**FOUND}]


FOUND: dict[str, Any] = {
    "time": 1.0,
    "route": "/p",
    "upstream": "",
    "status": 503,
    "reason": "queue_full",
    "detail": "too many",
    "decided_by": "redis",
    "failed": [],
    "position": None,
    "queued": 0.0,
    "sent_after": None,
    "first_byte_after": None,
    "duration": 0.1,
    "instance": "id-1",
    "instance_name": "one",
}


class Reader:
    """One connection that reads a stream when it likes."""

    def __init__(self, api: Api, fields: str = "") -> None:
        self._api = api
        self._fields = fields

    async def __aenter__(self) -> "Reader":
        self._reader, self._writer = await asyncio.open_connection(self._api.host, self._api.port, limit=1 << 21)
        head = f"GET /fleet/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{self._fields}\r\n"
        self._writer.write(head.encode())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def event(self) -> tuple[str, Any]:
        """The next one. Chunked framing is passed over: no event here has a line of its form."""
        name = ""
        while True:
            line = await soon(self._reader.readline(), 20)
            assert line, "the connection has ended"
            field, _, value = line.decode().rstrip().partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                return name, orjson.loads(value)

    async def rest(self) -> bytes:
        return await soon(self._reader.read(), 60)


@pytest.fixture
def view() -> FakeFleet:
    return FakeFleet()


async def test_the_state_is_one_object_with_what_the_instance_is(serve: ApiMaker, view: FakeFleet) -> None:
    api = await serve(fleet=view)
    answer = await api.call("GET", "/fleet")
    assert answer.json == {
        "view": {"self": {"id": "id-1", "name": "one", "rights": None, "prefixes": [], "token": ""}},
        "instances": {},
        "routes": {"/1": {}},
    }
    view.whole = b"{}"
    assert list((await api.call("GET", "/fleet")).json) == ["view"]
    assert view.viewers == 0


async def test_a_stream_has_the_whole_first_and_then_changes(serve: ApiMaker, view: FakeFleet) -> None:
    api = await serve(fleet=view)
    async with Reader(api) as reader:
        name, first = await reader.event()
        assert (name, first["routes"]) == ("all", {"/1": {}})
        view.move(b'{"routes":{"/1":null}}')
        name, change = await reader.event()
        assert (name, change["routes"]) == ("change", {"/1": None})
        assert change["view"]["self"]["name"] == "one"
        assert view.viewers == 1

    def looks_no_more() -> bool:
        view.move(b"{}")  # a client that has left is noticed with the next event, or comment
        return view.viewers == 0

    await eventually(looks_no_more)


async def test_a_slow_reader_gets_the_whole_state_in_place_of_what_it_missed(
    serve: ApiMaker, view: FakeFleet
) -> None:
    api = await serve(fleet=view)
    large = b'{"routes":{"/1":{"x":"%b"}}}' % (b"x" * (1 << 20))
    async with Reader(api) as reader:
        assert (await reader.event())[0] == "all"
        for _ in range(60):  # 60 MB, if all were kept
            view.move(large)
            await asyncio.sleep(0.01)
        view.move(b'{"routes":{"/last":{}}}')
        names = []
        async with within(60):
            while True:
                name, state = await reader.event()
                names.append(name)
                if name == "all" or "/last" in state["routes"]:
                    break
        assert names[-1] == "all"
        assert len(names) < 60


async def test_a_reader_that_takes_nothing_is_dropped(
    serve: ApiMaker, view: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_endpoint, "_SLOWEST", 0.2)
    api = await serve(fleet=view)
    large = b'{"routes":{"/1":{"x":"%b"}}}' % (b"x" * (1 << 22))
    async with Reader(api):
        await eventually(lambda: view.viewers == 1)

        def dropped() -> bool:
            view.move(large)
            return view.viewers == 0

        await eventually(dropped, timeout=30)


async def test_a_request_that_nobody_remembers_is_404(serve: ApiMaker, view: FakeFleet) -> None:
    api = await serve(fleet=view)
    found = await api.call("GET", "/explain/a/b")
    assert found.json == {"request_id": "a/b", "found": [FOUND]}
    unknown = await api.call("GET", "/explain/x")
    assert (unknown.status, unknown.json["error"]) == (404, "unknown_request")
    assert (await api.call("GET", "/fleet/history")).json == {"step": 5, "series": {}}


async def test_the_last_hour_of_one_route_or_upstream_is_asked_by_its_name(
    serve: ApiMaker, view: FakeFleet
) -> None:
    api = await serve(fleet=view)
    for path in ("/p/q", "/"):
        await api.call("POST", "/register", {"path": path, "target": "https://gpu-1"})
    await until(lambda: api.call("GET", "/upstreams/https://gpu-1"), lambda found: found.status == 200)
    for asked, name in (
        ("routes/p/q", "/p/q"),
        ("routes/p//%71/", "/p/q"),
        ("routes/", "/"),
        ("upstreams/https://GPU-1", "https://gpu-1:443"),
        ("upstreams/https%3A%2F%2Fgpu-1%3A443", "https://gpu-1:443"),
    ):
        answer = await api.call("GET", f"/fleet/history/{asked}")
        assert answer.json == {"name": name, "step": 30, "requests": [0.5]}
    for asked in ("routes/p", "upstreams/10.0.0.9:80"):
        assert (await api.call("GET", f"/fleet/history/{asked}")).json["error"] == "no_route"
    assert (await api.call("GET", "/fleet/history/upstreams/a%20b")).status == 400


async def test_a_path_is_explained_with_its_key_and_what_was_noted_of_its_upstreams(
    serve: ApiMaker, view: FakeFleet
) -> None:
    asked: list[tuple[str, bytes]] = []

    def route_now(path: str, key: bytes) -> dict[str, Any]:
        asked.append((path, key))
        verdicts = {"10.0.0.1:80": "next", "10.0.0.2:80": "draining"}
        return {"route": "/p", "members": [{"member": each, "verdict": why} for each, why in verdicts.items()]}

    async def read(since: str, most: int) -> list[Entry]:
        noted = (
            ("10.0.0.1:80", "ejected"),
            ("10.0.0.3:80", "drained"),
            ("10.0.0.1:80", "recovered"),
            ("10.0.0.1:80", "registered"),
            ("10.0.0.2:80", "drained"),
            ("10.0.0.2:80", "check_failed"),
        )
        return [
            Entry(f"{at}-1", float(at), "id-1", "one", what, subject, "why", "")
            for at, (subject, what) in enumerate(noted)
        ]

    api = await serve(fleet=view, route_now=route_now, read_changes=read)
    await api.call("POST", "/register", {"path": "/p", "target": "10.0.0.1:80"})
    answer = await api.call("GET", "/explain?path=/p//%7Ea%3Fb&key=k%26")
    assert asked == [("/p/~a", b"k&")]
    assert (answer.json["path"], answer.json["now"]["route"]) == ("/p/~a", "/p")
    changed = {"time": 2.0, "what": "recovered", "name": "one", "detail": "why", "by": ""}
    drained = {**changed, "time": 4.0, "what": "drained"}
    assert answer.json["changes"] == {"10.0.0.1:80": changed, "10.0.0.2:80": drained}
    await api.call("PATCH", "/routes/p", {"hash_key": "path"})
    await api.call("GET", "/explain?path=/p/b")
    assert asked[1:] == [("/p/b", b"/p/b")]
    assert (await api.call("GET", "/explain?path=/q")).json["error"] == "no_route"
    assert (await api.call("GET", "/explain")).status == 400


async def test_the_log_is_read_after_an_id_and_only_so_much(serve: ApiMaker, view: FakeFleet) -> None:
    asked: list[tuple[str, int]] = []

    async def read(since: str, most: int) -> list[Entry]:
        asked.append((since, most))
        return [Entry("1-1", 1.0, "id-1", "one", "drained", "10.0.0.1:80", "", "ops")]

    api = await serve(fleet=view, read_changes=read)
    answer = await api.call("GET", "/fleet/changes?since=17-3&most=5000")
    assert answer.json["changes"][0]["by"] == "ops"
    assert asked == [("17-3", 200)]
    for query in ("since=x", "since=1-", "most=0", "most=many"):
        assert (await api.call("GET", f"/fleet/changes?{query}")).status == 400


async def test_what_callers_change_is_noted(api: Api) -> None:
    at = {"path": "/p", "target": "10.0.0.1:80"}
    await api.call("POST", "/register", at)
    await api.call("POST", "/register", at)
    await until(lambda: api.call("GET", "/upstreams/10.0.0.1:80"), lambda found: found.status == 200)
    await api.call("PATCH", "/upstreams/10.0.0.1:80", {"drain": True, "weight": 3})
    await api.call("PATCH", "/upstreams/10.0.0.1:80", {"drain": None})
    await api.call("PATCH", "/routes/p", {"retries": 2, "policy": None})
    await api.call("PUT", "/routes/p", {})
    await api.call("DELETE", "/register", at)
    await api.call("DELETE", "/register", at)
    await api.call("DELETE", "/routes/p")
    noted = [(each.what, each.subject, each.detail) for each in api.metrics.changes.take(100)]
    assert (
        noted[:8]
        == [
            ("registered", "10.0.0.1:80", "/p"),
            ("drained", "10.0.0.1:80", ""),
            ("attributes_changed", "10.0.0.1:80", "weight=3"),
            ("undrained", "10.0.0.1:80", ""),
            ("settings_changed", "/p", "retries=2, policy unset"),
            ("settings_changed", "/p", "all unset"),
            ("deregistered", "10.0.0.1:80", "/p"),
            ("route_removed", "/p", ""),
        ][: len(noted)]
    )
    assert noted[6] == ("deregistered", "10.0.0.1:80", "/p")


@pytest.mark.parametrize("lease", [{}, {"ttl": 60}])
async def test_other_attributes_of_an_upstream_that_registers_again_are_noted_once(
    api: Api, lease: dict[str, int]
) -> None:
    at = {"path": "/p", "target": "10.0.0.1:80", **lease}
    for more in (
        {"weight": 2, "zone": "a"},  # they came with it
        {"weight": 2, "zone": "a"},
        {"weight": 3, "zone": "a"},
        {"weight": 3, "zone": "a"},
        {},
        {"slots": 8, "node": "n1"},
        {"path": "/q", "weight": 5},
    ):
        assert (await api.call("POST", "/register", {**at, **more})).status == 200
    assert [(each.what, each.subject, each.detail) for each in api.metrics.changes.take(100)] == [
        ("registered", "10.0.0.1:80", "/p"),
        ("attributes_changed", "10.0.0.1:80", "weight=3"),
        ("attributes_changed", "10.0.0.1:80", "slots=8, node=n1"),
        ("registered", "10.0.0.1:80", "/q"),
        ("attributes_changed", "10.0.0.1:80", "weight=5"),
    ]


async def test_attributes_that_somebody_else_has_changed_meanwhile_are_noted_as_they_are_set_back(
    api: Api,
) -> None:
    at = {"path": "/p", "target": "10.0.0.1:80", "weight": 2, "ttl": 60}
    await api.call("POST", "/register", at)
    api.metrics.changes.take(100)
    await api.redis.hset(keys.upstream_key("10.0.0.1:80"), "weight", "3")  # the mirror may hear of it later
    await api.call("POST", "/register", at)
    noted = [(each.what, each.subject, each.detail) for each in api.metrics.changes.take(100)]
    assert noted == [("attributes_changed", "10.0.0.1:80", "weight=2")]


async def test_of_a_long_list_with_other_attributes_the_first_are_noted_and_how_many_more(api: Api) -> None:
    some = [{"ip_address": f"10.0.0.{n}", "port": 80, "path": "/p"} for n in range(1, 51)]
    await api.call("POST", "/register", some)
    api.metrics.changes.take(100)
    await api.call("POST", "/register", [{**each, "weight": 2} for each in some])
    noted = api.metrics.changes.take(100)
    assert {each.what for each in noted} == {"attributes_changed"}
    assert (len(noted), noted[0].detail, noted[-1].subject) == (21, "weight=2", "30 more")


async def test_of_a_long_list_the_first_are_noted_and_how_many_more(api: Api) -> None:
    await api.call(
        "POST", "/register", [{"ip_address": f"10.0.0.{n}", "port": 80, "path": "/p"} for n in range(1, 51)]
    )
    noted = api.metrics.changes.take(100)
    assert len(noted) == 21
    assert noted[-1].subject == "30 more"


SECRET = "a-secret-of-16-characters"


async def test_a_token_is_named_in_the_state_and_in_the_log_of_changes(serve: ApiMaker, view: FakeFleet) -> None:
    tokens = {"ops": {"rights": ["read", "register"], "prefixes": ["/"], "sha256": [digest_of(SECRET)]}}
    api = await serve(fleet=view, settings={"tokens": tokens})
    held = {"headers": {"Authorization": f"Bearer {SECRET}"}}
    shown = (await api.call("GET", "/fleet", **held)).json["view"]["self"]
    assert (shown["token"], shown["rights"], shown["prefixes"]) == ("ops", ["read", "register"], ["/"])
    assert (await api.call("GET", "/fleet")).status == 401
    await api.call("POST", "/register", {"path": "/p", "target": "10.0.0.1:80"}, **held)
    (noted,) = api.metrics.changes.take(10)
    assert (noted.what, noted.by) == ("registered", "ops")


async def test_a_stream_ends_with_the_token_it_was_asked_for_with(serve: ApiMaker, view: FakeFleet) -> None:
    tokens = {"ops": {"rights": ["read"], "sha256": [digest_of(SECRET)]}}
    api = await serve(fleet=view, settings={"tokens": tokens})
    async with Reader(api, f"Authorization: Bearer {SECRET}\r\n") as reader:
        assert (await reader.event())[0] == "all"
        api.parts.settings = api.parts.settings.model_copy(update={"tokens": {}})
        view.move(b'{"routes":{"/secret":{}}}')
        assert b"secret" not in await reader.rest()
