"""Subscriptions: what they pass on and when, what ends them, and that they are made anew."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from slb.control import subscription
from slb.control.connection import Connection
from slb.control.resp import pack
from slb.control.subscription import Subscription, follow_channel
from slb.observe.metrics import Metrics
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within


@pytest.fixture
async def connected(valkey: Valkey) -> AsyncIterator[Callable[..., Connection]]:
    """Makes connections to Valkey, with any deadline."""
    async with AsyncExitStack() as stack:

        def make(url: str = valkey.url, deadline: float = 5.0) -> Connection:
            connection = Connection(url, Metrics(), command_deadline=deadline)
            stack.push_async_callback(connection.aclose)
            return connection

        yield make


def refuses_ping(valkey: Valkey) -> bool:
    """As it does once its last save has failed."""
    try:
        valkey.admin.ping()
    except ResponseError:
        return True
    return False


async def test_a_message_is_passed_on_in_the_turn_that_reads_it(
    valkey: Valkey, connected: Callable[..., Connection]
) -> None:
    """No task has to be woken for it; and none is lost between subscribing and listening."""
    found: list[tuple[str, str, bool]] = []

    def on_message(channel: str, text: str) -> None:
        found.append((channel, text, asyncio.current_task() is None))

    async with Subscription(connected(), ["one"], ["t*"]) as subscription:
        valkey.admin.publish("one", "early")
        await eventually(lambda: bool(subscription._early), what="the first")
        listening = asyncio.create_task(subscription.listen(on_message))
        await eventually(lambda: len(found) == 1, what="passed on")
        valkey.admin.publish("two", "\udcff".encode("utf-8", "surrogateescape"))
        await eventually(lambda: len(found) == 2, what="both")
        listening.cancel()
        await asyncio.wait([listening])
    assert found == [("one", "early", False), ("two", "\udcff", True)]


async def test_a_silent_connection_is_asked_and_one_that_does_not_answer_has_ended(
    valkey: Valkey, connected: Callable[..., Connection]
) -> None:
    pongs: list[None] = []
    async with Subscription(connected(deadline=0.2), ["one"], ping=0.01) as subscription:
        listening = asyncio.create_task(subscription.listen(lambda *_: None, lambda: pongs.append(None)))
        await eventually(lambda: len(pongs) > 2, what="answers")
        valkey.freeze()
        with pytest.raises(TimeoutError, match="PING"):
            await listening
        valkey.thaw()


async def test_a_process_that_stood_still_for_longer_than_the_deadline_has_its_answer(
    connected: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come meanwhile, and only has not been read."""
    pongs: list[None] = []

    def ping(*words: str) -> bytes:
        loop.call_soon(time.sleep, 0.5)
        return pack(*words)

    loop = asyncio.get_running_loop()
    async with Subscription(connected(deadline=0.2), ["one"], ping=0.01) as each:
        monkeypatch.setattr(subscription, "pack", ping)
        listening = asyncio.create_task(each.listen(lambda *_: None, lambda: pongs.append(None)))
        await eventually(lambda: len(pongs) > 2 or listening.done(), what="answers")
        listening.cancel()
        await asyncio.wait([listening])
    assert len(pongs) > 2


async def test_a_ping_that_is_refused_for_a_while_is_an_answer(
    valkey: Valkey, connected: Callable[..., Connection]
) -> None:
    pongs: list[None] = []
    async with Subscription(connected(), ["one"], ping=0.01) as subscription:
        listening = asyncio.create_task(subscription.listen(lambda *_: None, lambda: pongs.append(None)))
        (valkey.directory / "dump.rdb" / "in-the-way").mkdir(parents=True)
        valkey.admin.config_set("save", "3600 1")
        valkey.admin.bgsave()
        await eventually(lambda: refuses_ping(valkey), what="the save has failed")
        before = len(pongs)
        await eventually(lambda: len(pongs) > before + 2, what="answers")
        listening.cancel()
        await asyncio.wait([listening])


async def test_a_ping_that_is_refused_for_good_ends_it(
    valkey: Valkey, connected: Callable[..., Connection]
) -> None:
    rule = ("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all", "-ping")
    valkey.admin.execute_command(*rule)  # type: ignore[no-untyped-call]
    async with Subscription(connected(f"{valkey.url}?username=me&password=secret"), ["one"], ping=0.01) as each:
        with pytest.raises(NoPermissionError):
            async with within(5):
                await each.listen(lambda *_: None)


async def test_a_message_that_cannot_be_dealt_with_ends_listening_with_its_error(
    valkey: Valkey, connected: Callable[..., Connection]
) -> None:
    def on_message(*_: str) -> None:
        raise KeyError("of ours")

    async with Subscription(connected(), ["one"]) as subscription:
        listening = asyncio.create_task(subscription.listen(on_message))
        await asyncio.sleep(0)
        valkey.admin.publish("one", "x")
        with pytest.raises(KeyError, match="of ours"):
            await listening
        await eventually(lambda: not valkey.listeners("one"), what="closed")


async def test_a_cut_connection_and_a_refusal_end_it(valkey: Valkey, connected: Callable[..., Connection]) -> None:
    async with Subscription(connected(), ["one"]) as subscription:
        listening = asyncio.create_task(subscription.listen(lambda *_: None))
        valkey.admin.client_kill_filter(_type="pubsub")
        with pytest.raises(RedisConnectionError):
            await listening
    valkey.admin.execute_command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all")  # type: ignore[no-untyped-call]
    refused = Subscription(connected(f"{valkey.url}?username=me&password=secret"), ["one"])
    with pytest.raises(NoPermissionError):
        await refused.__aenter__()


async def test_a_channel_is_followed_again_after_the_connection_was_cut(valkey: Valkey) -> None:
    received: list[tuple[str, str]] = []
    async with Follower(valkey.url) as follower:
        hearing = asyncio.create_task(
            follow_channel(follower.connection, "slb:test", lambda *message: received.append(message), retry=0.01)
        )

        def is_received(text: str) -> bool:
            return bool(valkey.admin.publish("slb:test", text))

        await eventually(lambda: is_received("one"))
        await eventually(lambda: received == [("slb:test", "one")])
        valkey.admin.client_kill_filter(_type="pubsub")
        await eventually(lambda: is_received("two"))
        await eventually(lambda: received[1:] == [("slb:test", "two")])
        hearing.cancel()
        await asyncio.wait([hearing])
        assert hearing.cancelled()
        await eventually(lambda: not valkey.listeners("slb:test"), what="closed")
