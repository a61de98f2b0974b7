"""A session that follows Redis, on a real Valkey."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.client import CallRefused, Session
from slb.errors import ConfigError, RedisRefused
from tests.client.conftest import Upstreams
from tests.client.rig import asked, live
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


def _shows(session: Session, path: str, members: set[str]) -> Callable[[], bool]:
    def shown() -> bool:
        route = session.table.routes.get(path)
        return route is not None and {each.member for each in route.members} == members

    return shown


async def test_routes_in_redis_are_matched_as_the_proxy_matches_them(valkey: Valkey, upstreams: Upstreams) -> None:
    one, deeper, root = [await upstreams() for _ in range(3)]
    valkey.admin.sadd("slb_products", one.member)
    valkey.admin.sadd("slb_products/new", deeper.member)
    valkey.admin.sadd("slb_", root.member)
    async with Session(redis_url=valkey.url) as session:
        await asked(session, ["/products/1", "/products/new", "/products//./new/2", "/productsnew", "/"])
    assert one.seen == ["/products/1"]
    assert len(deeper.seen) == 2
    assert len(root.seen) == 2


async def test_strip_prefix_is_for_upstreams_and_not_for_the_fallback(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    valkey.admin.sadd("slb_a", upstream.member)
    valkey.admin.hset("slb:route:/a", "strip_prefix", "true")
    paths = ["/a", "/a/b?c", "//a/./b/", "/a/"]
    async with Session(redis_url=valkey.url, fallback=fallback.url) as session:
        await asked(session, paths)
        session.enabled = False
        await asked(session, paths)
    assert upstream.seen == ["/", "/b?c", "/b/", "/"]
    assert fallback.seen == ["/a", "/a/b?c", "/a/b/", "/a/"]


async def test_upstreams_come_and_go_while_calls_are_made(valkey: Valkey, upstreams: Upstreams) -> None:
    first, second = await upstreams(), await upstreams()
    admin = valkey.admin
    admin.sadd("slb_", first.member)
    async with Session(redis_url=valkey.url) as session:
        assert await asked(session, ["/x"]) == {200: 1}
        admin.hset(f"slb:upstream:{second.member}", "node", "node-2")
        admin.sadd("slb_", second.member)
        admin.srem("slb_", first.member)
        await eventually(_shows(session, "/", {second.member}))
        assert await asked(session, ["/x"] * 3) == {200: 3}
        await eventually(lambda: [each.spec.node for each in live(session)] == ["node-2"])
    assert (len(first.seen), len(second.seen)) == (1, 3)


async def test_the_loss_of_redis_is_not_noticed(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream, later = await upstreams(), await upstreams()
    valkey.admin.sadd("slb_", upstream.member)
    async with Session(redis_url=valkey.url) as session:
        await asked(session, ["/x"])
        valkey.kill()
        assert await asked(session, ["/x"] * 20) == {200: 20}
        valkey.start()
        valkey.admin.sadd("slb_", later.member)
        await eventually(_shows(session, "/", {upstream.member, later.member}))
        assert await asked(session, ["/x"] * 2) == {200: 2}


async def test_a_redis_that_lost_its_data_is_read_as_it_was_and_never_written_to(
    valkey: Valkey, upstreams: Upstreams
) -> None:
    upstream = await upstreams()
    admin = valkey.admin
    admin.set("slb:generation", "1")
    admin.sadd("slb_", upstream.member)
    async with Session(redis_url=valkey.url) as session:
        await asked(session, ["/x"])
        valkey.kill()
        valkey.lose_data()
        valkey.start()
        await eventually(lambda: bool(valkey.admin.info("clients")["pubsub_clients"]), what="followed again")
        assert await asked(session, ["/x"] * 5) == {200: 5}
        assert valkey.admin.keys("*") == []


async def test_a_frozen_redis_holds_no_call_up(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream = await upstreams()
    valkey.admin.sadd("slb_", upstream.member)
    async with Session(redis_url=valkey.url) as session:
        valkey.freeze()
        try:
            assert await asked(session, ["/x"] * 5) == {200: 5}
        finally:
            valkey.thaw()


async def test_client_percentage_is_followed_live(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    admin = valkey.admin
    admin.sadd("slb_a", upstream.member)
    async with Session(redis_url=valkey.url, fallback=fallback.url) as session:
        await eventually(_shows(session, "/a", {upstream.member}))
        assert await asked(session, ["/a"]) == {200: 1}
        admin.hset("slb:route:/a", "client_percentage", "0")
        await eventually(lambda: session.table.routes["/a"].settings.client_percentage == 0)
        assert await asked(session, ["/a"] * 2) == {200: 2}
        admin.hset("slb:route:/a", "client_percentage", "130")  # refused: what held before stays
        admin.hset("slb:route:/a", "retries", "0")
        await eventually(lambda: session.table.routes["/a"].settings.retries == 0)
        assert await asked(session, ["/a"]) == {200: 1}
        admin.hdel("slb:route:/a", "client_percentage")
        await eventually(lambda: session.table.routes["/a"].settings.client_percentage == 100)
        assert await asked(session, ["/a"]) == {200: 1}
    assert (len(upstream.seen), len(fallback.seen)) == (2, 3)


async def test_client_percentage_without_a_fallback_fails_no_call(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream = await upstreams()
    valkey.admin.sadd("slb_a", upstream.member)
    valkey.admin.hset("slb:route:/a", "client_percentage", "0")
    async with Session(redis_url=valkey.url) as session:
        assert await asked(session, ["/a"] * 3) == {200: 3}


async def test_a_path_without_a_route_goes_to_the_fallback_or_is_refused_by_name(
    valkey: Valkey, upstreams: Upstreams
) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    valkey.admin.sadd("slb_a", upstream.member)
    async with Session(redis_url=valkey.url) as session:
        with pytest.raises(CallRefused, match="no_route"):
            await session.get("/b")
    async with Session(redis_url=valkey.url, fallback=fallback.url) as session:
        await eventually(_shows(session, "/a", {upstream.member}))
        assert await asked(session, ["/b"]) == {200: 1}
        assert dict(session.metrics.fallbacks) == {"no_route": 1}


async def test_a_capped_route_is_left_to_the_fallback(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    valkey.admin.sadd("slb_a", upstream.member)
    valkey.admin.hset("slb:route:/a", "max_inflight", "1")
    async with Session(redis_url=valkey.url, fallback=fallback.url) as session:
        await eventually(_shows(session, "/a", {upstream.member}))
        assert await asked(session, ["/a"]) == {200: 1}
        assert dict(session.metrics.fallbacks) == {"max_inflight": 1}
    async with Session(redis_url=valkey.url) as session:
        with pytest.raises(CallRefused, match="max_inflight"):
            await session.get("/a")
    assert (len(upstream.seen), len(fallback.seen)) == (0, 1)


async def test_a_redis_that_is_away_at_the_start_is_waited_for_by_the_fallback(
    valkey: Valkey, upstreams: Upstreams
) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    valkey.admin.sadd("slb_", upstream.member)
    valkey.kill()
    async with Session(redis_url=valkey.url, fallback=fallback.url) as session:
        assert await asked(session, ["/x"]) == {200: 1}
        assert dict(session.metrics.fallbacks) == {"not_ready": 1}
        valkey.start()
        await eventually(_shows(session, "/", {upstream.member}))
        assert await asked(session, ["/x"]) == {200: 1}
    assert (len(upstream.seen), len(fallback.seen)) == (1, 1)


async def test_without_a_table_yet_a_call_gets_that_error(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slb.client.session._FIRST_TABLE", 0)
    valkey.kill()
    async with Session(redis_url=valkey.url) as session:
        with pytest.raises(CallRefused, match="not_ready: no table has come from Redis yet"):
            await session.get("/p1/x")


async def test_an_upstream_that_the_address_rules_refuse_is_skipped_and_logged_once(
    valkey: Valkey, upstreams: Upstreams
) -> None:
    upstream, never = await upstreams(), "169.254.169.254:80"
    admin = valkey.admin
    admin.sadd("slb_", upstream.member, never)
    admin.sadd("slb_b", upstream.member, never)
    with capture_logs() as logs:
        async with Session(redis_url=valkey.url) as session:
            assert await asked(session, ["/x", "/b"] * 3) == {200: 6}
            admin.hset("slb:route:/", "retries", "0")
            await eventually(lambda: session.table.routes["/"].settings.retries == 0)
            assert await asked(session, ["/x"] * 2) == {200: 2}
            skipped = [each for each in logs if each["event"] == "upstream_skipped"]
            assert [(each["log_level"], each["upstream"]) for each in skipped] == [("warning", never)]
            assert "link-local" in skipped[0]["reason"]
            for command in (admin.srem, admin.sadd):
                command("slb_", never)
                command("slb_b", never)
                gone = command == admin.srem
                await eventually(lambda gone=gone: (len(live(session)) == 2) is gone)  # type: ignore[misc]
            assert await asked(session, ["/x"]) == {200: 1}
    assert [each["event"] for each in logs].count("upstream_skipped") == 2, "it had left all routes meanwhile"


@pytest.mark.parametrize("kind", [str, Path])
async def test_a_table_kept_on_disk_is_served_while_redis_is_away(
    valkey: Valkey, upstreams: Upstreams, tmp_path: Path, kind: Callable[[Path], str | Path]
) -> None:
    upstream = await upstreams()
    valkey.admin.sadd("slb_", upstream.member)
    async with Session(redis_url=valkey.url, data_dir=kind(tmp_path)) as session:
        await asked(session, ["/x"])
    valkey.kill()
    async with Session(redis_url=valkey.url, data_dir=kind(tmp_path)) as session:
        assert await asked(session, ["/x"]) == {200: 1}


async def test_a_login_that_is_refused_ends_the_opening(valkeys: Callable[..., Valkey]) -> None:
    guarded = valkeys(requirepass="secret")
    session = Session(redis_url=guarded.url)
    with pytest.raises(RedisRefused):
        await session.open()
    assert session.closed


async def test_settings_are_the_defaults_of_routes_in_redis(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream = await upstreams()
    valkey.admin.sadd("slb_a", upstream.member)
    valkey.admin.sadd("slb_b", upstream.member)
    valkey.admin.hset("slb:route:/b", "policy", "p2c")
    async with Session(redis_url=valkey.url, settings={"policy": "least_local"}) as session:
        policies = {path: route.settings.policy for path, route in session.table.routes.items()}
        assert policies == {"/a": "least_local", "/b": "p2c"}
        with pytest.raises(ConfigError, match="follows Redis"):
            session.set_upstreams(["127.0.0.1:1"])


async def test_nothing_runs_on_after_the_session_is_closed(valkey: Valkey, upstreams: Upstreams) -> None:
    upstream = await upstreams()
    valkey.admin.sadd("slb_", upstream.member)
    before = asyncio.all_tasks()
    async with Session(redis_url=valkey.url) as session:
        await asked(session, ["/x"])
    await eventually(lambda: not {each.get_name() for each in asyncio.all_tasks() - before} & {"watcher", "rings"})
