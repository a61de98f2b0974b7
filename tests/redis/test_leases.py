"""Registrations with a lease: renewed, ended, and left alone while no renewal could be received."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from slb.control import keys
from slb.control.leases import Leases
from tests.support.acl import acl_rules
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

MEMBER, OTHER = "10.1.1.1:1", "10.2.2.2:2"


def of(follower: Follower) -> Leases:
    """Not running: the test looks."""
    return Leases(follower.connection, follower.mirror, follower.metrics)


async def register(follower: Follower, path: str, member: str, ttl: float | None, **attributes: str) -> bool:
    return (await follower.registry.register_all([(path, member, attributes)], [ttl]))[0]


def clock(valkey: Valkey) -> float:
    found = valkey.admin.zscore(keys.LEASES, "clock")
    assert found is not None
    return float(found)


def end(valkey: Valkey, path: str, member: str) -> float:
    """0.0 where it has no lease."""
    return float(valkey.admin.zscore(keys.LEASES, keys.membership(path, member)) or 0.0)


def pass_time(valkey: Valkey, seconds: float) -> None:
    """As if instances had looked that often meanwhile."""
    valkey.admin.zincrby(keys.LEASES, seconds * 1000, "clock")


def tick_back(valkey: Valkey, seconds: float) -> None:
    """As if no instance had looked for so long."""
    valkey.admin.zincrby(keys.LEASES, -seconds * 1000, "ticked")


def now(valkey: Valkey) -> float:
    """Seconds, by its clock."""
    seconds, micros = valkey.admin.time()
    return float(seconds) + float(micros) / 1e6


def calls(valkey: Valkey, command: str) -> int:
    """How often it was called, by scripts too."""
    stats: Any = valkey.admin.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def many(count: int) -> list[tuple[str, str, dict[str, str]]]:
    """Members of one route."""
    return [("/a", f"10.3.{number // 250}.{number % 250 + 1}:80", {}) for number in range(count)]


async def looking(follower: Follower) -> Leases:
    """An instance that has looked once, at one registration of 10 s."""
    leases = of(follower)
    await register(follower, "/a", MEMBER, 10.0)
    await leases.expire()
    return leases


async def test_a_registration_ends_with_its_lease_and_leaves_a_trace(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        leases = of(follower)
        assert await register(follower, "/a", MEMBER, 10.0, weight="2")
        await register(follower, "/a", OTHER, None)
        await follower.shows("/a", [MEMBER, OTHER])
        number = float(admin.zscore(keys.CHANGES, keys.membership("/a", MEMBER)) or 0)
        assert await leases.expire() == 0
        pass_time(valkey, 11.0)
        assert await leases.expire() == 1
        await follower.shows("/a", [OTHER])
        assert float(admin.zscore(keys.CHANGES, keys.membership("/a", MEMBER)) or 0) > number
        assert not admin.exists(keys.upstream_key(MEMBER))
        assert follower.metrics.redis.registrations_expired == 1
        assert await leases.expire() == 0
        assert not admin.exists(keys.LEASES)


async def test_attributes_stay_while_another_route_names_the_member(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0, weight="2")
        await register(follower, "/b", MEMBER, None)
        await follower.shows("/a", [MEMBER])
        await follower.shows("/b", [MEMBER])
        pass_time(valkey, 11.0)
        assert await of(follower).expire() == 1
        assert valkey.admin.smembers("slb_b") == {MEMBER}
        assert valkey.admin.hget(keys.upstream_key(MEMBER), "weight") == "2"


async def test_a_renewal_is_no_change_of_the_table(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0, weight="2")
        await follower.shows("/a", [MEMBER])
        log, before = admin.zrange(keys.CHANGES, 0, -1, withscores=True), end(valkey, "/a", MEMBER)
        pass_time(valkey, 9.0)
        calls = admin.info("commandstats")
        assert not await register(follower, "/a", MEMBER, 10.0, weight="2")
        after = admin.info("commandstats")
        assert admin.zrange(keys.CHANGES, 0, -1, withscores=True) == log
        assert end(valkey, "/a", MEMBER) >= before + 9000
        assert not any(after[f"cmdstat_{name}"]["calls"] > calls[f"cmdstat_{name}"]["calls"] for name in WRITES)
        pass_time(valkey, 9.0)
        assert await of(follower).expire() == 0
        await register(follower, "/a", MEMBER, 10.0, weight="3")
        assert admin.zrange(keys.CHANGES, 0, -1, withscores=True) != log
        assert admin.hget(keys.upstream_key(MEMBER), "weight") == "3"


WRITES = ("sadd", "hset")
"""Which a keyspace event reports, even where nothing differs."""


async def test_a_renewal_of_what_was_removed_by_hand_adds_it_again(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        valkey.admin.srem("slb_a", MEMBER)
        assert await register(follower, "/a", MEMBER, 10.0)
        assert valkey.admin.smembers("slb_a") == {MEMBER}


async def test_a_first_lease_of_what_stood_for_good_is_a_change(valkey: Valkey) -> None:
    """An older lease must not come back with old data, nor go with it: the number shows which is newer."""
    entry = keys.membership("/a", MEMBER)
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, None)
        number = float(valkey.admin.zscore(keys.CHANGES, entry) or 0)
        await register(follower, "/a", MEMBER, 10.0)
        assert end(valkey, "/a", MEMBER)
        assert float(valkey.admin.zscore(keys.CHANGES, entry) or 0) > number


async def test_many_renewals_read_the_clock_once_in_a_step(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        items = many(1000)
        before = calls(valkey, "zmscore")
        await follower.registry.register_all(items, [10.0] * len(items))
        assert calls(valkey, "zmscore") == before + 1
        log, scripts = valkey.admin.zrange(keys.CHANGES, 0, -1, withscores=True), calls(valkey, "evalsha")
        await follower.registry.register_all(items, [10.0] * len(items))
        assert valkey.admin.zrange(keys.CHANGES, 0, -1, withscores=True) == log
        assert calls(valkey, "zmscore") == before + 6
        assert calls(valkey, "evalsha") >= scripts + 5


async def test_a_renewal_that_comes_between_finding_and_ending_it_holds(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        leases = of(follower)
        for path in ("/a", "/b"):
            await register(follower, path, MEMBER, 10.0)
        pass_time(valkey, 11.0)
        due, _ = await leases._look()
        assert sorted(due) == [keys.membership(path, MEMBER) for path in ("/a", "/b")]
        await register(follower, "/a", MEMBER, 10.0)
        assert await leases._take_out(due) == [("/b", MEMBER)]
        assert valkey.admin.smembers("slb_a") == {MEMBER}
        assert not valkey.admin.exists("slb_b")


async def test_what_takes_a_registration_out_or_makes_it_stand_for_good_ends_its_lease(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        for path in ("/a", "/b", "/c"):
            await register(follower, path, MEMBER, 10.0)
        await follower.shows("/b", [MEMBER])
        await register(follower, "/a", MEMBER, None)
        assert end(valkey, "/a", MEMBER) == 0.0
        await follower.registry.deregister("/b", MEMBER)
        assert end(valkey, "/b", MEMBER) == 0.0
        await follower.registry.delete_route("/c")
        assert end(valkey, "/c", MEMBER) == 0.0
        pass_time(valkey, 60.0)
        assert await of(follower).expire() == 0
        assert valkey.admin.smembers("slb_a") == {MEMBER}


async def test_a_lease_of_what_was_removed_by_hand_ends_without_a_trace(valkey: Valkey) -> None:
    entry = keys.membership("/a", MEMBER)
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        await follower.shows("/a", [MEMBER])
        before = valkey.admin.zscore(keys.CHANGES, entry)
        valkey.admin.srem("slb_a", MEMBER)
        await eventually(lambda: valkey.admin.zscore(keys.CHANGES, entry) != before, what="its number")
        log = valkey.admin.zrange(keys.CHANGES, 0, -1, withscores=True)
        pass_time(valkey, 11.0)
        assert await of(follower).expire() == 0
        assert end(valkey, "/a", MEMBER) == 0.0
        assert valkey.admin.zrange(keys.CHANGES, 0, -1, withscores=True) == log


async def test_a_reset_leaves_no_lease(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        assert await follower.registry.reset() == 1
        assert not valkey.admin.exists(keys.LEASES)


async def test_time_in_which_no_instance_looked_does_not_count(valkey: Valkey) -> None:
    """Redis or the whole fleet was away, or Redis's clock has jumped: to the script they are alike."""
    async with Follower(valkey.url) as follower:
        leases = await looking(follower)
        for seconds in (3600.0, -7200.0):
            before = clock(valkey)
            tick_back(valkey, seconds)
            await register(follower, "/b", MEMBER, 10.0)
            assert before + 10_000 <= end(valkey, "/b", MEMBER) <= before + 12_000
            assert await leases.expire() == 0
            assert clock(valkey) == before
            tick_back(valkey, 1.0)
            await leases.expire()
            assert clock(valkey) >= before + 1000
        assert valkey.admin.smembers("slb_a") == {MEMBER}


async def test_time_before_an_instance_was_answered_does_not_count(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        before = clock(valkey)
        tick_back(valkey, 1.0)
        await of(follower).expire()
        assert clock(valkey) == before


async def test_the_clock_goes_on_while_instances_look(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        leases = await looking(follower)
        before = clock(valkey)
        tick_back(valkey, 1.0)
        await leases.expire()
        assert clock(valkey) >= before + 1000


async def test_an_instance_that_was_not_answered_leaves_the_clock_to_others(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        leases = await looking(follower)
        before = clock(valkey)
        tick_back(valkey, 1.0)
        await of(follower).expire()
        await leases.expire()
        assert clock(valkey) >= before + 1000


async def test_the_clock_is_written_twice_a_second_at_most(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        leases = await looking(follower)
        before, start = calls(valkey, "zadd"), now(valkey)
        for _ in range(50):
            await leases.expire()
        assert calls(valkey, "zadd") - before <= 1 + (now(valkey) - start) / 0.5


async def test_a_refused_look_is_logged_once_and_the_next_one_counts_no_time(valkey: Valkey) -> None:
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    async with Follower(valkey.url.replace("unix://", "unix://slb:pw@")) as follower:
        leases = Leases(follower.connection, follower.mirror, follower.metrics, period=0.01)
        counting: list[int] = []
        look: Any = leases._due

        async def recorded(keys: list[str], args: list[int]) -> Any:
            counting.append(args[0])
            return await look(keys=keys, args=args)

        leases._due = recorded
        await register(follower, "/a", MEMBER, 10.0)
        with capture_logs() as logs:
            running = asyncio.create_task(leases.run())
            await eventually(lambda: 1 in counting, what="a look that counts")
            admin.execute_command("ACL", "SETUSER", "slb", "-zmscore")
            await eventually(lambda: counting[-3:] == [0, 0, 0], what="looks that were refused")
            admin.execute_command("ACL", "SETUSER", "slb", "+zmscore")
            await eventually(lambda: counting[-2:] == [1, 1], what="looks that count again")
            valkey.kill()
            await eventually(lambda: counting[-3:] == [0, 0, 0], what="looks without an answer")
            running.cancel()
            await asyncio.wait([running])
    (line,) = [line for line in logs if line["event"] == "leases_not_looked_at" and line["log_level"] == "warning"]
    assert "zmscore" in line["error"].lower()


async def test_a_lease_begins_when_it_is_written_and_not_at_the_last_tick(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        tick_back(valkey, 1.0)
        await register(follower, "/b", MEMBER, 10.0)
        assert end(valkey, "/b", MEMBER) >= clock(valkey) + 11_000


async def test_leases_of_an_old_snapshot_have_the_clock_of_that_time(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        leases = of(follower)
        await register(follower, "/a", MEMBER, 10.0)
        snapshot = {"clock": clock(valkey), keys.membership("/a", MEMBER): end(valkey, "/a", MEMBER)}
        for _ in range(3):
            pass_time(valkey, 9.0)
            await register(follower, "/a", MEMBER, 10.0)
        valkey.admin.zadd(keys.LEASES, snapshot)
        assert await leases.expire() == 0
        assert valkey.admin.smembers("slb_a") == {MEMBER}


async def test_many_leases_that_end_at_once_are_taken_out_in_steps(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        items = many(1000)
        await follower.registry.register_all(items, [10.0] * len(items))
        pass_time(valkey, 11.0)
        assert await of(follower).expire() == 1000
        assert not valkey.admin.exists("slb_a")


@pytest.mark.parametrize("foreign", ["nonsense", "slb_a ", "slb:route:/a x", "x" * 5000])
async def test_what_is_no_lease_is_removed(valkey: Valkey, foreign: str) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        valkey.admin.zadd(keys.LEASES, {foreign: -1})
        assert await of(follower).expire() == 0
        assert valkey.admin.zscore(keys.LEASES, foreign) is None
        assert valkey.admin.smembers("slb_a") == {MEMBER}


async def test_much_that_is_no_lease_does_not_hold_up_those_that_have_ended(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await register(follower, "/a", MEMBER, 10.0)
        valkey.admin.zadd(keys.LEASES, {f"{number:05}" + "x" * 5000: "-inf" for number in range(1000)})
        pass_time(valkey, 11.0)
        assert await of(follower).expire() == 1


@pytest.mark.parametrize("score", ["-inf", "-1", "inf", "1e300"])
async def test_a_damaged_clock_begins_anew_and_renewals_hold(valkey: Valkey, score: str) -> None:
    async with Follower(valkey.url) as follower:
        leases = of(follower)
        await register(follower, "/a", MEMBER, 10.0)
        valkey.admin.zadd(keys.LEASES, {"clock": score})
        for _ in range(2):
            await register(follower, "/a", MEMBER, 10.0)
            assert await leases.expire() == 0
        assert 0 <= clock(valkey) < 100_000
        assert valkey.admin.smembers("slb_a") == {MEMBER}


async def test_an_end_that_no_lease_can_have_becomes_the_longest(valkey: Valkey) -> None:
    """As where the clock was lost, and began anew."""
    entries = [keys.membership("/a", member) for member in (MEMBER, OTHER)]
    async with Follower(valkey.url) as follower:
        for member in (MEMBER, OTHER):
            await register(follower, "/a", member, 86_400.0)
        valkey.admin.zadd(keys.LEASES, {entries[0]: "inf", "clock": 0})
        before = end(valkey, "/a", OTHER)
        await of(follower).expire()
        assert end(valkey, "/a", MEMBER) == clock(valkey) + 86_400_000
        assert end(valkey, "/a", OTHER) == before


async def test_another_type_of_key_makes_way(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        valkey.admin.set(keys.LEASES, "a string")
        assert await of(follower).expire() == 0
        valkey.admin.set(keys.LEASES, "a string")
        assert await register(follower, "/a", MEMBER, 10.0)
        assert end(valkey, "/a", MEMBER)


async def test_a_login_without_a_right_that_only_renewals_need_renews_all_the_same(valkey: Valkey) -> None:
    rules = [rule for rule in acl_rules() if rule != "+sismember"]
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *rules)
    async with Follower(valkey.url.replace("unix://", "unix://slb:pw@")) as follower:
        assert await register(follower, "/a", MEMBER, 10.0)
        pass_time(valkey, 9.0)
        assert not await register(follower, "/a", MEMBER, 10.0)
        pass_time(valkey, 9.0)
        assert await of(follower).expire() == 0
