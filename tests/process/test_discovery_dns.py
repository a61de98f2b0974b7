"""Names in DNS registered as upstreams, at real instances, with a real name server."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.dns import NameServer
from tests.process.commands import Commands, Serving
from tests.process.serving import events
from tests.support.valkey import Valkey
from tests.support.waiting import until

SRV = "dns+srv://_http._tcp.flux.test"


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


def srv(*members: str) -> list[str]:
    """SRV records for upstreams on this machine, whose TTL is a second."""
    ports = [member.rpartition(":")[2] for member in members]
    records = [f"_http._tcp.flux.test. 1 IN SRV 0 0 {port} host.flux.test." for port in ports]
    return [*records, "host.flux.test. 1 IN A 127.0.0.1"]


async def serve(slb: Commands, names: NameServer, valkey: Valkey, *arguments: str) -> Serving:
    asks = {"SLB_DISCOVERY_DNS_SERVERS": str(names)}
    return await slb.until_ready(await slb.serve(*arguments, redis=valkey.url, env=asks))


async def route(slb: Commands, serving: Serving) -> Any:
    """/p as it is shown; empty where there is no such route."""
    listed = await slb.json(f"{serving.api}/routes")
    return next((each for each in listed["routes"] if each["path"] == "/p"), {"members": [], "names": []})


async def until_members(slb: Commands, serving: Serving, *wanted: str, timeout: float = 30.0) -> None:
    await until(
        lambda: route(slb, serving),
        lambda found: sorted(each["member"] for each in found["members"]) == sorted(wanted),
        timeout,
        f"{wanted}",
    )


async def test_a_registered_name_is_served_by_its_upstreams_until_it_is_deregistered(
    slb: Commands, valkey: Valkey, names: NameServer
) -> None:
    (_, a), (_, b) = await slb.upstream("a"), await slb.upstream("b")
    names.zone.publish(*srv(a))
    serving = await serve(slb, names, valkey)
    said = await slb.run("register", "/p", SRV, "--url", serving.api)
    assert (said.code, said.out) == (0, f"/p: {SRV} added\n")
    await until_members(slb, serving, a)
    assert (await slb.get(f"{serving.url}/p"))[0] == 200
    assert (await route(slb, serving))["names"] == [SRV]
    shown = await slb.run("routes", "/p", "--url", serving.api)
    assert SRV in shown.out
    assert "redis_entry_skipped" not in serving.process.log.read_text()
    names.zone.publish(*srv(a, b))
    await until_members(slb, serving, a, b)
    names.zone.publish(*srv(b))
    await until_members(slb, serving, b)
    assert (await slb.run("deregister", "/p", SRV, "--url", serving.api)).code == 0
    await until_members(slb, serving)
    await slb.until_json(f"{serving.api}/status", lambda status: "discovery" not in status)


async def test_a_name_written_by_hand_is_followed_and_what_others_registered_stays(
    slb: Commands, valkey: Valkey, names: NameServer
) -> None:
    _, a = await slb.upstream("a")
    names.zone.publish(*srv(a))
    serving = await serve(slb, names, valkey)
    valkey.admin.sadd("slb_p", "10.9.9.9:80", SRV)
    await until_members(slb, serving, "10.9.9.9:80", a)
    valkey.admin.srem("slb_p", SRV)
    await until_members(slb, serving, "10.9.9.9:80")


async def test_one_instance_asks_and_when_it_is_killed_another_takes_over(
    slb: Commands, valkey: Valkey, names: NameServer
) -> None:
    (_, a), (_, b) = await slb.upstream("a"), await slb.upstream("b")
    names.zone.publish(*srv(a))
    fleet = [await serve(slb, names, valkey) for _ in range(2)]
    valkey.admin.sadd("slb_p", SRV)
    for each in fleet:
        await until_members(slb, each, a)
    writes = [len(events(each, "discovery_writes")) for each in fleet]
    assert sorted(writes) == [0, 1]
    writer, other = fleet if writes[0] else reversed(fleet)
    writer.process.kill()
    names.zone.publish(*srv(a, b))
    await until_members(slb, other, a, b)
    assert [each["source"] for each in events(other, "discovery_writes")] == [SRV]
    assert [(each["added"], each["removed"]) for each in events(other, "discovery_wrote")] == [(1, 0)]


async def test_an_instance_that_stops_hands_over_at_once(slb: Commands, valkey: Valkey, names: NameServer) -> None:
    _, a = await slb.upstream("a")
    names.zone.publish(*srv(a))
    writer = await serve(slb, names, valkey)
    valkey.admin.sadd("slb_p", SRV)
    await until_members(slb, writer, a)
    other = await serve(slb, names, valkey)
    os.kill(writer.process.pid, signal.SIGTERM)
    assert await writer.process.ended() == 0
    await until(_seen(other, "discovery_writes"), bool)
    await until_members(slb, other, a)


def _seen(serving: Serving, name: str) -> Any:
    async def look() -> int:
        return len(events(serving, name))

    return look


async def test_while_dns_fails_in_any_way_the_upstreams_stay(
    slb: Commands, valkey: Valkey, names: NameServer
) -> None:
    (_, a), (_, b) = await slb.upstream("a"), await slb.upstream("b")
    names.zone.publish(*srv(a))
    serving = await serve(slb, names, valkey)
    valkey.admin.sadd("slb_p", SRV)
    await until_members(slb, serving, a)
    for count, trouble in enumerate(("SERVFAIL", "silence"), 1):
        names.zone.troubles["_http._tcp.flux.test"] = trouble  # type: ignore[assignment]
        await until(_seen(serving, "discovery_not_answered"), lambda seen, count=count: seen == count, 30.0)
        assert (await slb.get(f"{serving.url}/p"))[0] == 200
        names.zone.troubles.clear()
        await until(_seen(serving, "discovery_answered_again"), lambda seen, count=count: seen == count, 30.0)
    names.zone.publish()  # NXDOMAIN: held back
    await until(_seen(serving, "discovery_held_back"), bool)
    assert (await slb.get(f"{serving.url}/p"))[0] == 200
    names.zone.publish(*srv(b))
    await until_members(slb, serving, b)


async def test_of_workers_their_supervisor_asks(slb: Commands, valkey: Valkey, names: NameServer) -> None:
    _, a = await slb.upstream("a")
    names.zone.publish(*srv(a))
    serving = await serve(slb, names, valkey, "--workers", "2")
    assert (await slb.run("register", "/p", SRV, "--url", serving.api)).code == 0
    await slb.until_status(f"{serving.url}/p", 200, 30.0)
    assert [each["worker"] for each in events(serving, "discovery_writes")] == ["supervisor"]
    (source,) = (await slb.json(f"{serving.api}/status"))["discovery"]
    assert (source["source"], source["path"], source["writes"], source["members"]) == (SRV, "/p", True, 1)
    assert source["answered_at"] > 0
    said = await slb.run("status", "--url", serving.api)
    assert SRV in said.out
    assert "written by" in said.out


async def test_an_instance_that_takes_no_traffic_may_resolve_for_the_others(
    slb: Commands, valkey: Valkey, names: NameServer
) -> None:
    _, a = await slb.upstream("a")
    names.zone.publish(*srv(a))
    places = ["--api", "127.0.0.1:0", "--data-dir", str(slb.directory / "data"), "--redis", valkey.url]
    asks = {"SLB_DISCOVERY_DNS_SERVERS": str(names)}
    discovers = await slb.start("serve", "--roles", "discovery", *places, env=asks)
    assert "serves discovery, API" in await discovers.first_line()
    valkey.admin.sadd("slb_p", SRV)
    await until(_is_member(valkey, a), bool, 30.0)


def _is_member(valkey: Valkey, member: str) -> Any:
    async def look() -> bool:
        return bool(valkey.admin.sismember("slb_p", member))

    return look
