"""The fleet's view over a real Valkey: what it costs while nobody looks, what strangers publish, and what is
missing where Redis forbids it."""

import asyncio
import os
import time
from typing import Any

import orjson
import pytest
from redis import Redis

from slb.control import keys
from slb.control.slices import Slices
from slb.fleet import hours, service, view
from slb.fleet.frame import (
    MOST_ROUTES,
    MOST_UPSTREAMS,
    NO_ROUTE_ROW,
    NO_UPSTREAM_ROW,
    Frame,
    PoolRow,
    QueueRow,
    written,
)
from tests.redis.fleet_rig import fleet
from tests.support.acl import acl_rules
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within


def listeners(admin: Redis, channel: str) -> int:
    return int(admin.pubsub_numsub(channel)[0][1])


async def test_while_nobody_looks_nothing_is_published_and_one_channel_is_heard(valkey: Valkey) -> None:
    async with fleet(valkey.url, "one", "other") as (one, other):
        await eventually(lambda: listeners(valkey.admin, keys.FLEET_ASK_CHANNEL) == 2)
        assert listeners(valkey.admin, keys.FLEET_FRAMES_CHANNEL) == 0
        admin: Any = valkey.admin
        heard = admin.pubsub(ignore_subscribe_messages=True)
        heard.psubscribe("slb:fleet:*")
        await asyncio.sleep(1.5)  # that nothing happens can only be waited for
        assert heard.get_message() is None
        assert heard.get_message() is None
        heard.close()
        assert one.view.version == other.view.version == 0


async def test_each_shows_itself_from_the_first_look_to_a_while_after_the_last(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    async with fleet(valkey.url, "one", "other") as (one, _):
        one.view.enter()
        async with within(20):
            await one.view.first()
        state = one.state()
        assert {each["name"] for each in state["instances"].values()} == {"one", "other"}
        assert state["routes"]["/p"]["members"] == ["10.0.0.1:80"]
        assert state["upstreams"]["10.0.0.1:80"]["health"] == "unchecked"
        one.view.leave()
        await eventually(lambda: listeners(valkey.admin, keys.FLEET_FRAMES_CHANNEL) == 0, timeout=20)
        assert one.view.version == 0


async def test_what_all_find_of_an_upstream_is_added_up(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p", "10.0.0.1:80", "10.0.0.2:80")
    async with fleet(valkey.url, "one", "other") as (one, other):
        for each in (one, other):
            await each.follower.shows("/p", ["10.0.0.1:80", "10.0.0.2:80"])
            live = each.follower.mirror.upstreams["10.0.0.1:80"]
            live.inflight = 3
        live = other.follower.mirror.upstreams["10.0.0.2:80"]
        live.available, live.why, live.since = False, "it refuses connections; out for 1 s", 1_700_000_000.0
        one.view.enter()

        def upstreams() -> dict[str, dict[str, object]]:
            return one.state()["upstreams"]

        await eventually(lambda: bool(upstreams()) and upstreams()["10.0.0.1:80"]["inflight"] == 6)
        await eventually(lambda: upstreams()["10.0.0.2:80"]["health"] == "ejected")
        assert upstreams()["10.0.0.2:80"]["ejected_by"] == ["other"]
        await eventually(lambda: "ejected:/p" in one.state()["alerts"])
        alert = one.state()["alerts"]["ejected:/p"]
        who = "10.0.0.2:80 (1 of 2 upstreams of /p)"
        assert alert["text"] == f"{who} is ejected: it refuses connections. Left out for 1 s, then tried"
        assert abs(alert["since"] - 1_700_000_000.0) < 60.0, "as long as the clocks of one machine may differ"
        assert (alert["upstream"], alert["do"]) == ("10.0.0.2:80", "slb drain 10.0.0.2:80")
        live.available = True
        await eventually(lambda: upstreams()["10.0.0.2:80"]["health"] == "unchecked")
        await eventually(lambda: "ejected:/p" not in one.state()["alerts"])


async def test_slots_are_those_that_redis_has_given_out_and_not_the_sum_of_different_moments(
    valkey: Valkey,
) -> None:
    member, other = "10.0.0.1:80", "10.0.0.2:80"
    valkey.admin.sadd("slb_p", member, other)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "8"})
    slots = keys.pool_keys("/p")[0]
    valkey.admin.zadd(slots, {member: 8})
    async with fleet(valkey.url, "one") as (one,):
        await one.follower.shows("/p", [member, other])
        one.view.enter()
        await eventually(lambda: listeners(valkey.admin, keys.FLEET_FRAMES_CHANNEL) == 1)
        number = 0

        def shows(mode: str, inflight: int, of_other: int, in_pool: int) -> bool:
            nonlocal number
            number += 1
            rows = {member: (1, "", 14, 14, 0.0, 0.0, 0.0), other: (1, "", 3, 3, 0.0, 0.0, 0.0)}
            pool = PoolRow("/p", mode, "", 1, 0, 17)
            frame = Frame("id-two", number, True, {"name": "two"}, rows, pools=[pool])
            valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, written(frame))
            state = one.state()
            upstreams, pools = state["upstreams"], state["pools"]
            if not pools or upstreams.keys() != {member, other}:
                return False
            found = (upstreams[member]["inflight"], upstreams[other]["inflight"], pools["/p"]["inflight"])
            assert state["routes"]["/p"]["inflight"] == found[0] + found[1]
            return found == (inflight, of_other, in_pool)

        await eventually(lambda: shows("shared", 8, 0, 8))
        valkey.admin.zadd(slots, {member: 9, other: 1})
        await eventually(lambda: shows("shared", 9, 1, 10), what="what is above the cap is shown")
        await eventually(lambda: shows("local", 14, 3, 17), what="Redis does not know of what is given out here")
        await eventually(lambda: shows("late", 9, 1, 10))


async def test_frames_of_strangers_do_no_harm(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    async with fleet(valkey.url, "one") as (one,):
        one.view.enter()
        await eventually(lambda: listeners(valkey.admin, keys.FLEET_FRAMES_CHANNEL) == 1)
        good = orjson.loads(written(Frame("stranger", 1, True, {"name": "stranger"})))
        hostile = [
            "",
            "[" * 100_000,
            "null",
            "[]",
            orjson.dumps({**good, "v": 2}).decode(),
            *(orjson.dumps({**good, name: 7}).decode() for name in good),
            *(orjson.dumps({**good, name: [[["x"]]] * 10}).decode() for name in good),
            orjson.dumps({**good, "upstreams": {"m": [99, "", 0, 0, 0, 0, 0]}}).decode(),
            orjson.dumps({**good, "instance": {"name": "x" * 10_000, "rate": "much", "silent_for": []}}).decode(),
            "x" * (1 << 19),
        ]
        for text in hostile:
            valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, text)
        for number in range(400):
            valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, written(Frame(f"fake-{number}", 1, True, {})))
        rows = dict.fromkeys((f"10.9.9.{number}:80" for number in range(MOST_UPSTREAMS)), NO_UPSTREAM_ROW)
        paths = dict.fromkeys((f"/{number}" for number in range(MOST_ROUTES)), NO_ROUTE_ROW)
        valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, written(Frame("fake-1", 2, True, {}, rows, paths)))
        pools = [PoolRow(each, "shared", "", 1, 1, 1) for each in ("/p", "/made-up")]
        queues = [QueueRow("/p", each, "", 1, 1.0) for each in ("/p", "/made-up")]
        forged = Frame("fake-2", 2, True, {}, routes={"/p": (False, 0.0, 5.0, (), {})}, pools=pools, queues=queues)
        valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, written(forged))
        await eventually(lambda: "errors:/p" in one.state()["alerts"])
        assert (set(one.state()["pools"]), set(one.state()["queues"])) == ({"/p"}, {"/p|/p|"})
        valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, os.urandom(1000))
        for text in ("", "x" * 2000, "{}", '{"v":1}', '{"v":1,"asker":7}'):
            valkey.admin.publish(keys.FLEET_ASK_CHANNEL, text)
        known = written(Frame("id-two", 1, True, {"name": "two"}))
        one.instances.known = [*one.instances.known, type(one.instances.info)("id-two", name="two")]

        def shows_the_known() -> bool:
            valkey.admin.publish(keys.FLEET_FRAMES_CHANNEL, known)
            return one.state()["instances"].get("id-two", {}).get("silent_for") is not None

        await eventually(shows_the_known, what="one that beats goes before those that do not")
        state = one.state()
        assert len(state["instances"]) <= 257
        assert set(state["upstreams"]) == {"10.0.0.1:80"}
        assert set(state["routes"]) == {"/p"}


async def test_in_a_large_fleet_states_are_seldom_and_all_are_asked_as_often_as_ever(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_AT_FULL_SPEED", 0.01)
    monkeypatch.setattr(view, "_ASKS", 0.05)
    admin: Any = valkey.admin
    with admin.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(keys.FLEET_ASK_CHANNEL)
        async with fleet(valkey.url, "one") as (one,):
            one.view.enter()
            asks = 0

            def has_asked_often() -> bool:
                nonlocal asks
                asks += heard.get_message() is not None
                return asks > 10

            await eventually(has_asked_often)
            assert one.view.version <= 2


async def test_without_the_right_to_the_channels_an_instance_shows_itself_and_says_so(valkey: Valkey) -> None:
    rules = [rule for rule in acl_rules() if "fleet" not in rule]
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *rules)
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    async with fleet(valkey.url.replace("://", "://slb:pw@"), "one") as (one,):
        one.view.enter()
        await eventually(lambda: one.view.version > 1)
        assert one.view.self_shown()["alone"] is True
        state = one.state()
        assert [each["name"] for each in state["instances"].values()] == ["one"]
        assert "permission" in state["alerts"]["alone"]["text"].lower()
        assert "/p" in state["routes"]


async def test_with_redis_away_an_instance_shows_itself_alone_and_then_all_again(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    async with fleet(valkey.url, "one", "other") as (one, other):
        one.view.enter()
        await one.view.first()
        valkey.kill()
        await eventually(lambda: one.view.self_shown()["alone"])
        assert "/p" in one.state()["routes"]
        valkey.start()
        for each in (one, other):
            await each.follower.up(True)
        await eventually(lambda: not one.view.self_shown()["alone"])
        await eventually(lambda: one.state()["instances"]["id-other"]["silent_for"] == 0, timeout=30)


async def test_the_last_hour_and_a_request_are_asked_of_all(valkey: Valkey) -> None:
    async with fleet(valkey.url, "one", "other") as (one, other):
        other.follower.metrics.decisions.refused.append((b"abc", "", 404, "no_route", "no route takes this", 1.0))
        async with within(20):
            history = await one.view.history()
            found = await one.view.explain("abc")
        assert {each["name"] for each in history["series"].values()} == {"one", "other"}
        assert [(each["instance_name"], each["reason"]) for each in found] == [("other", "no_route")]
        assert await one.view.explain("nothing") == []


async def test_the_last_hour_of_one_is_added_up_over_all(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours, "STEP", 1)
    monkeypatch.setattr(service, "LOOK", 0.1)
    member = "10.0.0.1:80"
    valkey.admin.sadd("slb_p", member)
    async with fleet(valkey.url, "one", "other", "silent") as (one, other, silent):
        silent.service._answers.hours = None
        for each in (one, other):
            await each.follower.shows("/p", [member])
            each.follower.mirror.upstreams[member].inflight = 2
        for name in (member, "/p"):
            async with within(60):
                found = await one.view.hour(name)
                while 4.0 not in found["inflight"]:
                    found = await one.view.hour(name)
            assert (found["name"], found["instances"], found["missing"]) == (name, ["one", "other"], [])
            assert len(found["requests"]) == len(found["inflight"])
        valkey.kill()
        await eventually(lambda: not one.follower.connection.up)
        async with within(20):
            found = await one.view.hour("/p")
        assert (found["instances"], found["missing"]) == (["one"], ["other", "silent"])
        assert 2.0 in found["inflight"]


async def test_what_failed_before_anybody_looked_is_counted_at_all(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_PATIENCE", 5.0)  # however busy this machine is
    member = "10.0.0.1:80"
    valkey.admin.sadd("slb_p", member)
    async with fleet(valkey.url, "one", "other") as (one, other):
        began = time.time()
        for each, count in ((one, 7), (other, 5)):
            await each.follower.shows("/p", [member])
            traffic = each.follower.metrics.traffic
            traffic._found("/p", member)[1].outcomes[500, ""] += count
        one.view.enter()
        await eventually(lambda: "errors:/p" in one.state()["alerts"])
        await eventually(lambda: one.state()["alerts"]["errors:/p"]["failed"] == 12)
        alert = one.state()["alerts"]["errors:/p"]
        assert alert["text"] == (
            "/p: 100 % of requests of the last minute failed, and 12 requests since it began."
            f" Most of them at {member} (12)"
        )
        assert began - hours.STEP <= alert["since"] <= began
        (culprit,) = alert["culprits"]
        assert (culprit["upstream"], culprit["failed"]) == (member, 12)
        one.view.leave()
        await eventually(lambda: one.view.version == 0, timeout=20, what="to be asked is not to look")


@pytest.mark.parametrize("gap", [1, 5])
async def test_rows_that_were_missed_are_asked_for_again(valkey: Valkey, gap: int) -> None:
    """A message of pub/sub may be lost; the rows in it do not come again by themselves."""
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    async with fleet(valkey.url, "one", "other") as (one, other):
        await other.follower.shows("/p", ["10.0.0.1:80"])
        one.view.enter()
        await one.view.first()
        frames = other.view.showing.frames
        assert frames is not None
        other.follower.mirror.upstreams["10.0.0.1:80"].inflight = 7
        for _ in range(gap):
            await frames.make(Slices())  # and nobody gets it
        await eventually(lambda: one.state()["upstreams"].get("10.0.0.1:80", {}).get("inflight") == 7, timeout=60)


async def test_what_is_in_flight_at_an_upstream_is_asked_of_all_and_of_the_ledger(valkey: Valkey) -> None:
    admin, member = valkey.admin, "10.0.0.1:80"
    admin.sadd("slb_p", member)
    admin.hset("slb:route:/p", mapping={"max_inflight": "4"})
    admin.zadd("slb:{/p}:inflight", {member: 3})  # of a program with the library, say
    async with fleet(valkey.url, "one", "other") as (one, other):
        other.follower.mirror.upstreams[member].inflight = 2
        async with within(20):
            found = await one.view.in_flight(member)
            while found["unknown"]:
                found = await one.view.in_flight(member)
        figures = {"inflight": 5, "instances": {"other": 2}, "elsewhere": 3}
        assert found == {**figures, "unknown": [], "unaware": ["one", "other"], "empty": False}
        admin.delete("slb:{/p}:inflight")
        admin.hset(f"slb:upstream:{member}", "drain", "true")
        other.follower.mirror.upstreams[member].inflight = 0
        async with within(20):
            while not (await one.view.in_flight(member))["empty"]:
                pass


async def test_with_redis_away_nothing_is_empty(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "4"})
    async with fleet(valkey.url, "one", "other") as (one, _):
        await eventually(lambda: "10.0.0.1:80" in one.follower.mirror.upstreams)
        valkey.kill()
        await eventually(lambda: not one.follower.connection.up)
        async with within(20):
            found = await one.view.in_flight("10.0.0.1:80")
        assert (found["elsewhere"], found["unknown"], found["empty"]) == (None, ["other"], False)


async def test_an_instance_that_has_just_begun_is_asked_too(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p", "10.0.0.1:80")
    async with fleet(valkey.url, "one") as (one,), fleet(valkey.url, "new"):
        assert one.instances.count == 1, "it has not beaten since"
        async with within(20):
            found = await one.view.in_flight("10.0.0.1:80")
        assert "new" in [*found["unknown"], *found["unaware"]]
