"""Simulated time for asyncio, in which an hour of sleeping passes in no time and in the right order; and a router
in it. What runs there is the code that runs in real time."""

import asyncio
import math
import selectors
import signal
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from redis import Redis

from bench.processes import ENDING, BenchError
from bench.quota.book import Book, Entry
from bench.quota.script import Script
from bench.quota.work import Model
from slb.quota.script import advice_of, decision_of, row_of
from slb.quotas import Admitted, Denied, Limits, Rules, Wait

T = TypeVar("T")
JITTER = 1000
SWEEP_SECONDS = 1.0
NETWORK_SECONDS = 0.002  # to the router and back


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock, seconds since its making, moves only when all tasks sleep, and then to where the first
    wakes up."""

    def __init__(self, signals: list[int]) -> None:
        self.now = 0.0
        super().__init__(_Leap(self, signals))

    def time(self) -> float:
        return self.now


class _Leap(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop, signals: list[int]) -> None:
        super().__init__()
        self._loop, self._signals = loop, signals

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._signals:
            self._signals.clear()  # the loop runs once more, for tasks to end
            raise KeyboardInterrupt
        if timeout is None:
            raise BenchError("all tasks of the simulation wait for ever")
        self._loop.now += max(0.0, timeout)
        return []


def simulate(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end in simulated time, which begins at 0. A signal that would raise wherever the program is raises
    between two turns of the loop: in the midst of a task it would leave that half done."""
    signals: list[int] = []
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        with asyncio.Runner(loop_factory=lambda: SimulatedLoop(signals)) as runner:
            return runner.run(work)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Simulated:
    """All instances of a router with their Redis, as one, asked by the callers' library: slb's script itself, by
    the loop's clock, at the other end of a network. What it was asked and answered is written into `book`."""

    def __init__(self, models: Sequence[Model], redis: Redis, rng: Random, book: Book) -> None:
        self._rules, self._rng, self._book = Rules(), rng, book
        self._script = Script(redis, self._rules)
        limits = {each.name: Limits(each.limit, each.slots, each.weight, each.burst) for each in models}
        self._script.ask(0, *(["put", name, *row_of(each)] for name, each in limits.items()))
        self._asked_for = 0
        self._tasks: dict[str, Entry] = {}
        self._waited: set[str] = set()

    def open(self) -> None:
        self._begun = asyncio.get_running_loop().time()
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        self._sweeping.cancel()
        await asyncio.wait([self._sweeping])

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        await asyncio.sleep(NETWORK_SECONDS / 2)
        asked = asyncio.get_running_loop().time() - self._begun
        answer = self._answer(method, path, body or {}, asked)
        await asyncio.sleep(NETWORK_SECONDS / 2)
        return answer

    def _answer(self, method: str, path: str, body: Mapping[str, Any], now: float) -> Any:
        match path:
            case "/schedule":
                return self._schedule(body, now)
            case "/complete":
                if entry := self._tasks.pop(body["task_id"], None):
                    entry.ended, entry.actual = now, body.get("actual_tokens")
                (state,) = self._one("complete", body["task_id"], body.get("actual_tokens", -1))
                return {"state": state}
            case "/heartbeat":
                return {"ok": self._one("heartbeat", body["task_id"]) == ["running"]}
            case "/advice":
                score, parallelism = advice_of(self._one("advice"))
                return {"backpressure_score": score, "suggested_parallelism": parallelism}
        raise BenchError(f"the simulation has no {method} {path}")

    def _schedule(self, body: Mapping[str, Any], now: float) -> dict[str, Any]:
        self._asked_for += 1
        estimate, models, key = body["estimated_tokens"], body.get("models"), body.get("idempotency_key", "")
        jitter, named = self._rng.randrange(JITTER + 1), sorted(models) if models is not None else False
        decision = decision_of(self._one("schedule", f"t{self._asked_for}", estimate, jitter, key, named))
        if key in self._waited:
            self._book.came_back.append((now, isinstance(decision, Admitted)))
            self._waited.discard(key)
        match decision:
            case Admitted(model, task):
                self._tasks[task] = self._book.enter(Entry(model, estimate, now))
                return {"model_backend_id": model, "task_id": task, "lease_ttl_ms": self._rules.lease}
            case Wait(milliseconds):
                self._waited.add(key)
                self._book.waits.append(milliseconds)
                return {"wait_for_ms": milliseconds}
            case Denied(reason):
                raise BenchError(f"the router refuses {estimate:,} tokens: {reason}")
        raise AssertionError(decision)

    async def _sweep(self) -> None:
        """As instances do while no caller asks."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._script.ask(self._now())

    def _one(self, *ask: Any) -> list[Any]:
        (reply,) = self._script.ask(self._now(), list(ask))
        return list(reply)

    def _now(self) -> int:
        return math.floor(asyncio.get_running_loop().time() * 1000)
