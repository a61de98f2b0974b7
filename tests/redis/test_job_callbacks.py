"""Callbacks with a real Valkey and real receivers: each is delivered, once where nothing dies."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import orjson
import pytest
from aiohttp import web

from slb.addresses import AddressRules, CallbackRules
from slb.control import keys
from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.control.job_replies import Pulse
from slb.control.jobs import JobLane
from slb.job import JobShown, Submission
from slb.jobs.callbacks import Callbacks
from slb.jobs.posting import Posting
from slb.jobs.webhook import headers_of, id_of
from slb.observe.jobs import JobCounts
from slb.observe.metrics import Metrics
from tests.support.receiver import Receiver
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

MODEL = "flux"
QUICK = AskTiming(beat=0.05, deadline=5.0, backoff=0.02)
LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
KEY = b"k" * 24


class Calm(Random):
    """No jitter."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def body_of(job: JobShown) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "job_id": job.id,
        "status": job.state,
        "attempts": job.attempts,
        "callback_attempts": job.callback_attempts,
    }
    return {**shown, "result": orjson.Fragment(job.result)} if job.result else shown


class Sender:
    """One instance: a lane, and what sends its callbacks."""

    def __init__(self, connection: Connection, name: str, hold: float, timing: AskTiming) -> None:
        self.rules = CallbackRules((LOOPBACK,), AddressRules((), lambda: ()))
        self.counts = JobCounts()
        self.callbacks = Callbacks(
            Posting(self.rules), body_of, (KEY,), self.counts, Calm(), clock=lambda: self.now, hold=hold
        )
        self.lane = JobLane(connection, MODEL, name, lambda: (), self._pulse, timing)
        self.now = 0.0
        self.tasks: list[asyncio.Task[None]] = []

    def _pulse(self, pulse: Pulse) -> None:
        self.callbacks.pulse(self.lane, pulse)

    def start(self) -> None:
        self.tasks = [asyncio.create_task(self.lane.run()), asyncio.create_task(self.callbacks.run())]

    async def stop(self) -> None:
        await self.callbacks.leave(0.0)
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    async def end(self, id_: str, url: str, move: str = "complete", text: bytes = b'{"image":"x"}') -> None:
        """Submit a job and end it."""
        written = orjson.dumps({"payload": 1, "callback_url": url})
        await self.lane.submit(Submission(MODEL, id_, "normal", "same".ljust(32), written, 0, True))
        job = await self.lane.claim("10.0.0.1:80")
        assert job is not None
        assert await self.lane.finish(job, move, text)

    async def shown(self, id_: str) -> JobShown:
        found = await self.lane.show(id_)
        assert found is not None
        return found

    def outcomes(self) -> dict[str, int]:
        return {outcome: count for (_, outcome), count in self.counts.callbacks.items()}


Start = Callable[..., Sender]
Listen = Callable[..., Any]


@pytest.fixture
async def start(valkey: Valkey) -> AsyncIterator[Start]:
    """Makes instances that send callbacks, until the test's end."""
    async with AsyncExitStack() as stack:

        def make(name: str = "a", hold: float = 60.0, timing: AskTiming = QUICK) -> Sender:
            connection = Connection(valkey.url, Metrics())
            stack.push_async_callback(connection.aclose)
            sender = Sender(connection, name, hold, timing)
            sender.start()
            stack.push_async_callback(sender.stop)
            return sender

        yield make


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Makes receivers with these answers."""
    async with AsyncExitStack() as stack:

        async def make(*answers: Any) -> Receiver:
            receiver = await Receiver(*answers).start()
            stack.push_async_callback(receiver.stop)
            return receiver

        yield make


def due_at_once(valkey: Valkey, id_: str) -> None:
    """Let the callback's pause be over."""
    valkey.admin.zadd(keys.job_keys(MODEL)[14], {id_: 1}, xx=True)


def pause(valkey: Valkey, id_: str) -> float:
    """Seconds until it is due."""
    seconds, micros = valkey.admin.time()
    score = valkey.admin.zscore(keys.job_keys(MODEL)[14], id_)
    assert score is not None
    return score / 1000 - seconds - micros / 1e6


async def test_a_callback_is_delivered_signed_and_once(start: Start, listen: Listen) -> None:
    sender, receiver = start(), await listen(200)
    sender.now = 1_700_000_000.9
    await sender.end("one", receiver.url)
    await eventually(lambda: sender.outcomes() == {"delivered": 1})
    (received,) = receiver.received
    assert received.job == {
        "job_id": "one",
        "status": "completed",
        "attempts": 1,
        "callback_attempts": 0,
        "result": {"image": "x"},
    }
    signed = headers_of(id_of(await sender.shown("one")), 1_700_000_000, received.body, (KEY,))
    assert {name: received.headers[name] for name in signed} == signed
    await eventually(lambda: not sender.callbacks._tasks)
    shown = await sender.shown("one")
    assert (shown.callback_attempts, shown.callback_error) == (1, "")
    assert (await sender.lane.stats()).callbacks == 0


async def test_a_receiver_that_fails_is_told_again_with_the_same_body(
    start: Start, listen: Listen, valkey: Valkey
) -> None:
    sender = start()
    later = web.Response
    receiver = await listen(500, lambda: later(status=503, headers={"Retry-After": "100"}), 200)
    await sender.end("one", receiver.url, "give_up", b"out of memory")
    sender.now = (await sender.shown("one")).ended
    await eventually(lambda: sender.outcomes() == {"failed": 1} and not sender.callbacks._tasks)
    shown = await sender.shown("one")
    assert (shown.callback_attempts, shown.callback_error) == (1, "status 500")
    assert 0 < pause(valkey, "one") <= 5
    due_at_once(valkey, "one")
    await eventually(lambda: sender.outcomes() == {"failed": 2} and not sender.callbacks._tasks)
    assert 50 < pause(valkey, "one") <= 100
    due_at_once(valkey, "one")
    await eventually(lambda: sender.outcomes() == {"failed": 2, "delivered": 1})
    assert len({each.body for each in receiver.received}) == 1
    assert len(receiver.received) == 3
    await eventually(lambda: not sender.callbacks._tasks)
    assert (await sender.shown("one")).callback_attempts == 3


async def test_each_end_of_a_revived_job_has_an_id_of_its_own_however_often_it_is_told(
    start: Start, listen: Listen, valkey: Valkey
) -> None:
    sender, receiver = start(), await listen(500, 200, 200)
    await sender.end("one", receiver.url, "give_up", b"out of memory")
    sender.now = (await sender.shown("one")).ended
    await eventually(lambda: sender.outcomes() == {"failed": 1} and not sender.callbacks._tasks)
    due_at_once(valkey, "one")
    await eventually(lambda: sender.outcomes() == {"failed": 1, "delivered": 1} and not sender.callbacks._tasks)
    assert await sender.lane.revive("one")
    job = await sender.lane.claim("10.0.0.1:80")
    assert job is not None
    assert await sender.lane.finish(job, "complete", b"1")
    await eventually(lambda: sender.outcomes() == {"failed": 1, "delivered": 2})
    first, again, second = (each.headers["webhook-id"] for each in receiver.received)
    assert first == again != second
    assert {each.rpartition(":")[0] for each in (first, second)} == {"one"}


async def test_a_receiver_that_is_gone_is_told_no_more(start: Start, listen: Listen) -> None:
    sender, receiver = start(), await listen(410)
    await sender.end("one", receiver.url)
    await eventually(lambda: sender.outcomes() == {"given_up": 1} and not sender.callbacks._tasks)
    assert (await sender.shown("one")).callback_error == "status 410"
    assert (await sender.lane.stats()).callbacks == 0
    assert (await sender.lane.stats()).counts["undelivered"] == 1


async def test_a_day_after_the_jobs_end_it_is_given_up(start: Start, listen: Listen) -> None:
    sender, receiver = start(), await listen(500)
    sender.now = 1e11
    await sender.end("one", receiver.url)
    await eventually(lambda: sender.outcomes() == {"given_up": 1} and not sender.callbacks._tasks)
    assert (await sender.lane.stats()).callbacks == 0


async def test_an_address_that_is_not_listed_is_refused_until_it_is(
    start: Start, listen: Listen, valkey: Valkey
) -> None:
    sender, receiver = start(), await listen(200)
    sender.rules.networks = ()
    await sender.end("one", receiver.url)
    await eventually(lambda: sender.outcomes() == {"failed": 1} and not sender.callbacks._tasks)
    assert "is not public" in (await sender.shown("one")).callback_error
    assert receiver.received == []
    sender.rules.networks = (LOOPBACK,)
    due_at_once(valkey, "one")
    await eventually(lambda: receiver.ids() == ["one"])


async def test_two_instances_deliver_each_callback_once(start: Start, listen: Listen) -> None:
    one, other, receiver = start("one"), start("other"), await listen(200)
    ids = [f"job{number}" for number in range(100)]
    for id_ in ids:
        await one.end(id_, receiver.url)

    def delivered() -> int:
        return sum(each.outcomes().get("delivered", 0) for each in (one, other))

    await eventually(lambda: delivered() == 100 and not one.callbacks._tasks and not other.callbacks._tasks)
    assert Counter(receiver.ids()) == Counter(ids)
    assert (await one.lane.stats()).callbacks == 0


async def test_what_a_dead_instance_was_delivering_another_one_does(start: Start, listen: Listen) -> None:
    one, receiver = start("one", hold=0.5), await listen(None, 200)
    await one.end("job", receiver.url)
    await eventually(lambda: len(receiver.received) == 1)
    await one.stop()
    other = start("other")
    await eventually(lambda: other.outcomes() == {"delivered": 1})
    assert receiver.ids() == ["job", "job"]


async def test_what_is_due_while_all_deliveries_are_busy_is_sent_afterwards(start: Start, listen: Listen) -> None:
    """Without a look at Redis for its own sake."""
    sender = start(timing=AskTiming(beat=3600.0, deadline=5.0))
    receiver = await listen(200, *[None] * 64, 200)
    await sender.end("first", receiver.url)  # it is no stranger then
    await eventually(lambda: sender.outcomes() == {"delivered": 1})
    receiver.received.clear()
    ids = [f"job{number}" for number in range(80)]
    for id_ in ids:
        await sender.end(id_, receiver.url)
    await eventually(lambda: len(receiver.received) == 64)
    assert (await sender.lane.stats()).callbacks == 80
    receiver.let_go()
    await eventually(lambda: sorted(set(receiver.ids())) == sorted(ids))
    await eventually(lambda: sum(sender.outcomes().values()) == 81)


async def test_an_outcome_that_redis_did_not_take_is_written_when_it_is_back(
    start: Start, listen: Listen, valkey: Valkey
) -> None:
    # with everysec a write waits while the disk is slow, and the kill loses it: the callback would be due once more
    valkey.admin.config_set("appendfsync", "always")
    sender, receiver = start(), await listen(None)
    await sender.end("one", receiver.url)
    await eventually(lambda: len(receiver.received) == 1)
    valkey.kill()
    await eventually(lambda: not sender.lane.up)
    receiver.let_go(200)
    await eventually(lambda: sender.outcomes() == {"delivered": 1})
    valkey.start()
    await eventually(lambda: not sender.callbacks._tasks)
    shown = await sender.shown("one")
    assert (shown.callback_attempts, shown.callback_error) == (1, "")
    assert len(receiver.received) == 1


async def test_a_callback_that_slb_fails_at_is_sent_again_by_the_schedule(
    start: Start, listen: Listen, valkey: Valkey
) -> None:
    sender, receiver = start(), await listen(200)
    sender.callbacks._shown = lambda job: object()  # nothing that JSON has
    await sender.end("one", receiver.url)
    await eventually(lambda: sender.outcomes() == {"failed": 1} and not sender.callbacks._tasks)
    assert (await sender.shown("one")).callback_error.startswith("slb failed: ")
    assert pause(valkey, "one") > 0
