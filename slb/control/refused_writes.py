"""What Redis refuses to write: logged once for each reason, and passed over."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from redis.exceptions import ResponseError

_IN_SCRIPT = " script: "
"""Before the name of the script that was refused."""

_log = structlog.get_logger()


class RefusedWrites:
    """A Redis that refuses to write (its disk or its memory is full, it is a replica) is followed all the same."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    @contextmanager
    def passed_over(self) -> Iterator[None]:
        """Around a write: it may end early, without an exception."""
        try:
            yield
        except ResponseError as error:
            reason = reason_of(error)
            if reason not in self._reasons:
                self._reasons.add(reason)
                _log.warning("redis_refuses_writes", error=reason, instead="read on, try again later")


def reason_of(error: Exception) -> str:
    """Why Redis refused, without the script it was met in: the same for each that meets it."""
    return str(error).rpartition(_IN_SCRIPT)[0] or str(error)
