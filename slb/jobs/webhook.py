"""A callback by the rules of Standard Webhooks: its signature, and what follows from one delivery. Pure."""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import Literal, NamedTuple

from slb.backoff import asked_for
from slb.job import JobShown

_FIRST = 5.0
LONGEST = 3600.0
"""Seconds between two tries of a callback, at most."""
_JITTER = 0.1
_LASTS = 86_400.0
"""Seconds after a job's end in which its callback is tried."""
_GONE = 410


class Reply(NamedTuple):
    """How one delivery went. `status` is 0 where there was no answer, for `error`; `retry_after`: the field as it
    came; `is_hopeless`: no other delivery would be answered either."""

    status: int
    error: str = ""
    retry_after: str = ""
    is_hopeless: bool = False


class Step(NamedTuple):
    """What follows. A callback that `failed` is sent `again` in so many seconds."""

    outcome: Literal["delivered", "failed", "given_up"]
    error: str = ""
    again: float | None = None


def id_of(job: JobShown) -> str:
    """The `webhook-id` of the callback of a job's end: the same each time that it is sent. The next end of a job
    that was dead and is revived has another one."""
    return f"{job.id}:{round(job.ended * 1000)}"


def headers_of(id_: str, timestamp: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """The headers of a delivery that is made at `timestamp`, in seconds. Without keys it is not signed."""
    signature = " ".join(_signature(id_, timestamp, body, key) for key in keys)
    signed = {"webhook-signature": signature} if signature else {}
    return {"webhook-id": id_, "webhook-timestamp": str(timestamp), **signed}


def step_of(reply: Reply, before: int, since_end: float, now: float, jitter: float) -> Step:
    """What follows a delivery. `before`: deliveries that were tried; `since_end`: seconds since the job ended;
    `now`: seconds since the epoch; `jitter`: from -1 to 1."""
    if 200 <= reply.status < 300:
        return Step("delivered")
    error = reply.error or _described(reply.status)
    left = _LASTS - since_end
    if reply.is_hopeless or reply.status == _GONE or left <= 0:
        return Step("given_up", error)
    wait = max(_pause(before, jitter), asked_for(reply.retry_after, now))
    return Step("failed", error, min(wait, left))  # the last delivery is made when the time is over


def _signature(id_: str, timestamp: int, body: bytes, key: bytes) -> str:
    digest = hmac.digest(key, b"%b.%d.%b" % (id_.encode(), timestamp, body), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def _pause(before: int, jitter: float) -> float:
    return float(min(_FIRST * 2.0 ** min(before, 60), LONGEST)) * (1 + _JITTER * jitter)


def _described(status: int) -> str:
    return f"status {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
