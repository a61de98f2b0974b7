"""One call, from what the caller asks for to an answer whose body can be read."""

import asyncio
from collections import Counter
from collections.abc import Container, Coroutine, Generator
from random import Random
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientTimeout
from aiohttp.typedefs import StrOrURL

from slb.balance.retry import RetryBudgets, backoff
from slb.client.buffer import Buffer
from slb.client.choice import Chooser, Destination, Question
from slb.client.hash_key import given
from slb.client.retry import SERVER_ERROR, is_failure, may_send_again, reason_of, rest_of, was_connected
from slb.client.sending import Desk, Sending, closed_meanwhile, send_once, staying
from slb.client.target import Targets


class Calls:
    """What the calls of one session are made with. `timeout`: the session's own; None where each route's holds."""

    def __init__(
        self, chooser: Chooser, buffer: Buffer, desk: Desk, timeout: ClientTimeout | None, rng: Random
    ) -> None:
        self._chooser = chooser
        self._buffer = buffer
        self._desk = desk
        self._timeout = timeout
        self._rng = rng
        self._targets = Targets()
        self._begun: Counter[str] = Counter()
        self._budgets = RetryBudgets(self._begun.__getitem__, desk.clock)

    async def make(
        self, method: str, path: StrOrURL, key: str | bytes | None, options: dict[str, Any]
    ) -> ClientResponse:
        """The answer. The call is out until its body has ended. `options` are changed by it."""
        question = Question(method, self._targets.get(path), None if key is None else given(key), options)
        buffer = self._buffer
        if not buffer.take():
            await self._turn()
        try:
            destination = self._chooser.first(question)
            if destination.plan is not None:
                self._begun[destination.plan.route.path] += 1
            sending = self._sending(destination, question, 1)
            try:
                response = await sending.send(self._options(question, destination))
            except (ClientError, OSError) as error:
                second = self._second(question, destination, error)
                if second is None:
                    raise
                sending, response = await self._sent_again(question, second, reason_of(error), sending.took())
            else:
                if response.status >= SERVER_ERROR and (second := self._second(question, destination, None)):
                    sending.drop(response)
                    sending, response = await self._sent_again(question, second, "status", sending.took())
        except BaseException as error:
            buffer.give_back()
            if self._desk.http.closed and isinstance(error, ClientError | OSError | RuntimeError):
                raise closed_meanwhile() from error
            raise
        sending.until_body_ends(response, buffer.give_back)
        return response

    def follow(self, routes: Container[str]) -> None:
        """Forget the counts of all but these."""
        for path in [each for each in self._begun if each not in routes]:
            del self._begun[path]
            self._budgets.forget(path)

    def close(self) -> None:
        self._buffer.close(closed_meanwhile)
        for sending, connection in list(self._desk.reading.items()):
            sending.cut(connection)

    async def _turn(self) -> None:
        if self._desk.http.closed:
            raise closed_meanwhile()
        began = self._desk.clock()
        try:
            await self._buffer.wait()
        finally:
            self._desk.metrics.buffer_wait.observe(self._desk.clock() - began)

    def _second(self, question: Question, failed: Destination, error: BaseException | None) -> Destination | None:
        if failed.plan is None or not failed.plan.route.settings.retries or self._desk.http.closed:
            return None
        if error is not None and not is_failure(error):
            return None
        if not may_send_again(question.method, question.options, error):
            return None
        second = self._chooser.again(question, failed)
        # As in the proxy: a connection that was not made was no upstream's work, so that nothing is doubled.
        if second is None or not was_connected(error) or self._budgets.afford(failed.plan.route.path):
            return second
        self._desk.metrics.retries_refused["status" if error is None else reason_of(error)] += 1
        return None

    async def _sent_again(
        self, question: Question, second: Destination, why: str, spent: float
    ) -> tuple[Sending, ClientResponse]:
        """The second attempt. `spent`: seconds of the call's time limit that are over; the pause comes to them."""
        self._desk.metrics.retries[why] += 1
        pause = backoff(self._rng)
        await asyncio.sleep(pause)
        options = {**self._options(question, second)}
        options["timeout"] = rest_of(options.get("timeout", self._timeout), spent + pause)
        sending = self._sending(second, question, 2)
        return sending, await sending.send(options)

    def _sending(self, destination: Destination, question: Question, attempt: int) -> Sending:
        if destination.upstream is None:
            self._desk.metrics.fallbacks[destination.why] += 1
        return Sending(self._desk, destination, question, attempt)

    def _options(self, question: Question, destination: Destination) -> dict[str, Any]:
        """aiohttp's arguments. The route's time limits apply where neither the call nor the session has any."""
        options = question.options
        follows = options.get("allow_redirects")
        if follows or "middlewares" in options:
            own = options.get("middlewares")
            inner = (staying(destination.url, self._chooser.may_lead_to), send_once) if follows else (send_once,)
            options = {**options, "middlewares": (*(self._desk.middlewares if own is None else own), *inner)}
        if self._timeout is None and destination.plan is not None and "timeout" not in options:
            return {**options, "timeout": destination.plan.timeout}
        return options


class Call(Coroutine[Any, Any, ClientResponse]):
    """What the session's verbs return: `await` it, or enter it by `async with`, which releases the response."""

    __slots__ = ("_made", "_response")

    def __init__(self, made: Coroutine[Any, Any, ClientResponse]) -> None:
        self._made = made

    def __await__(self) -> Generator[Any, Any, ClientResponse]:
        return self._made.__await__()

    def send(self, value: Any, /) -> Any:
        return self._made.send(value)

    def throw(self, *args: Any) -> Any:
        return self._made.throw(*args)

    def close(self) -> None:
        self._made.close()

    async def __aenter__(self) -> ClientResponse:
        self._response = await self._made
        return await self._response.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        await self._response.__aexit__(*raised)
