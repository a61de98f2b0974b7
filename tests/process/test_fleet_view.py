"""The fleet as any instance shows it: `GET /fleet` and its events, with real instances under traffic."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from tests.process.commands import Commands, Serving
from tests.process.serving import in_flight, until_all_ready
from tests.support.valkey import Valkey
from tests.support.waiting import until, within

State = dict[str, dict[str, Any]]


async def two(slb: Commands, valkey: Valkey, *arguments: str) -> tuple[Serving, Serving, str]:
    """Two instances, and an upstream of the route /p."""
    _, member = await slb.upstream("a", "--slots", "4")
    valkey.admin.sadd("slb_p", member)
    one, other = [await slb.serve("--name", name, *arguments, redis=valkey.url) for name in ("one", "other")]
    for serving in (one, other):
        await slb.until_status(f"{serving.url}/p", 200)
    return one, other, member


@asynccontextmanager
async def events(slb: Commands, serving: Serving) -> AsyncIterator[AsyncIterator[tuple[str, State]]]:
    """Name and data of each event of `/fleet/events`."""

    async def read(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, State]]:
        name = ""
        async for line in lines:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, orjson.loads(value)

    async with slb.session.get(f"{serving.api}/fleet/events") as reply:
        assert reply.content_type == "text/event-stream"
        yield read(aiter(reply.content))


def merge(state: State, change: State) -> None:
    """Apply a change event."""
    for section, entries in change.items():
        for key, value in entries.items():
            if value is None:
                state.get(section, {}).pop(key, None)
            else:
                state.setdefault(section, {})[key] = value


async def fleet(slb: Commands, serving: Serving) -> State:
    found: State = await slb.json(f"{serving.api}/fleet")
    return found


async def test_any_instance_shows_the_traffic_of_all(slb: Commands, valkey: Valkey) -> None:
    one, other, member = await two(slb, valkey)

    async def with_traffic() -> State:
        for serving in (one, other):
            await slb.get(f"{serving.url}/p")
        return await fleet(slb, one)

    state = await until(
        with_traffic,
        lambda found: all(each["rate"] for each in found["instances"].values()) and len(found["instances"]) == 2,
    )
    assert {each["name"] for each in state["instances"].values()} == {"one", "other"}
    assert state["view"]["self"]["name"] == "one"
    assert state["view"]["self"]["alone"] is False
    route, upstream = state["routes"]["/p"], state["upstreams"][member]
    assert route["members"] == [member]
    assert route["sources"]["policy"] == "built_in"
    assert route["rate"] > 0
    assert route["p50"] is not None
    assert upstream["health"] == "up"
    assert upstream["routes"] == ["/p"]
    assert upstream["latency"] > 0


async def test_the_last_hour_of_a_route_and_an_upstream_is_there_though_nobody_looked(
    slb: Commands, valkey: Valkey
) -> None:
    one, other, member = await two(slb, valkey)

    async def hour(serving: Serving, of: str) -> Any:
        """Once the point of this half minute has ended at both."""
        return await until(
            lambda: slb.json(f"{serving.api}/fleet/history/{of}"),
            lambda found: found["instances"] == ["one", "other"],
            timeout=60,
        )

    upstream, route = await hour(one, f"upstreams/{member}"), await hour(other, "routes/p")
    assert (route["name"], upstream["name"], route["missing"]) == ("/p", member, [])
    for found in (route, upstream):
        assert found["step"] == 30
        assert found["until"] % 30 == 0
        assert any(found["requests"])
        assert any(each is not None for each in found["first_byte"])
    assert any(route["p99"])
    assert any(upstream["latency"])


async def test_a_stream_begins_with_all_and_goes_on_with_what_changes(slb: Commands, valkey: Valkey) -> None:
    one, other, member = await two(slb, valkey)
    await until(lambda: fleet(slb, other), lambda found: len(found["instances"]) == 2, what="it knows both")
    async with within(30), events(slb, other) as stream:
        name, state = await anext(stream)
        assert name == "all"
        assert len(state["instances"]) == 2
        valkey.admin.sadd("slb_q", member)
        async for name, change in stream:
            assert name == "change"
            assert "p" not in change.get("routes", {})
            merge(state, change)
            if "/q" in state["routes"]:
                break
        assert state["upstreams"][member]["routes"] == ["/p", "/q"]
        valkey.admin.delete("slb_q")
        async for _, change in stream:
            merge(state, change)
            if "/q" not in state["routes"]:
                break
        await slb.get(f"{one.url}/p")


async def test_slots_are_shown_with_the_instance_that_holds_them(slb: Commands, valkey: Valkey) -> None:
    _, member = await slb.upstream("a", "--service-time", "600s", "--slots", "2")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "2", "when_full": "queue", "queue_timeout": "300s"})
    one, other = [
        await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in ("one", "other")
    ]
    asked = [asyncio.create_task(slb.get(f"{each.url}/p")) for each in (one, other)]
    try:
        for each in (one, other):
            await in_flight(slb, each, 1)
        asked.append(asyncio.create_task(slb.get(f"{other.url}/p")))
        state = await until(
            lambda: fleet(slb, one),
            lambda found: bool(found["queues"]) and len(found["upstreams"][member]["held"]) == 2,
        )
        assert state["upstreams"][member]["held"] == {"one": 1, "other": 1}
        assert state["upstreams"][member]["capacity"] == 2
        (queue,) = state["queues"].values()
        assert (queue["pool"], queue["route"], queue["depth"]) == ("/p", "/p", 1)
        assert state["pools"]["/p"]["inflight"] == 2
        assert state["pools"]["/p"]["mode"] == "shared"
        assert state["routes"]["/p"]["inflight"] == 2
    finally:
        for request in asked:
            request.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_of_a_full_queue_no_more_slots_are_shown_than_there_are(slb: Commands, valkey: Valkey) -> None:
    _, member = await slb.upstream("a", "--service-time", "50ms", "--slots", "1")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "4", "when_full": "queue", "queue_timeout": "300s"})
    servings = [await slb.until_ready(await slb.serve("--name", each, redis=valkey.url)) for each in "abc"]

    async def goes_on(serving: Serving) -> None:
        while True:
            await slb.get(f"{serving.url}/p")

    asking = [asyncio.create_task(goes_on(each)) for each in servings for _ in range(4)]
    try:
        seen: list[int] = []
        async with within(60), events(slb, servings[0]) as stream:
            async for _, change in stream:
                if member in change.get("upstreams", {}):
                    seen.append(change["upstreams"][member]["inflight"])
                if len([count for count in seen if count]) >= 8:
                    break
        assert max(seen) <= 4
    finally:
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_workers_show_themselves_and_a_refused_request_is_found_by_its_id(
    slb: Commands, valkey: Valkey
) -> None:
    _, member = await slb.upstream("a", "--service-time", "600s")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "1"})
    serving = await slb.serve("--workers", "2", "--name", "box", redis=valkey.url)
    await until_all_ready(slb, await slb.until_ready(serving))
    held = asyncio.create_task(slb.get(f"{serving.url}/p"))
    try:
        state = await until(
            lambda: fleet(slb, serving),
            lambda found: len(found["upstreams"][member]["held"]) == 1 and len(found["instances"]) == 2,
        )
        assert {each["name"] for each in state["instances"].values()} == {"box/0", "box/1"}
        assert {each["group"] for each in state["instances"].values()} == {"box"}
        shed = {"X-Request-Id": "the-one", "Connection": "close"}
        await until(lambda: slb.get(f"{serving.url}/p", **shed), lambda found: found[0] == 503)
        answer = await slb.json(f"{serving.api}/explain/the-one")
        found = answer["found"][-1]
        assert found["reason"] == "pool_saturated"
        assert found["decided_by"] == "redis"
        assert found["instance_name"] in ("box/0", "box/1")
        result = await slb.run("explain", "the-one", "--url", serving.api)
        assert result.code == 0, result.err
        assert "503 pool_saturated" in result.out
        assert "Redis, for the whole fleet" in result.out
        now = await slb.until_json(  # a worker reads the scores each second
            f"{serving.api}/explain?path=/p/x", lambda found: found["now"]["outcome"] == "refused"
        )
        assert now["instance"] in ("box/0", "box/1")
        assert [each["verdict"] for each in now["now"]["members"]] == ["full"]
        unknown = await slb.run("explain", "another", "--url", serving.api)
        assert (unknown.code, "unknown_request" in unknown.err) == (1, True)
    finally:
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


async def test_a_path_is_explained_by_what_its_upstreams_are_like_now(slb: Commands, valkey: Valkey) -> None:
    one, other, member = await two(slb, valkey)
    checked = ("health_path=/healthz", "health_interval=200ms", "health_fall=1", "health_timeout=60s")
    settings = ("policy=least_local", "panic_threshold=0", "eject_after=0", *checked)
    await slb.run("route", "set", "/p", *settings, "--url", one.api)
    for gone in ("127.0.0.1:1", "127.0.0.1:2"):
        await slb.run("register", "/p", gone, "--url", one.api)
    await slb.run("drain", "127.0.0.1:1", "--url", one.api)

    found = await slb.until_json(
        f"{one.api}/explain?path=/p/x%3Fq",
        lambda found: (
            {"127.0.0.1:1": "drained", "127.0.0.1:2": "check_failed"}.items()
            <= {member: each["what"] for member, each in found["changes"].items()}.items()
        ),
    )
    assert (found["path"], found["instance"], found["now"]["route"]) == ("/p/x", "one", "/p")
    assert found["now"]["by"] == "requests in flight here per slot, the least first"
    verdicts = {each["member"]: (each["verdict"], each["score"]) for each in found["now"]["members"]}
    assert verdicts == {
        member: ("next", 0),
        "127.0.0.1:1": ("draining", None),
        "127.0.0.1:2": ("down", None),
    }
    assert (await slb.get(f"{one.url}/p", **{"X-Request-Id": "the-one"}))[0] == 200
    result = await slb.run("explain", "/p/x", "--url", one.api)
    assert (result.code, result.err) == (0, "")
    (row,) = [line for line in result.out.splitlines() if "127.0.0.1:2 " in line]
    assert "by the check of /healthz; check_failed at " in row
    await slb.run("undrain", "127.0.0.1:1", "--url", one.api)
    await slb.until_json(
        f"{one.api}/explain?path=/p/x", lambda found: found["now"]["members"][0]["verdict"] != "draining"
    )
    by_id = await slb.run("explain", "the-one", "--url", other.api)
    assert (by_id.code, "What it found of its route, " in by_id.out) == (0, True), by_id
    assert "requests in flight here per slot, the least first" in by_id.out
    then = {line.split()[1]: line.split()[3] for line in by_id.out.splitlines() if line.startswith("│ 127")}
    assert then == {"127.0.0.1:1": "draining", "127.0.0.1:2": "down", member: "chosen"}
    unknown = await slb.run("explain", "/nowhere", "--url", one.api)
    assert (unknown.code, "no route takes /nowhere" in unknown.err) == (1, True)


async def test_the_log_of_changes_has_what_happened_anywhere(slb: Commands, valkey: Valkey) -> None:
    one, other, member = await two(slb, valkey)
    await slb.run("register", "/q", "10.0.0.1:80", "--url", other.api)
    await slb.run("drain", member, "--yes", "--url", other.api)
    assert await other.process.stop() == 0
    listed = await until(
        lambda: slb.run("events", "--since", "1h", "--url", one.api),
        lambda result: "other stopped" in result.out,
    )
    lines = listed.out.splitlines()
    for part in (
        "one  one started",
        "other  other started",
        f"other  {member} drained",
        "10.0.0.1:80 registered /q",
    ):
        assert [line for line in lines if part in line], (part, lines)
    as_json = await slb.run("events", "--json", "--url", one.api)
    assert orjson.loads(as_json.out.splitlines()[-1])["what"] == "stopped"


async def test_the_last_hour_is_kept_while_nobody_looks(slb: Commands, valkey: Valkey) -> None:
    one, other, _ = await two(slb, valkey)
    history = await slb.until_json(
        f"{one.api}/fleet/history",
        lambda found: len(found["series"]) == 2 and all(each["requests"] for each in found["series"].values()),
    )
    assert {each["name"] for each in history["series"].values()} == {"one", "other"}
    assert history["step"] == 5
    assert other.api != one.api
