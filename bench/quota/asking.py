"""What the lab puts between the caller's library and a router: simulated routers, the network, and the book."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from redis import Redis

from bench.errors import BenchError
from bench.quota.book import Book, Entry
from bench.quota.script import Script
from bench.quota.work import Model
from slb.quota.asking import Asking
from slb.quota.script import advice_of, decision_of, row_of
from slb.quotas import Admitted, Denied, Limits, Rules, Wait

JITTER = 1000
SWEEP_SECONDS = 1.0


class Simulated:
    """All instances of a router with their Redis, as one: slb's script itself, by the loop's clock."""

    def __init__(self, models: Sequence[Model], redis: Redis, rng: Random) -> None:
        self._rules = Rules()
        self._script = Script(redis, self._rules)
        limits = {each.name: Limits(each.limit, each.slots, each.weight, each.burst) for each in models}
        self._script.ask(0, *(["put", name, *row_of(each)] for name, each in limits.items()))
        self._rng = rng
        self._tasks = 0

    def open(self) -> None:
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        self._sweeping.cancel()
        await asyncio.wait([self._sweeping])

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        asked: Mapping[str, Any] = body or {}
        match path:
            case "/schedule":
                return self._schedule(asked)
            case "/complete":
                (state,) = self._one("complete", asked["task_id"], asked.get("actual_tokens", -1))
                return {"state": state}
            case "/heartbeat":
                return {"ok": self._one("heartbeat", asked["task_id"]) == ["running"]}
            case "/advice":
                score, parallelism = advice_of(self._one("advice"))
                return {"backpressure_score": score, "suggested_parallelism": parallelism}
        raise BenchError(f"the simulation has no {method} {path}")

    def _schedule(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self._tasks += 1
        estimate, models, key = asked["estimated_tokens"], asked.get("models"), asked.get("idempotency_key", "")
        jitter, named = self._rng.randrange(JITTER + 1), sorted(models) if models is not None else False
        decision = decision_of(self._one("schedule", f"t{self._tasks}", estimate, jitter, key, named))
        match decision:
            case Admitted(model, task):
                return {"model_backend_id": model, "task_id": task, "lease_ttl_ms": self._rules.lease}
            case Wait(milliseconds):
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


class Around:
    """Asks another."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def open(self) -> None:
        self._asking.open()

    async def close(self) -> None:
        await self._asking.close()


class Recorded(Around):
    """Writes into `book` what a router was asked, and what it answered, in seconds since it was opened."""

    def __init__(self, asking: Asking, book: Book) -> None:
        super().__init__(asking)
        self._book = book
        self._tasks: dict[str, Entry] = {}
        self._waited: set[str] = set()

    def open(self) -> None:
        self._begun = asyncio.get_running_loop().time()
        super().open()

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        asked = self._since()
        answer = await self._asking.ask(method, path, body)
        if path == "/schedule" and body is not None:
            self._scheduled(body, answer, asked, self._since())
        elif path == "/complete" and body is not None and (entry := self._tasks.pop(body["task_id"], None)):
            entry.ended, entry.actual = asked, body.get("actual_tokens")
        return answer

    def _scheduled(self, body: Mapping[str, Any], answer: Mapping[str, Any], asked: float, now: float) -> None:
        key, admitted = body["idempotency_key"], "task_id" in answer
        if key in self._waited:
            self._book.came_back.append((asked, admitted))
            self._waited.discard(key)
        if admitted:
            entry = Entry(answer["model_backend_id"], body["estimated_tokens"], asked, now)
            self._tasks[answer["task_id"]] = self._book.enter(entry)
        else:
            self._waited.add(key)
            self._book.waits.append(answer["wait_for_ms"])

    def _since(self) -> float:
        return asyncio.get_running_loop().time() - self._begun


class Distant(Around):
    """A router that is so many seconds away, there and back."""

    def __init__(self, asking: Asking, seconds: float) -> None:
        super().__init__(asking)
        self._half = seconds / 2

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        await asyncio.sleep(self._half)
        answer = await self._asking.ask(method, path, body)
        await asyncio.sleep(self._half)
        return answer
