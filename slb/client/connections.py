"""The connections of a session: each ends in time, so that what a name resolves to now is found."""

import asyncio
from functools import partial
from random import Random

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

_LOOKED_UP = 10
"""Seconds for which aiohttp keeps what a name resolves to."""

_SPREAD = 0.2
"""Of the age: connections that were made together do not all end together."""


class _Connection(ResponseHandler):
    """It is not used again once `age` seconds have passed since it was made."""

    def __init__(self, age: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._old_at = loop.time() + age

    @property
    def should_close(self) -> bool:
        return super().should_close or self._loop.time() >= self._old_at


class Connector(TCPConnector):
    """Without a limit, which would be a second buffer. `max_age`: seconds; the address that a connection has is the
    one that its name had when it was made."""

    def __init__(self, resolver: AbstractResolver, max_age: float, rng: Random) -> None:
        super().__init__(limit=0, resolver=resolver, ttl_dns_cache=int(min(_LOOKED_UP, max_age)))
        self._max_age = max_age
        self._rng = rng
        self._factory = partial(self._made, loop=self._loop)

    def _made(self, loop: asyncio.AbstractEventLoop) -> ResponseHandler:
        return _Connection(self._max_age * (1.0 - _SPREAD * self._rng.random()), loop)
