"""What is sent to a GPU and what it answers, as values; and who sends it."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from slb.balance.upstream import LiveUpstream


class GpuRequest(NamedTuple):
    """One HTTP request to an upstream. `seconds`: how long all of it may take; `most`: bytes of the answer's
    body."""

    upstream: LiveUpstream
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    most: int


class Answer(NamedTuple):
    status: int
    body: bytes


class AnswerTooLarge(Exception):
    """The GPU's answer is longer than the request allows."""


class Caller(Protocol):
    """Sends one request, over the connections of this process. Raises Refused with why there is no answer,
    AnswerTooLarge."""

    async def __call__(self, request: GpuRequest) -> Answer: ...
