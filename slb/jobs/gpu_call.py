"""What is sent to a GPU and what it answers, as values; and who sends it."""

from collections.abc import Container, Mapping
from typing import NamedTuple, Protocol

from slb.balance.judge import BUSY, is_failure
from slb.balance.upstream import LiveUpstream


class GpuRequest(NamedTuple):
    """One HTTP request to an upstream. `seconds`: how long all of it may take; `most`: bytes of the answer's
    body. `busy`: statuses that say nothing of the GPU's health; `fair`: those from 300 to 499 that do not speak
    against it, None: any. `route`: the path of the model's route, empty where it is for none."""

    upstream: LiveUpstream
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    most: int
    busy: Container[int] = BUSY
    fair: Container[int] | None = None
    route: str = ""

    @property
    def is_job(self) -> bool:
        """Whether the job itself is asked for: how long that takes says something of the GPU."""
        return self.method == "POST" and self.route != ""

    def speaks_against(self, status: int) -> bool:
        """Whether an answer with this status is evidence that its GPU is sick."""
        return is_failure(status) or (self.fair is not None and 300 <= status < 500 and status not in self.fair)


class Answer(NamedTuple):
    """`retry_after`: the field as it came."""

    status: int
    body: bytes
    retry_after: str = ""


class AnswerTooLarge(Exception):
    """The GPU's answer is longer than the request allows."""


class Caller(Protocol):
    """Sends one request, over the connections of this process. Raises Refused with why there is no answer,
    AnswerTooLarge."""

    async def __call__(self, request: GpuRequest) -> Answer: ...
