"""What stands in Redis of a check: which instance may make it, and which result holds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from slb.control import keys
from slb.control.connection import Connection
from slb.control.health_news import SUSPECT, HealthNews
from slb.control.health_store import Ask, HealthStore, Outcome, Report
from slb.errors import RedisUnavailable
from slb.observe.metrics import Metrics
from tests.redis.test_health import CHECK, MEMBER
from tests.support.acl import acl_rules
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience, until


class Two:
    """Two stores of one Valkey, and one check to share."""

    def __init__(self, url: str) -> None:
        self.connections = [Connection(url, Metrics(), command_deadline=patience(0.5)) for _ in range(2)]
        self.one, self.other = map(HealthStore, self.connections)

    @staticmethod
    def ask(state: str = "unknown", run: int = 0, hold: float = 60.0) -> list[Ask]:
        return [Ask(MEMBER, CHECK, state, run, hold)]

    @staticmethod
    def report(claim: int, state: str, run: int = 0) -> list[Report]:
        return [Report(MEMBER, CHECK, claim, state, run)]


@pytest_asyncio.fixture
async def two(valkey: Valkey) -> AsyncIterator[Two]:
    made = Two(valkey.url)
    yield made
    for connection in made.connections:
        await connection.aclose()


async def test_a_claim_is_one_instances_until_it_is_due_again(two: Two) -> None:
    [mine] = await two.one.claim(two.ask(), 1)
    [theirs] = await two.other.claim(two.ask(), 1)
    assert (bool(mine.claim), theirs.claim, mine.wait) == (True, 0, 60.0)
    assert 50 < theirs.wait <= 60


async def test_a_claim_that_lapsed_is_the_next_ones_and_its_report_changes_nothing(two: Two) -> None:
    [lapsed] = await two.one.claim(two.ask(hold=0.001), 1)
    [mine] = await until(lambda: two.other.claim(two.ask(), 1), lambda found: bool(found[0].claim))
    assert mine.claim > lapsed.claim
    assert await two.one.report(two.report(lapsed.claim, "down")) == [Outcome(False, "unknown", 0)]
    assert await two.other.report(two.report(mine.claim, "up")) == [Outcome(True, "up", 0)]
    assert await two.one.report(two.report(lapsed.claim, "down")) == [Outcome(False, "up", 0)], (
        "it learns what holds"
    )
    [known] = await two.one.claim(two.ask(), 1)
    assert (known.claim, known.state, known.run) == (0, "up", 0)


async def test_a_check_whose_result_has_come_is_due_again_before_its_claim_would_have_ended(two: Two) -> None:
    [mine] = await two.one.claim(two.ask(hold=60), 1)
    [report] = two.report(mine.claim, "up")
    await two.one.report([replace(report, early=20.0)])
    [theirs] = await two.other.claim(two.ask(), 1)
    assert 30 < theirs.wait <= 40
    [late] = await two.one.report([replace(report, state="down")])
    assert late == Outcome(False, "up", 0), "a claim is used up by its report"


async def test_the_key_of_a_check_lives_longer_than_its_claim(two: Two, valkey: Valkey) -> None:
    check = CHECK._replace(timeout=100.0)
    [mine] = await two.one.claim([Ask(MEMBER, check, "unknown", 0, 102.0)], 1)
    assert valkey.admin.pttl(keys.health_key(MEMBER, check)) > 102_000
    await two.one.report([Report(MEMBER, check, mine.claim, "up", 0)])
    assert valkey.admin.pttl(keys.health_key(MEMBER, check)) > 102_000


async def test_who_suspects_an_upstream_is_published_where_its_report_counts_and_turns_nothing(
    two: Two, valkey: Valkey
) -> None:
    heard: list[tuple[str, str, int]] = []
    listening = asyncio.create_task(HealthNews(two.connections[1]).run(lambda *news: heard.append(news)))
    await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 1, what="it listens")
    [mine] = await two.one.claim(two.ask("up"), 1)
    await two.one.report([Report(MEMBER, CHECK, mine.claim + 1, "up", 1, suspects="a")])
    await two.one.report([Report(MEMBER, CHECK, mine.claim, "up", 1, suspects="a")])
    await two.one.report([Report(MEMBER, CHECK, mine.claim, "down", 0, suspects="a")])
    key = keys.health_key(MEMBER, CHECK)
    await eventually(lambda: len(heard) == 2, what="both are heard")
    assert heard == [(f"a {key}", SUSPECT, 1), (key, "down", 0)]
    listening.cancel()
    await asyncio.wait([listening])


async def test_of_a_check_that_redis_has_lost_nothing_is_known(two: Two, valkey: Valkey) -> None:
    [mine] = await two.one.claim(two.ask(), 1)
    valkey.admin.flushall()
    assert await two.one.report(two.report(mine.claim, "down")) == [Outcome(False, "", 0)]


async def test_what_was_reported_goes_on_with_the_next_claim(two: Two, valkey: Valkey) -> None:
    [mine] = await two.one.claim(two.ask(hold=60), 1)
    await two.one.report(two.report(mine.claim, "up", 2))
    [theirs] = await two.other.claim(two.ask("down", 0), 1)
    assert (theirs.claim, theirs.state, theirs.run) == (0, "up", 2)


@pytest.mark.parametrize(
    ("kept", "seen", "taken"),
    [
        pytest.param("1 up 2", ("down", 0), ("down", 0), id="Redis has lost it: what was seen meanwhile is newer"),
        pytest.param("1 down 1", ("unknown", 1), ("down", 1), id="an unknown state does not contradict it"),
        pytest.param(None, ("down", 1), ("down", 1), id="Redis lost it"),
        pytest.param("9 unknown 2", ("unknown", 0), ("unknown", 2), id="the count goes on"),
        pytest.param("1 unknown 2", ("up", 0), ("up", 0), id="something is better than nothing"),
        pytest.param("nonsense", ("up", 1), ("up", 1), id="another program wrote there"),
    ],
)
async def test_whose_word_holds_when_a_check_is_taken_up(
    two: Two, valkey: Valkey, kept: str | None, seen: tuple[str, int], taken: tuple[str, int]
) -> None:
    if kept is not None:
        valkey.admin.set(keys.health_key(MEMBER, CHECK), kept)
    [answer] = await two.one.claim(two.ask(*seen), 1)
    assert answer.claim
    assert (answer.state, answer.run) == taken


@pytest.mark.parametrize(("kept", "taken"), [("down 1", ("down", 1)), ("unknown 2", ("up", 0))])
async def test_what_was_kept_lately_wins_over_what_the_next_one_believes_if_it_is_anything(
    two: Two, valkey: Valkey, kept: str, taken: tuple[str, int]
) -> None:
    seconds, _ = valkey.admin.time()
    valkey.admin.set(keys.health_key(MEMBER, CHECK), f"{seconds * 1000 - 1000} {kept}")
    [answer] = await two.one.claim(two.ask("up", hold=60), 1)
    assert (bool(answer.claim), answer.state, answer.run) == (True, *taken)


async def test_a_key_of_another_type_is_taken_over(two: Two, valkey: Valkey) -> None:
    valkey.admin.sadd(keys.health_key(MEMBER, CHECK), "x")
    [answer] = await two.one.claim(two.ask(), 1)
    assert await two.one.report(two.report(answer.claim, "up")) == [Outcome(True, "up", 0)]


async def test_no_instance_is_given_more_than_it_has_room_for(two: Two) -> None:
    asks = [Ask(f"10.0.0.{number}:80", CHECK, "unknown", 0, 60.0) for number in range(1, 6)]
    assert [bool(each.claim) for each in await two.one.claim(asks, 2)] == [True, True, False, False, False]
    assert [bool(each.claim) for each in await two.other.claim(asks, 9)] == [False, False, True, True, True]
    assert [bool(each.claim) for each in await two.other.claim(asks, -3)] == [False] * 5


async def test_a_redis_that_is_gone_is_a_named_error(two: Two, valkey: Valkey) -> None:
    valkey.kill()
    with pytest.raises(RedisUnavailable):
        await two.one.claim(two.ask(), 1)
    with pytest.raises(RedisUnavailable):
        await two.one.report(two.report(1, "up"))


async def test_the_rules_of_the_acl_are_enough(valkey: Valkey) -> None:
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    connection = Connection(
        valkey.url.replace("unix://", "unix://slb:pw@"), Metrics(), command_deadline=patience(0.5)
    )
    await connection.probe()
    received: list[tuple[str, str, int]] = []
    news = asyncio.create_task(HealthNews(connection).run(lambda *news: received.append(news)))
    await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == 1)
    store = HealthStore(connection)
    [mine] = await store.claim(Two.ask(), 1)
    await store.report(Two.report(mine.claim, "down", 0))
    await eventually(lambda: received == [(keys.health_key(MEMBER, CHECK), "down", 0)])
    for nonsense in ("", "x", "a b c", "key down 99999999999", "key down ²"):
        admin.publish(keys.HEALTH_CHANNEL, nonsense)
    admin.publish(keys.HEALTH_CHANNEL, "key up 1")
    await eventually(lambda: received[1:] == [("key", "up", 1)])
    news.cancel()
    await asyncio.wait([news])
    await connection.aclose()


async def test_where_an_acl_forbids_messages_reports_count_and_are_read_with_the_next_ask(valkey: Valkey) -> None:
    rules = [rule for rule in acl_rules() if not rule.startswith("&")]
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "reset", "on", ">pw", *rules)
    two = Two(valkey.url.replace("unix://", "unix://slb:pw@"))
    [mine] = await two.one.claim(two.ask(), 1)
    assert await two.one.report(two.report(mine.claim, "down")) == [Outcome(True, "down", 0)]
    [known] = await two.other.claim(two.ask(), 1)
    assert known.state == "down"
    assert {(entry["reason"], entry["object"]) for entry in admin.acl_log()} == {("channel", keys.HEALTH_CHANNEL)}
    for connection in two.connections:
        await connection.aclose()
