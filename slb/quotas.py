"""The nouns of the quota router: what may be set on a model, what a caller is answered. Frozen, no I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from slb.errors import InvalidName

MOST_TOKENS = 1_000_000_000  # of a limit or a bucket: sixty thousand times this is still a whole number in Lua

MOST_CONCURRENT = 1_000_000
MOST_WEIGHT = 1_000_000
MOST_MODELS = 500  # `control/lua/quota.lua` holds to it

MOST_LISTED = 1_000  # tasks in one answer: while Redis reads them it decides nothing

_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}")
_BURSTS = 6  # a bucket holds this part of a minute unless it is set


def checked_model(text: str) -> str:
    """A model's id, as it is. Raises InvalidName."""
    if not _MODEL_ID.fullmatch(text):
        raise InvalidName(
            f"{text[:200]!r} is no model id: a letter or digit, then letters, digits and ._:@/+-, up to 128"
        )
    for segment in text.split("/"):
        if segment in ("", ".", ".."):  # proxies on the way may read these in different ways
            raise InvalidName(f"model id {text!r} has an empty segment, or one that is . or ..")
    return text


TOO_LARGE = "estimate_exceeds_limit"

TaskState = Literal["running", "completed", "abandoned"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one model may take. `weight`: its share where several models could take a request. `burst`: the size of
    its bucket in tokens, and the largest estimate; None: a sixth of the limit. A `paused` model takes nothing
    new."""

    max_tokens_per_minute: int
    max_concurrent_requests: int
    weight: int = 1
    burst: int | None = None
    paused: bool = False

    @property
    def bucket(self) -> int:
        return self.burst if self.burst is not None else -(-self.max_tokens_per_minute // _BURSTS)

    def share(self, parts: int) -> "Limits":
        """One of `parts` equal parts, rounded down, so that all of them together are never more than the whole."""
        tokens, slots = self.max_tokens_per_minute // parts, self.max_concurrent_requests // parts
        burst = self.bucket // parts
        paused = self.paused or not (tokens and slots and burst)
        return Limits(max(1, tokens), max(1, slots), self.weight, max(1, burst), paused)


@dataclass(frozen=True, slots=True)
class Rules:
    """Milliseconds. `lease`: of a task without heartbeats; `longest_wait`: in one answer; `kept`: of an ended
    task."""

    lease: int = 150_000
    longest_wait: int = 900_000
    kept: int = 3_600_000


class Admitted(NamedTuple):
    """Now, and this model."""

    model: str
    task: str


class Wait(NamedTuple):
    """Not now: ask again in so many milliseconds. `reason` is empty where there is merely no room yet."""

    ms: int
    reason: str = ""


class Denied(NamedTuple):
    """Refused for good: `reason` is in `slb.errors` too. `model`: the unknown one, or, of those that would do, the
    one with the largest bucket, `most`."""

    reason: str
    model: str = ""
    most: int = 0


def too_large(models: Mapping[str, Limits]) -> Denied:
    """The denial of an estimate that is too large for each of these models."""
    model = max(sorted(models), key=lambda name: models[name].bucket)
    return Denied(TOO_LARGE, model, models[model].bucket)


Decision = Admitted | Wait | Denied


class Abandoned(NamedTuple):
    """A task whose lease lapsed; `at` in milliseconds since the epoch, by Redis's clock."""

    task: str
    model: str
    estimate: int
    at: int
    key: str


class Caller(NamedTuple):
    """One that waits: `due`: when it is to come, in milliseconds since the epoch, by Redis's clock; `key`: its
    idempotency key, empty for none."""

    due: int
    estimate: int
    key: str


class ModelState(NamedTuple):
    """A model at one moment. `tokens`: in its bucket, below 0 where tasks took more than estimated; `promised`:
    tokens for which callers wait; `waiting`: how many callers; `minute`: tokens admitted in the last 60 s."""

    model: str
    limits: Limits
    in_flight: int
    tokens: float
    deficit: int
    promised: int
    waiting: int
    minute: int = 0


class Advice(NamedTuple):
    """`score`: 0 no caller waits, 1 all wait long. `parallelism`: how many callers would do."""

    score: float
    parallelism: int


Changes = dict[str, Any]  # fields of `Limits` by name: those of a PUT
