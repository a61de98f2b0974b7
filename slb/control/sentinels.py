"""Where the master of a service is, by its Sentinels.

Each new connection asks them, in turn, until one answers; the one that did is asked first the next time, unless
what it said led nowhere: a Sentinel that is cut off from the others knows of no failover. Then the server
itself is asked for its ROLE. Once in two seconds the watcher asks too: a master that was frozen for so short a
time that nobody noticed does not know yet that another has taken its place. For that no `+switch-master` is
subscribed to; a Sentinel closes the connections to a master that it demotes, and those that find it dead ask
again within half a second."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from slb.control.endpoint import Endpoint, caused
from slb.control.redis_url import Address
from slb.control.resp import pack
from slb.control.server import Server
from slb.control.wire import Wire

ANSWER_WITHIN = 0.5
"""Seconds that one Sentinel may take, with its connecting: one that is frozen costs no more."""

_log = structlog.get_logger()


class MasterNotFound(RedisConnectionError):
    """No Sentinel named a master. It passes: they may be electing one."""


class Sentinels(Server):
    """`endpoints`: of the Sentinels. `on_moved`: called when another master than before is named."""

    is_checked = True

    def __init__(self, service: str, endpoints: Sequence[Endpoint], on_moved: Callable[[], None]) -> None:
        super().__init__()
        self.address: Address | None = None
        self._service = service
        self._question = pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        self._endpoints = endpoints
        self._on_moved = on_moved
        self._asked = 0
        self._wire: Wire | None = None
        self._asking: asyncio.Task[Address] | None = None

    async def find(self) -> Address:
        """The master's address, asked now; callers at one time share one question. Raises MasterNotFound."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask(), name="sentinels")
            self._asking.add_done_callback(_looked_at)
        return await asyncio.shield(self._asking)

    def is_current(self, address: Address) -> bool:
        return address == self.address

    def failed(self) -> None:
        """The next Sentinel is asked next."""
        if self._asking is None or self._asking.done():
            self._go_on()

    async def _ask(self) -> Address:
        errors: list[Exception] = []
        for _ in self._endpoints:
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    found = _address(await self._answer())
            except (RedisError, OSError, TimeoutError) as error:
                errors.append(error)
            else:
                if found is not None:
                    self._found(found)
                    return found
            self._go_on()
        raise self._not_found(errors)

    async def _answer(self) -> Any:
        if self._wire is None or self._wire.lost is not None:
            self._wire = Wire(self._endpoints[self._asked])
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wire.send(self._question, lambda reply: None if answer.done() else answer.set_result(reply))
        reply = await answer
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _go_on(self) -> None:
        self._hang_up()
        self._asked = (self._asked + 1) % len(self._endpoints)

    def _found(self, address: Address) -> None:
        before, self.address = self.address, address
        if before is not None and before != address:
            self.version += 1
            _log.warning("redis_master_moved", service=self._service, before=_text(before), now=_text(address))
            self._on_moved()

    def _not_found(self, errors: Sequence[Exception]) -> MasterNotFound:
        if len(errors) < len(self._endpoints):
            return MasterNotFound(f"the Sentinels that answer know no master named {self._service}")
        error = MasterNotFound(f"no Sentinel answers: {errors[0] or 'not in time'}")
        refusals = [each for each in errors if isinstance(each, RedisError)]
        return caused(error, refusals[0]) if len(refusals) == len(errors) else error  # type: ignore[return-value]

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _address(reply: Any) -> Address | None:
    """None where the Sentinel knows no master of that name, or what it says is no address."""
    match reply:
        case [str(host), str(port)] if port.isdecimal():
            return host, int(port)
    return None


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _looked_at(task: asyncio.Task[Address]) -> None:
    """Its error is raised to whoever waits; where none does any more, it needs no report."""
    if not task.cancelled():
        task.exception()
