"""A process takes the listening sockets of the one that runs: no client notices."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import dns.asyncquery
import dns.message
import dns.rcode
import orjson
import pytest
from aiohttp import ClientSession

from bench.ports import free_port
from slb.control.valkey_process import ValkeyProcess
from tests.process.commands import Commands, Serving
from tests.process.serving import events, until_all_ready
from tests.process.takeovers import begin_takeover, hosts, offers, start_takeover, take_over, traffic
from tests.process.test_dead_holder import OWN_PIDS, may_unshare, serving
from tests.support.dns import ZONE
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience, soon, until


async def serve(slb: Commands, valkey: Valkey, *arguments: str, env: dict[str, str] | None = None) -> Serving:
    _, member = await slb.upstream("a", "--slots", "16")
    valkey.admin.sadd("slb_p", member)
    started = await slb.until_ready(await slb.serve(*arguments, redis=valkey.url, env=env))
    await until_all_ready(slb, started)
    await slb.until_status(f"{started.url}/p", 200)
    return started


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 2)])
async def test_under_traffic_no_request_fails(slb: Commands, valkey: Valkey, before: int, after: int) -> None:
    old = await serve(slb, valkey, "--workers", str(before))
    async with traffic(old) as clients:
        new = await take_over(slb, valkey, old, "--workers", str(after))
        assert await old.process.ended() == 0
        await clients.more()
        newest = await take_over(slb, valkey, new, "--workers", str(before))
        assert await new.process.ended() == 0
    assert clients.failed == []
    assert [(old.url, old.api), (new.url, new.api)] == [(newest.url, newest.api)] * 2
    assert (await slb.json(f"{newest.api}/status"))["pid"] == newest.process.pid


async def test_where_nobody_runs_it_starts_as_always(slb: Commands, valkey: Valkey) -> None:
    assert events(await serve(slb, valkey, "--takeover"), "takes_over") == []


async def test_what_a_killed_process_has_left_is_removed(slb: Commands, valkey: Valkey) -> None:
    old = await serve(slb, valkey)
    await eventually(lambda: len(offers(slb.directory)) == 1)
    (left,) = offers(slb.directory)
    old.process.kill()
    await old.process.ended()
    await take_over(slb, valkey, old)
    await eventually(lambda: left not in offers(slb.directory) and len(offers(slb.directory)) == 1)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_where_it_ends_before_it_serves_the_old_one_goes_on(
    slb: Commands, valkey: Valkey, workers: str, how: int
) -> None:
    old = await serve(slb, valkey, "--workers", workers)
    async with traffic(old) as clients:
        new = await begin_takeover(slb, valkey, old, "--workers", workers)
        await clients.more()
        assert await pids(old, 20) == {old.process.pid}
        os.kill(new.pid, how)
        assert await new.ended() == (0 if how == signal.SIGTERM else -how)
        await eventually(lambda: len(events(old, "takeover_failed")) == 1)
        await clients.more()
        assert (await slb.json(f"{old.api}/status"))["draining"] is False
        valkey.start()
        await take_over(slb, valkey, old, "--workers", workers)
        assert await old.process.ended() == 0
    assert clients.failed == []


async def pids(serving: Serving, count: int) -> set[int]:
    """Who answers the API, over so many connections."""
    found = set()
    for _ in range(count):
        async with ClientSession() as session, session.get(f"{serving.api}/status") as status:
            found.add((await status.json())["pid"])
    return found


async def test_where_the_old_one_is_killed_midway_no_connection_is_refused_and_the_new_one_serves(
    slb: Commands, valkey: Valkey
) -> None:
    old = await serve(slb, valkey)
    new = await begin_takeover(slb, valkey, old)
    old.process.kill()
    await old.process.ended()
    valkey.start()
    async with traffic(old) as clients:
        await new.first_line()
    assert clients.failed == []
    assert (await slb.json(f"{old.api}/status"))["pid"] == new.pid


async def test_where_the_old_one_is_asked_to_stop_midway_the_new_one_serves(slb: Commands, valkey: Valkey) -> None:
    old = await serve(slb, valkey)
    async with traffic(old) as clients:
        new = await begin_takeover(slb, valkey, old)
        valkey.start()
        os.kill(old.process.pid, signal.SIGTERM)
        assert await old.process.ended() == 0
        await new.first_line()
    assert clients.failed == []


async def test_a_second_one_at_once_is_refused_by_name(slb: Commands, valkey: Valkey) -> None:
    old = await serve(slb, valkey)
    first = await begin_takeover(slb, valkey, old)
    second = await start_takeover(slb, valkey, old)
    assert await second.ended() == 1
    assert f"takeover_under_way: process {first.pid} is taking over" in second.log.read_text()
    valkey.start()
    await first.first_line()
    assert await old.process.ended() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_at_a_signal_the_process_starts_the_one_that_follows_it(
    slb: Commands, valkey: Valkey, workers: str
) -> None:
    """Of a process that was started for itself: others here are forked from one that has slb loaded already."""
    url, api = (f"127.0.0.1:{free_port()}" for _ in range(2))
    flags = ("--listen", url, "--api", api, "--redis", valkey.url, "--workers", workers)
    words = ("-m", "slb", "serve", *flags, "--data-dir", str(slb.directory / "data"))
    old = await asyncio.create_subprocess_exec(sys.executable, *words)

    async def pid() -> int:
        found: int = (await slb.json(f"http://{api}/status"))["pid"]
        return found

    try:
        await eventually(lambda: bool(offers(slb.directory)))
        await slb.until_status(f"http://{api}/readyz", 200)
        assert await pid() == old.pid
        old.send_signal(signal.SIGUSR2)
        assert await soon(old.wait(), 30) == 0
        second = await pid()
        os.kill(second, signal.SIGUSR2)
        third = await until(pid, lambda found: found != second, 30)
        command = await asyncio.to_thread(Path(f"/proc/{third}/cmdline").read_bytes)
    finally:
        if old.returncode is None:
            old.kill()
    os.kill(third, signal.SIGTERM)
    await eventually(lambda: not Path(f"/proc/{third}").exists())
    assert command.split(b"\0").count(b"--takeover") == 1


@pytest.mark.parametrize("fault", ["--tls-certificate=/nowhere.pem", "--redis=ftp://x", "--drain-timeout=soon"])
async def test_with_bad_settings_it_fails_and_the_old_one_goes_on(
    slb: Commands, valkey: Valkey, fault: str
) -> None:
    old = await serve(slb, valkey)
    async with traffic(old) as clients:
        new = await start_takeover(slb, valkey, old, fault)
        assert await new.ended() == 1
    assert clients.failed == []
    assert old.process.running()


async def test_listeners_at_other_addresses_are_bound_anew_and_those_of_the_old_one_end_with_it(
    slb: Commands, valkey: Valkey
) -> None:
    old = await serve(slb, valkey)
    async with traffic(old) as clients:
        new = await take_over(slb, valkey, old, "--api", "127.0.0.1:0")
        assert await old.process.ended() == 0
    assert clients.failed == []
    assert (new.url, new.api != old.api) == (old.url, True)
    assert (await slb.get(f"{old.api}/healthz"))[0] == 0
    assert (await slb.get(f"{new.api}/readyz"))[0] == 200


async def test_another_data_dir_finds_nobody_and_says_so(slb: Commands, valkey: Valkey) -> None:
    old = await serve(slb, valkey)
    new = await start_takeover(slb, valkey, old, "--data-dir", str(slb.directory / "other"))
    assert await new.ended() == 1
    assert "is in use (setting listen); no process with data_dir" in new.log.read_text()


async def test_the_embedded_server_goes_on_with_its_routes_and_ends_with_the_last(slb: Commands) -> None:
    old = await slb.until_ready(await slb.serve())
    _, member = await slb.upstream("a")
    await slb.run("register", "/p", member, "--url", old.api)
    await slb.until_status(f"{old.url}/p", 200)
    async with traffic(old) as clients:
        new = await slb.serve(*hosts(old), "--takeover")
        assert await old.process.ended() == 0
    assert clients.failed == []
    server = ValkeyProcess(slb.directory / "data" / "valkey")
    assert server.alive()
    assert await new.process.stop() == 0
    assert not server.alive()


async def test_what_runs_in_the_old_one_goes_on_and_its_connections_do_not_call_the_address_unready(
    slb: Commands, valkey: Valkey, origin: str
) -> None:
    """A load balancer that keeps its connection for checks would take out the one address there is."""
    old = await serve(slb, valkey, env={"SLB_DRAIN_DELAY": "60s"})
    await slb.run("register", "/p/stream", origin, "--url", old.api)
    stream, streaming = await connected(old.url)
    streaming.write(b"GET /p/stream HTTP/1.1\r\nHost: h\r\n\r\n")
    await stream.readuntil(b"data: 0")
    checks, checking = await connected(old.api)
    new = await take_over(slb, valkey, old)
    await eventually(lambda: len(events(old, "stopping")) == 1)
    checking.write(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
    reply = await soon(checks.read())
    assert (reply.split(b" ")[1], b"connection: close\r\n" in reply.lower()) == (b"200", True)
    redis = valkey.admin
    await eventually(
        lambda: (
            sorted(str(redis.hget(key, "state")) for key in redis.keys("slb:instance:*")) == ["draining", "ready"]
        )
    )
    assert events(old, "stopping")[0]["at_most"] == 30, "nobody has to wait for its address to be forgotten"
    assert await pids(new, 5) == {new.process.pid}
    await slb.get(f"http://{origin}/p/go-on")
    await soon(stream.readuntil(b"data: 1"))
    assert await soon(stream.read()) != b""
    assert await old.process.ended() == 0
    for each in (streaming, checking):
        each.close()


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def test_the_quota_router_and_the_dispatcher_are_taken_over_too(slb: Commands, valkey: Valkey) -> None:
    for command in ("quota", "jobs"):
        flags = ("--redis", valkey.url, "--data-dir", str(slb.directory / "data"), "--log-level", "info")
        old = await slb.start(command, "--api", "127.0.0.1:0", *flags)
        found = re.search(r"API http://([0-9.:]+)", await old.first_line())
        assert found is not None
        new = await slb.start(command, "--api", found[1], "--takeover", *flags)
        await new.first_line()
        assert await old.ended() == 0
        assert (await slb.json(f"http://{found[1]}/status"))["pid"] == new.pid
        assert await new.stop() == 0


async def test_a_name_server_is_taken_over_and_every_query_is_answered(slb: Commands, valkey: Valkey) -> None:
    await serve(slb, valkey)
    flags = ("--redis", valkey.url, "--data-dir", str(slb.directory / "data"))
    old = await slb.start("dns", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", *flags)
    line = orjson.loads(await old.first_line())
    found = re.search(r"API http://([0-9.:]+)", line["message"])
    assert found is not None
    where = ("--listen", line["dns"][0], "--api", found[1])
    port = int(line["dns"][0].rpartition(":")[2])
    codes: list[int] = []

    async def ask() -> None:
        while True:
            for way in (dns.asyncquery.udp, dns.asyncquery.tcp):
                query = dns.message.make_query(ZONE, "A")
                codes.append((await way(query, "127.0.0.1", port=port, timeout=patience(5))).rcode())

    asking = asyncio.create_task(ask())
    new = await slb.start("dns", *where, "--takeover", *flags)
    await new.first_line()
    assert await old.ended() == 0
    count = len(codes)
    await eventually(lambda: len(codes) > count + 10 or asking.done())
    assert not asking.done()
    asking.cancel()
    assert set(codes) == {dns.rcode.NOERROR}


@pytest.mark.skipif(not may_unshare(), reason="a namespace of process ids needs root")
async def test_in_containers_with_one_network_neither_takes_the_other_for_dead(
    slb: Commands, valkey: Valkey, tmp_path: Path
) -> None:
    """Who has bound an address that another container had has proof that the other has ended: not here."""
    traffic, api = (f"127.0.0.1:{free_port()}" for _ in range(2))
    argv = [*OWN_PIDS, sys.executable, "-m", "slb", "serve", "--listen", traffic, "--api", api, "--takeover"]
    argv += ["--redis", valkey.url, "--data-dir", str(tmp_path / "data")]
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    _, member = await slb.upstream("slow", "--service-time", "60s")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "1", "policy": "least_inflight"})
    async with serving(argv, first):
        await slb.until_json(f"http://{api}/routes/p", lambda route: route["settings"]["max_inflight"] == 1)
        asked = asyncio.create_task(slb.get(f"http://{traffic}/p"))
        await eventually(lambda: valkey.admin.zscore("slb:{/p}:inflight", member) == 1, what="the slot is held")
        async with serving(argv, second):
            await eventually(lambda: "replaced" in first.read_text())
            beats = dict.fromkeys(valkey.admin.keys("slb:instance:*"), 0)
            assert len(beats) == 2
            for _ in range(3):
                await eventually(lambda: min(valkey.admin.pttl(key) for key in beats) > 9500, what="both beat")
                await eventually(lambda: min(valkey.admin.pttl(key) for key in beats) < 9000, what="time passes")
            assert "instances_died" not in first.read_text() + second.read_text()
            assert valkey.admin.zscore("slb:{/p}:inflight", member) == 1
    await asked
