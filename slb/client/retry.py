"""Whether a call may be sent once more, and with how much time."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from slb.balance.retry import may_repeat

_WHOLE_BODIES = (bytes, bytearray, memoryview, str, type(None))

_SOON = 0.001  # seconds; aiohttp reads 0 as no limit

SERVER_ERROR = 500  # and above: an upstream's failure. A 4xx is an answer


def is_whole(options: Mapping[str, Any]) -> bool:
    """Whether all of a call's body is there before it is sent: it is text, bytes, json or none."""
    return isinstance(options.get("data"), _WHOLE_BODIES)


def may_send_again(method: str, options: Mapping[str, Any], error: BaseException | None) -> bool:
    """Whether this call may be sent again after `error` (None: a 5xx). Only a whole body can be."""
    return may_repeat(method.upper(), was_connected(error), is_whole(options))


def was_connected(error: BaseException | None) -> bool:
    """Whether the attempt that ended with `error` (None: a 5xx) had a connection: the upstream may have seen it."""
    return not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


def is_failure(error: BaseException) -> bool:
    """Whether the transport failed: not the caller's arguments, and not its own time limit."""
    if isinstance(error, aiohttp.ClientResponseError) and error.status:  # raise_for_status is on
        return error.status >= SERVER_ERROR
    if isinstance(error, aiohttp.InvalidURL):
        return False
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ServerTimeoutError):
        return False  # `ClientTimeout.total` has passed: the whole call's, which leaves no time for another attempt
    return isinstance(error, aiohttp.ClientError | OSError)


def reason_of(error: BaseException) -> str:
    """The name under which a failure is counted and logged."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientResponseError) and error.status:
        return "status"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect"
    return "reset" if isinstance(error, OSError) or "Disconnected" in type(error).__name__ else "protocol"


def rest_of(timeout: aiohttp.ClientTimeout | float | None, spent: float) -> aiohttp.ClientTimeout | float | None:
    """What is left of a call's time limit after `spent` seconds: `total` is for both attempts together."""
    if not timeout:  # 0 is no limit, as None is
        return timeout
    if isinstance(timeout, int | float):
        return max(timeout - spent, _SOON)
    if not timeout.total:
        return timeout
    return aiohttp.ClientTimeout(
        total=max(timeout.total - spent, _SOON),
        connect=timeout.connect,
        sock_read=timeout.sock_read,
        sock_connect=timeout.sock_connect,
        ceil_threshold=timeout.ceil_threshold,
    )
