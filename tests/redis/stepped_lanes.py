"""Lanes of several instances on one real Valkey, whose calls are run, answered and cut, and whose messages come,
when the test runs them. Time stands still for them."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ConnectionError as Cut

from slb.balance.asking import Turn
from slb.control import keys
from slb.control.connection import Connection
from slb.control.granted import Granted, read_granted
from slb.control.lane import Lane
from slb.control.lane_timing import LaneTiming
from slb.control.script_line import ScriptLine
from slb.control.scripts import Reap, ledger_source
from slb.control.wire import OnReply
from slb.observe.metrics import Metrics
from tests.redis.ledger_rig import POOL, Books, Request, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import patience

LONG = 600.0
STILL = LaneTiming(
    *(LONG,) * 4,
    life=LONG,
    look=LONG,
    patience=LONG + 60,
    settle=LONG,
    deadline=LONG,
    backoff=0.0,
    longest_backoff=0.0,
)
TURN = Turn("", 1, 1000)
MOST_ROUNDS = 20
LAPSED = int(1000 * STILL.patience) + 1


@dataclass
class Call:
    """One whose reply a lane expects. `reply`: once it has been run; `is_answered`: it has come."""

    args: Any
    on_reply: OnReply
    reply: Any = None
    is_answered: bool = False

    def answer(self, reply: Any) -> None:
        """It comes, or an error in its place."""
        self.is_answered = True
        self.on_reply(reply)


class SteppedLine(ScriptLine):
    """`call_under_way`: the last one."""

    is_cut = False

    def __init__(self) -> None:
        self.call_under_way: Call | None = None

    def send(self, keys: Any, args: Any, on_reply: OnReply) -> None:
        self.call_under_way = Call(args, on_reply)

    def drop(self) -> None:
        self.call_under_way = None


@dataclass
class Instance:
    """`requests`: those that wait; `running`: those that have a slot, and its member; `messages`: on their way to
    it; `taken`: grants it took from these; `late`: those of them that it acknowledged too late."""

    name: str
    lane: Lane
    line: SteppedLine
    requests: list[Request] = field(default_factory=list)
    running: list[tuple[Request, str]] = field(default_factory=list)
    messages: list[Granted] = field(default_factory=list)
    taken: int = 0
    late: int = 0

    @property
    def awaits(self) -> Call | None:
        """The call that has not been answered."""
        call = self.line.call_under_way
        return call if call is not None and not call.is_answered else None


class Fleet:
    """Use with `async with`. `capacity` of each of `members`."""

    def __init__(self, valkey: Valkey, count: int, members: int, capacity: int) -> None:
        self.books = Books(valkey)
        self._redis = self.books.redis
        self._ledger = self._redis.register_script(ledger_source())
        self._connection = Connection(valkey.url, Metrics())
        self._messages = self._redis.pubsub()
        self.candidates = upstreams(members, capacity)
        self.capacity = capacity
        self.instances = [self._instance(f"i{number}") for number in range(count)]
        self._tasks: list[asyncio.Task[None]] = []

    def _instance(self, name: str) -> Instance:
        line = SteppedLine()

        def late(grants: int) -> None:
            made.late += grants

        lane = Lane(POOL, line, lambda: f"{name}-1", 0, STILL, lambda _: None, lambda: None, late)
        made = Instance(name, lane, line)
        return made

    async def __aenter__(self) -> "Fleet":
        self._messages.psubscribe(keys.GRANTED_CHANNEL + "*")
        self._tasks = [asyncio.create_task(each.lane.run()) for each in self.instances]
        await self.come_to_rest()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.aclose()
        self._messages.close()

    # -- what may happen

    async def ask(self, one: Instance) -> None:
        """One more request, that may wait."""
        request = Request(self.candidates, TURN, patient=True)
        one.requests.append(request)
        one.lane.view(POOL, self.candidates)
        one.lane.ask(request)
        await self.turn()

    async def end(self, one: Instance, index: int) -> None:
        """A request that has a slot ends."""
        _, member = one.running.pop(index % len(one.running))
        one.lane.release(member)
        await self.turn()

    async def leave(self, one: Instance, index: int) -> None:
        """One that has none yet leaves."""
        one.lane.leave(one.requests.pop(index % len(one.requests)))
        await self.turn()

    async def run(self, one: Instance) -> None:
        """Redis runs the call that is under way; what it publishes is on its way."""
        call = one.awaits
        if call is not None and call.reply is None:
            call.reply = self._ledger(keys=keys.pool_keys(POOL), args=call.args)
            self._listen()

    async def answer(self, one: Instance) -> None:
        """Its reply arrives."""
        call = one.awaits
        if call is not None and call.reply is not None:
            call.answer(call.reply)
        await self.turn()

    async def cut(self, one: Instance) -> None:
        """The connection breaks, whether the call that is under way has been run or not."""
        if one.awaits is not None:
            one.awaits.answer(Cut("cut"))
        await self.turn()

    async def receive(self, one: Instance, index: int, again: bool) -> None:
        """One of the messages arrives, and maybe `again` later."""
        index, before = index % len(one.messages), one.lane.held.total()
        one.lane.receive(one.messages[index] if again else one.messages.pop(index))
        one.taken += one.lane.held.total() - before
        await self.turn()

    async def lose(self, one: Instance, index: int) -> None:
        """One of them never does."""
        one.messages.pop(index % len(one.messages))

    async def look(self, one: Instance) -> None:
        one.lane.look()
        await self.turn()

    async def beat(self, one: Instance, full: bool) -> None:
        """What it holds is sent."""
        if full:
            one.lane.send_all()
        one.lane.slots.builder.beat_due = 0.0
        one.lane.wake()
        await self.turn()

    async def lapse(self) -> None:
        """So much time passes that no grant stands any more that is not taken up: all messages are as old by now.
        What has been taken has been acknowledged by then, for no call takes that long."""
        if any(each.lane.slots.builder._taken for each in self.instances):
            return
        for each in self.instances:
            each.messages = [message._replace(at=message.at - LAPSED) for message in each.messages]
        await self.reap(patience=-1)

    async def reap(self, patience: int) -> None:
        """Grants that are older, in milliseconds, go back."""
        self._redis.delete(self.books.key["reaped"])
        await Reap(self._connection)(POOL, int(LONG) * 1000, reap_until=0, patience=patience, period=1)
        self._listen()

    # -- and what comes of it

    def _listen(self) -> None:
        self._messages.ping("all")
        while (message := self._messages.get_message(timeout=patience(10)))["type"] != "pong":
            if message["type"] == "pmessage":
                granted = read_granted(message["data"])
                assert granted is not None
                name = message["channel"].removeprefix(keys.GRANTED_CHANNEL)
                next(each for each in self.instances if each.name == name).messages.append(granted)

    async def turn(self) -> None:
        """Let lanes do what they can without Redis."""
        for _ in range(12):
            await asyncio.sleep(0)
        for each in self.instances:
            for request in [request for request in each.requests if request.answer.done()]:
                each.requests.remove(request)
                each.running.append((request, request.answer.result()))

    async def come_to_rest(self) -> None:
        """Run and answer calls until no lane has anything to send."""
        while True:
            await self.turn()
            busy = [each for each in self.instances if each.awaits is not None]
            if not busy:
                return
            for each in busy:
                await self.run(each)
                await self.answer(each)

    async def have_all_looked(self) -> None:
        """Until nothing stands granted that its lane has not received: what one gives back goes to the next."""
        for _ in range(MOST_ROUNDS):
            for each in self.instances:
                await self.look(each)
            await self.come_to_rest()
            if not self.books.grants():
                return
        raise AssertionError(f"still granted: {self.books.grants()}")

    def held(self) -> Counter[str]:
        """member -> what all lanes together hold of it."""
        return sum((each.lane.held for each in self.instances), Counter[str]())
