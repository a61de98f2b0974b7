"""Leases across processes: a killed upstream leaves, and none that renews does, whatever becomes of Redis."""

import asyncio
import os
import signal
from typing import Any

from aiohttp import hdrs, web
from aiohttp.test_utils import TestServer

from slb.control import keys
from tests.process.commands import Commands, Serving
from tests.support.fake_slb import HANG, FakeSlb, fake_slbs
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until, within

TTL = 5.0
REGISTERED = "registered 127.0.0.1:9 for /p\n"


async def members(slb: Commands, serving: Serving) -> list[str]:
    """Of /p; empty where there is no such route."""
    listed = await slb.json(f"{serving.api}/routes")
    return [each["member"] for route in listed["routes"] if route["path"] == "/p" for each in route["members"]]


async def until_members(slb: Commands, serving: Serving, wanted: list[str]) -> None:
    await until(lambda: members(slb, serving), lambda found: sorted(found) == sorted(wanted))


async def joined(slb: Commands, name: str, serving: Serving) -> str:
    """The member of a new upstream, once it is registered."""
    _, member = await slb.upstream(name, "--register", serving.api, "--path", "/p", "--ttl", "5s")
    await until_members(slb, serving, sorted({*await members(slb, serving), member}))
    return member


def ends(valkey: Valkey, member: str) -> float:
    return float(valkey.admin.zscore(keys.LEASES, keys.membership("/p", member)) or 0.0)


async def test_an_upstream_that_was_killed_leaves_every_instance_and_one_that_renews_stays(
    slb: Commands, valkey: Valkey
) -> None:
    one, other = [await slb.until_ready(await slb.serve(redis=valkey.url)) for _ in range(2)]
    lost, killed = await slb.upstream("a", "--register", one.api, "--path", "/p", "--ttl", "5s")
    stays = await joined(slb, "b", other)
    await until_members(slb, one, [stays, killed])
    lost.kill()
    for serving in (one, other):
        await until_members(slb, serving, [stays])
    logs = [serving.process.log.read_text() for serving in (one, other)]
    assert sum(log.count("registrations_expired") for log in logs) == 1


async def test_nothing_ends_while_redis_is_away_for_longer_than_the_lease(slb: Commands, valkey: Valkey) -> None:
    one, other = [await slb.until_ready(await slb.serve(redis=valkey.url)) for _ in range(2)]
    member = await joined(slb, "a", one)
    valkey.freeze()
    await asyncio.sleep(TTL + 1)  # that is what is tested: more time than the lease has
    valkey.thaw()
    before = ends(valkey, member)
    await eventually(lambda: ends(valkey, member) > before, what="a renewal")
    valkey.kill()
    await asyncio.sleep(TTL + 1)
    valkey.start()
    before = ends(valkey, member)
    await eventually(lambda: ends(valkey, member) > before, what="a renewal")
    for serving in (one, other):
        await until_members(slb, serving, [member])
        assert "registrations_expired" not in serving.process.log.read_text()


async def test_no_lease_ends_by_an_instance_that_drains_and_gets_no_renewal(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    _, member = await slb.upstream("slow", "--service-time", "4s")
    assert (await slb.run("register", "/p", member, "--ttl", "60s", "--url", serving.api)).code == 0
    asked = asyncio.create_task(slb.get(f"{serving.url}/p"))
    await slb.until_json(f"{serving.api}/routes/p", lambda route: route["members"][0]["inflight"] > 0)
    os.kill(serving.process.pid, signal.SIGTERM)
    await slb.until_status(f"{serving.url}/p", 0)
    valkey.admin.zadd(keys.LEASES, {keys.membership("/p", member): 0})
    assert (await asked)[0] == 200
    assert await serving.process.ended() == 0
    assert valkey.admin.sismember(keys.route_key("/p"), member)


async def test_register_keep_renews_until_it_is_stopped(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    words = ("/p", "127.0.0.1:9", "127.0.0.1:10", "--ttl", "5s", "--keep", "--url", serving.api)
    kept = await slb.start("register", *words)
    await until_members(slb, serving, ["127.0.0.1:9", "127.0.0.1:10"])
    assert "s left" in (await slb.run("routes", "/p", "--url", serving.api)).out
    before = ends(valkey, "127.0.0.1:9")
    await eventually(lambda: ends(valkey, "127.0.0.1:9") > before, what="a renewal")
    assert await kept.stop() == 0
    await until_members(slb, serving, [])


async def test_register_keep_that_is_refused_ends_and_takes_nothing_of_others_out(
    slb: Commands, valkey: Valkey
) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await slb.run("register", "/p", "127.0.0.1:9", "--url", serving.api)
    words = ("register", "/p", "127.0.0.1:9", "--keep", "--url", serving.api)
    assert "ttl" in (await slb.run(*words, "--ttl", "1s")).err
    refused = await slb.run(*words, "127.0.0.1:10", "0.0.0.0:9")
    assert refused.code == 1
    assert "refused: 0.0.0.0:9 for /p" in refused.err
    assert await members(slb, serving) == ["127.0.0.1:9"]
    assert ends(valkey, "127.0.0.1:9") == 0.0


async def test_a_second_signal_ends_register_keep_while_slb_does_not_answer(slb: Commands) -> None:
    fake = FakeSlb(200, HANG)
    async with fake_slbs() as start:
        kept = await slb.start("register", "/p", "127.0.0.1:9", "--keep", "--url", await start(fake))
        await eventually(lambda: kept.log.read_text() == REGISTERED)
        os.kill(kept.pid, signal.SIGINT)
        await eventually(lambda: fake.methods == ["POST", "DELETE"])
        os.kill(kept.pid, signal.SIGINT)
        assert await kept.ended() == 1
    assert kept.log.read_text() == REGISTERED


async def test_register_keep_fails_where_it_could_not_deregister(slb: Commands) -> None:
    fake = FakeSlb(200, 403)
    async with fake_slbs() as start:
        kept = await slb.start("register", "/p", "127.0.0.1:9", "--keep", "--url", await start(fake))
        await eventually(lambda: kept.log.read_text() == REGISTERED)
        assert await kept.stop() == 1
    assert "not deregistered: 127.0.0.1:9 for /p: " in kept.log.read_text()


async def test_dead_upstreams_are_those_all_instances_agree_on_and_can_be_removed(
    slb: Commands, valkey: Valkey
) -> None:
    one = await slb.until_ready(await slb.serve(redis=valkey.url))
    other = await slb.until_ready(await slb.serve("--workers", "2", redis=valkey.url))
    words = ("--register", one.api, "--path", "/p", "--ttl", "0")
    lost, dead = await slb.upstream("a", *words)
    _, idle = await slb.upstream("b", *words)
    await until_members(slb, one, [dead, idle])
    lost.kill()
    command = ("upstreams", "--dead", "--for", "3s", "--remove", "--yes", "--url", one.api)
    async with within(30):
        while dead not in (result := await slb.run(*command)).out or "removed" not in result.out:
            await slb.get(f"{other.url}/p")  # one instance alone finds out that nothing listens there
    assert f"/p: {dead} removed" in result.out
    assert result.code == 0
    await until_members(slb, other, [idle])


async def test_nothing_is_removed_where_an_instance_could_not_be_asked(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    lost, member = await slb.upstream("a", "--register", serving.api, "--path", "/p", "--ttl", "0")
    await until_members(slb, serving, [member])
    lost.kill()
    await slb.until_status(f"{serving.url}/p", 502)
    other = {"name": "other", "api": "127.0.0.1:1", "roles": "proxy", "started": "0", "pid": "1"}
    admin: Any = valkey.admin
    admin.hset(keys.instance_key("other"), mapping=other)
    admin.zadd(keys.INSTANCES, {"other": 1e15})
    command = ("upstreams", "--dead", "--for", "0s", "--remove", "--yes", "--url", serving.api)
    result = await slb.run(*command)
    assert result.code == 1
    assert "not asked, so they may know better: other (127.0.0.1:1)" in result.err
    assert valkey.admin.smembers("slb_p") == {member}
    result = await slb.run(*command, "--here")
    assert (result.code, f"/p: {member} removed" in result.out) == (0, True), result


async def test_the_token_goes_only_to_the_instances_that_the_user_names(slb: Commands, valkey: Valkey) -> None:
    """Where an instance's API is stands in Redis, and may be forged."""
    sent: list[str | None] = []

    async def record_request(request: web.Request) -> web.Response:
        sent.append(request.headers.get(hdrs.AUTHORIZATION))
        return web.json_response({"instances": ["forged"], "upstreams": []})

    file = slb.directory / "token"
    file.write_text("s3cret")
    env = {"SLB_TOKEN_FILE": str(file)}
    serving = await slb.until_ready(await slb.serve(redis=valkey.url, env={"SLB_API_TOKEN_FILE": str(file)}))
    app = web.Application()
    app.router.add_get("/upstreams", record_request)
    async with TestServer(app) as forged:
        record = {
            "name": "forged",
            "api": f"127.0.0.1:{forged.port}",
            "roles": "proxy",
            "started": "0",
            "pid": "1",
        }
        admin: Any = valkey.admin
        admin.hset(keys.instance_key("forged"), mapping=record)
        admin.zadd(keys.INSTANCES, {"forged": 1e15})
        command = ("upstreams", "--dead", "--for", "0s", "--url", serving.api)
        for words in ((), ("--token-to", "10.0.0.0/8"), ("--token-to", "127.0.0.1")):
            assert (await slb.run(*command, *words, env=env)).code == 0
    assert sent == [None, None, "Bearer s3cret"]


async def test_what_would_be_removed_is_asked_about_on_a_terminal_only(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    result = await slb.run("upstreams", "--dead", "--remove", "--url", serving.api)
    assert (result.code, "--yes" in result.err) == (2, True)
