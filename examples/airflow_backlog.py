"""A DAG that drains a backlog of prompts through slb's quota router.

    slb serve --roles quota --api 127.0.0.1:8081
    python examples/airflow_backlog.py --router http://127.0.0.1:8081

In Airflow a `Worker` is one mapped task instance, `Dag` the task that sizes the mapping, `Backlog` the table of
prompts in PostgreSQL. A worker has a few prompts in hand at once. What is admitted at the same moment for the same
model goes to the Models Backend as one micro-batch: its size is what the quota has room for, not a fixed ten. How
many workers there are follows the router's /advice.

The Models Backend is emulated here, and its models' limits are put into the router first.
"""

import argparse
import asyncio
import logging
import math
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from aiohttp import ClientError, ClientSession

from slb.quota.client import CallRefused, Persistence, Router, RouterUnreachable

CHARACTERS_PER_TOKEN = 4
EXPECTED_ANSWER = 150
"""Tokens. A better guess leaves less of the quota unused while a call runs."""

GATHER_SECONDS = 0.05
"""What is admitted within so long goes into one micro-batch."""


@dataclass(frozen=True)
class Prompt:
    """One row of the backlog."""

    number: int
    text: str

    @property
    def estimated_tokens(self) -> int:
        return len(self.text) // CHARACTERS_PER_TOKEN + EXPECTED_ANSWER


@dataclass(frozen=True)
class Answer:
    """`tokens`: what the call came to, prompt and answer together."""

    text: str
    tokens: int


BatchEndpoint = Callable[[str, Sequence[Prompt]], Awaitable[list[Answer]]]
"""Of the Models Backend: a model and prompts; it answers when all are answered."""


@dataclass
class Backlog:
    """What is not solved yet, and what is."""

    unsolved: deque[Prompt]
    answers: dict[int, Answer] = field(default_factory=dict)


class MicroBatches:
    """Calls of one worker, gathered by model."""

    def __init__(self, batch: BatchEndpoint) -> None:
        self._batch = batch
        self._gathering: dict[str, list[tuple[Prompt, asyncio.Future[Answer]]]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.sizes: Counter[int] = Counter()

    async def answer(self, model: str, prompt: Prompt) -> Answer:
        """This prompt's answer, out of the micro-batch it came into."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if model not in self._gathering:
            self._gathering[model] = []
            sending = asyncio.create_task(self._send(model))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        self._gathering[model].append((prompt, answered))
        return await answered

    async def _send(self, model: str) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        gathered = [each for each in self._gathering.pop(model) if not each[1].done()]
        if not gathered:
            return  # all have left meanwhile
        self.sizes[len(gathered)] += 1
        outcomes: Sequence[Answer | Exception]
        try:
            outcomes = await self._batch(model, [prompt for prompt, _ in gathered])
        except Exception as error:  # noqa: BLE001 - it is told to everybody who waits for it
            outcomes = [error] * len(gathered)
        for (_, answered), outcome in zip(gathered, outcomes, strict=True):
            if not answered.done():
                settle(answered, outcome)


def settle(answered: asyncio.Future[Answer], outcome: Answer | Exception) -> None:
    if isinstance(outcome, Exception):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)


@dataclass(frozen=True)
class Plan:
    """Of the DAG: prompts a worker has in hand, seconds between two looks at /advice, and the seconds after which
    workers take nothing new, so that Airflow's timeout finds none of them at work."""

    in_hand: int = 5
    look: float = 5.0
    working: float = 1500.0


class OutOfTime(Exception):
    """The run is over, and nothing was admitted for this prompt yet."""


class Worker:
    """Solves prompts until there are none, its time is up, or it is not wanted any more. `models` are those that
    will do: the router may know others."""

    def __init__(
        self, router: Router, models: Sequence[str], batches: MicroBatches, backlog: Backlog, until: float
    ) -> None:
        self._router = router
        self._models = models
        self._batches = batches
        self._backlog = backlog
        self._until = until
        self.wanted = True

    async def run(self, in_hand: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(in_hand):
                group.create_task(self._work())

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        while self.wanted and self._backlog.unsolved and clock() < self._until:
            prompt = self._backlog.unsolved.popleft()
            try:
                await self._solve(prompt)
            except BaseException as error:
                self._backlog.unsolved.append(prompt)  # the next run begins it again
                if not isinstance(error, OutOfTime):
                    raise

    async def _solve(self, prompt: Prompt) -> None:
        try:
            async with asyncio.timeout_at(self._until):  # a wait may be longer than what is left of this run
                admitted = await self._router.admit(prompt.estimated_tokens, self._models)
        except TimeoutError:
            raise OutOfTime from None
        async with admitted as task:
            answer = await self._batches.answer(task.model_backend_id, prompt)
            task.actual_tokens = answer.tokens
        self._backlog.answers[prompt.number] = answer


class Dag:
    """One run after another until the backlog is empty."""

    def __init__(
        self, router: Router, models: Sequence[str], batch: BatchEndpoint, backlog: Backlog, plan: Plan
    ) -> None:
        self._router = router
        self._models = models
        self._batches = MicroBatches(batch)
        self._backlog = backlog
        self._plan = plan
        self.sizes = self._batches.sizes
        self.most_workers = 0

    async def drain(self) -> None:
        while self._backlog.unsolved:
            until = asyncio.get_running_loop().time() + self._plan.working
            async with asyncio.TaskGroup() as group:
                await self._resize(group, until)

    async def _resize(self, group: asyncio.TaskGroup, until: float) -> None:
        """As many workers as are advised, until nothing is left to begin."""
        running: dict[asyncio.Task[None], Worker] = {}
        while self._backlog.unsolved and asyncio.get_running_loop().time() < until:
            advice = await self._router.advice()
            wanted = math.ceil(advice.suggested_parallelism / self._plan.in_hand)
            running = {task: worker for task, worker in running.items() if not task.done() and worker.wanted}
            for worker in list(running.values())[wanted:]:
                worker.wanted = False  # it ends what it has in hand
            for _ in range(wanted - len(running)):
                worker = Worker(self._router, self._models, self._batches, self._backlog, until)
                running[group.create_task(worker.run(self._plan.in_hand))] = worker
            self.most_workers = max(self.most_workers, len(running))
            if running:
                await asyncio.wait(running, timeout=self._plan.look)
            else:  # no model may be used just now
                await asyncio.sleep(self._plan.look)


# -- what stands in for the Models Backend


@dataclass(frozen=True)
class Model:
    """`seconds` for a token of its answers."""

    seconds: float
    max_tokens_per_minute: int
    max_concurrent_requests: int
    weight: int


MODELS = {
    "quick": Model(0.002, 120_000, 8, 6),
    "steady": Model(0.005, 60_000, 8, 3),
    "thorough": Model(0.02, 20_000, 4, 1),
}


class EmulatedBackend:
    """Answers of random lengths; a batch takes as long as its slowest call."""

    def __init__(self, models: Mapping[str, Model], hurry: float, rng: Random) -> None:
        self._models = models
        self._hurry = hurry
        self._rng = rng

    async def batch(self, model: str, prompts: Sequence[Prompt]) -> list[Answer]:
        return await asyncio.gather(*(self._call(self._models[model], prompt) for prompt in prompts))

    async def _call(self, model: Model, prompt: Prompt) -> Answer:
        length = 1 + round(self._rng.expovariate(1 / EXPECTED_ANSWER))
        await asyncio.sleep(length * model.seconds / self._hurry)
        return Answer("x" * length, len(prompt.text) // CHARACTERS_PER_TOKEN + length)


async def put_models(url: str, models: Mapping[str, Model], hurry: float, token: str | None) -> None:
    """Tell the router what the models' limits are."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with ClientSession(headers=headers, raise_for_status=True) as session:
        for name, model in models.items():
            limits = {
                "max_tokens_per_minute": round(model.max_tokens_per_minute * hurry),
                "max_concurrent_requests": model.max_concurrent_requests,
                "weight": model.weight,
            }
            async with session.put(f"{url.rstrip('/')}/models/{name}", json=limits):
                pass


def prompts(count: int, rng: Random) -> deque[Prompt]:
    return deque(Prompt(number, "word " * rng.randrange(20, 600)) for number in range(count))


async def main(router: Router, given: argparse.Namespace) -> None:
    rng, count, hurry = Random(given.seed), given.prompts, given.hurry
    await put_models(given.router[0], MODELS, hurry, given.token)
    backlog = Backlog(prompts(count, rng))
    async with router:
        batch = EmulatedBackend(MODELS, hurry, rng).batch
        dag = Dag(router, list(MODELS), batch, backlog, Plan(look=max(0.5, 5 / hurry)))
        begun = asyncio.get_running_loop().time()
        await dag.drain()
    took = asyncio.get_running_loop().time() - begun
    calls = sum(dag.sizes.values())
    print(
        f"{len(backlog.answers)} of {count} prompts solved in {took:.1f} s, by at most {dag.most_workers} workers"
    )
    print(f"{calls} micro-batches of {count / calls:.1f} on average, {max(dag.sizes)} at most")


def at_least_one(written: str) -> int:
    number = int(written)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def more_than_nothing(written: str) -> float:
    number = float(written)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{written} is no number above 0")
    return number


def first_of(errors: BaseExceptionGroup) -> BaseException:
    """Many prompts meet the same fault at once."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--router", action="append", help="API address of an instance; may be given several times")
    parser.add_argument("--prompts", type=at_least_one, default=300)
    parser.add_argument(
        "--hurry", type=more_than_nothing, default=1.0, help="limits and calls so many times as fast"
    )
    parser.add_argument("--token", help="the router's API token")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=more_than_nothing, default=60.0, help="seconds the routers may be away")
    given = parser.parse_args()
    given.router = given.router or ["http://127.0.0.1:8081"]
    try:
        router = Router.at(given.router, token=given.token, persistence=Persistence(patience=given.patience))
    except ValueError as error:
        parser.error(f"argument --router: {error}")
    logging.basicConfig(level=logging.ERROR)  # tasks that could not be completed come back by their leases
    fault = None
    try:
        asyncio.run(main(router, given))
    except* (ClientError, TimeoutError, RouterUnreachable, CallRefused) as errors:
        fault = first_of(errors)
    if fault is not None:
        sys.exit(f"airflow_backlog: {fault or type(fault).__name__}")
