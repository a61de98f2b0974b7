"""Messages between instances: the results of health checks that changed, as soon as they are published; and
upstreams that refuse connections, or serve again. It publishes the latter too."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import structlog
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.resp import readable
from slb.control.subscription import follow_channel
from slb.routing.passive import NEWS, Passive

_RETRY = 1.0
_DIGITS = 10
_LONGEST = 4096
"""Characters: a check's path has 2048 at most."""

_log = structlog.get_logger()

OnNews = Callable[[str, str, int], None]
"""Called with a check's key, its state, its results in a row against that; or (member, what is published of it, 0);
or what is published of failures or slow requests, its state, hundredths."""

FAILING = "failing"
"""The state of what is published of failures, as `path member teller failing centi`: what they added, in
hundredths, and who tells, who hears it too. No check is ever in such a state, nor in one of those that are
published of members."""
ANSWERING = "answering"
"""The state of what is published of answers after such failures, as `path member teller answers answering centi`:
how many came since the last message, and the hundredths that are left of the teller's own sum. At 0 it tells no
more. Instances that do not know this state pass over it."""
SLOW, LATE = "slow", "late"
"""The states of what is published of slow requests, as `path member teller ms slow centi`: what one added, of which
the first byte took so many milliseconds (SLOW), or has not come for so many (LATE). That one has come which the
others know as late adds 0. Instances that do not know these states pass over them."""

OF_REQUESTS = NEWS | {FAILING, ANSWERING, SLOW, LATE}
"""The states of what is published of requests; others are of checks."""

SUSPECT = "suspect"
"""The state of what is published of a check of which so many results in a row were failures, all found on one host,
as `host key suspect run`."""


class HealthNews:
    """Messages are hints: an instance that misses one gets the same result when the check is due again."""

    def __init__(self, connection: Connection, retry: float = _RETRY) -> None:
        self._connection = connection
        self._retry = retry

    async def run(self, on_news: OnNews) -> NoReturn:
        await follow_channel(self._connection, keys.HEALTH_CHANNEL, partial(_pass_on, on_news), self._retry)

    async def publish(self, about: str, news: str, number: int = 0) -> None:
        """Publish it to all instances. Where Redis is away, each finds out for itself."""
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                with readable():
                    await self._connection.client.publish(keys.HEALTH_CHANNEL, f"{about} {news} {number}")
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("health_not_told", about=about, error=str(error))


def hear_of_requests(passive: Passive, about: str, state: str, number: int, own: str | None = None) -> None:
    """Let `passive` judge by what was published of requests; else nothing happens. `own`: the name under which its
    process tells, None where it does not."""
    if state in NEWS:
        passive.receive(about, state, number)
    elif state in (FAILING, ANSWERING):
        path, member, teller, answers = (*about.split(" "), "", "", "")[:4]
        if teller == own or not _is_count(answers):
            return
        if state == FAILING:
            passive.heard(path, member, number / 100, int(answers))
        else:
            passive.heard_answers(path, member, int(answers), teller, goes_on=number > 0)
    elif state in (SLOW, LATE):
        path, member, teller, ms = (*about.split(" "), "", "", "", "")[:4]
        if teller != own and _is_count(ms):
            passive.heard_slow(path, member, number / 100, int(ms) / 1000, state == LATE)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _DIGITS


def _pass_on(on_news: OnNews, _: str, text: str) -> None:
    """`key state run`, or `member news 0`; any program may publish anything, and other forms are passed over."""
    if len(text) > _LONGEST:
        return
    key, _, rest = text.rpartition(" ")
    key, _, state = key.rpartition(" ")
    if rest.isascii() and rest.isdigit() and len(rest) < 10:
        on_news(key, state, int(rest))
