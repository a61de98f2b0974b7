"""Hears of health checks that changed their mind, as soon as whoever ran them tells."""

from collections.abc import Callable
from functools import partial
from typing import NoReturn

from slb.control import keys
from slb.control.connection import Connection
from slb.control.subscription import hear

_RETRY = 1.0
_LONGEST = 4096
"""Characters: a check's path has 2048 at most."""

Heard = Callable[[str, str, int], None]
"""Called with a check's key, its state, and its results in a row against that."""


class HealthNews:
    """A hint, no more: who misses one learns the same when the check is due again."""

    def __init__(self, connection: Connection, retry: float = _RETRY) -> None:
        self._connection = connection
        self._retry = retry

    async def run(self, heard: Heard) -> NoReturn:
        """Listen until cancelled."""
        await hear(self._connection, keys.HEALTH_CHANNEL, partial(_pass_on, heard), self._retry)


def _pass_on(heard: Heard, _: str, text: str) -> None:
    """`key state run`; anybody may publish anything, so what is not of this form is passed over."""
    if len(text) > _LONGEST:
        return
    key, _, rest = text.rpartition(" ")
    key, _, state = key.rpartition(" ")
    if rest.isascii() and rest.isdigit() and len(rest) < 10:
        heard(key, state, int(rest))
