"""A process takes the listening sockets of the one that runs: no client notices."""

import os
import signal

import pytest

from tests.process.commands import Commands, Serving
from tests.process.serving import events, until_all_ready
from tests.process.takeovers import begin_takeover, hosts, offers, start_takeover, take_over, traffic
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def serve(slb: Commands, valkey: Valkey, *arguments: str) -> Serving:
    _, member = await slb.upstream("a", "--slots", "16")
    valkey.admin.sadd("slb_p", member)
    serving = await slb.until_ready(await slb.serve(*arguments, redis=valkey.url))
    await until_all_ready(slb, serving)
    await slb.until_status(f"{serving.url}/p", 200)
    return serving


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
    serving = await serve(slb, valkey, "--takeover")
    assert events(serving, "takes_over") == []


async def test_what_a_killed_process_has_left_is_removed(slb: Commands, valkey: Valkey) -> None:
    old = await serve(slb, valkey)
    await eventually(lambda: len(offers(slb.directory)) == 1)
    (left,) = offers(slb.directory)
    old.process.kill()
    await old.process.ended()
    await take_over(slb, valkey, old)
    await eventually(lambda: len(offers(slb.directory)) == 1)
    assert offers(slb.directory) != [left]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_where_it_ends_before_it_serves_the_old_one_goes_on(
    slb: Commands, valkey: Valkey, workers: str, how: int
) -> None:
    old = await serve(slb, valkey, "--workers", workers)
    async with traffic(old) as clients:
        new = await begin_takeover(slb, valkey, old, "--workers", workers)
        await clients.more()
        os.kill(new.pid, how)
        assert await new.ended() == (0 if how == signal.SIGTERM else -how)
        await eventually(lambda: len(events(old, "takeover_failed")) == 1)
        await clients.more()
        assert (await slb.json(f"{old.api}/status"))["draining"] is False
        valkey.start()
        await take_over(slb, valkey, old, "--workers", workers)
        assert await old.process.ended() == 0
    assert clients.failed == []


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
    server = int((slb.directory / "data" / "valkey" / "valkey.pid").read_text())
    os.kill(server, 0)
    assert await new.process.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


async def test_an_old_connection_to_the_api_does_not_call_the_address_unready(
    slb: Commands, valkey: Valkey
) -> None:
    """A load balancer that keeps its connection would take the one address there is out."""
    old = await serve(slb, valkey, "--drain-timeout", "60s")
    async with slb.session.get(f"{old.url}/p", headers={"X-Service-Time": "5s"}) as _:
        pass


async def test_the_quota_router_is_taken_over_too(slb: Commands, valkey: Valkey) -> None:
    flags = ("quota", "--api", "127.0.0.1:0", "--redis", valkey.url, "--data-dir", str(slb.directory / "data"))
    old = await slb.start(*flags)
    line = await old.first_line()
    assert line
