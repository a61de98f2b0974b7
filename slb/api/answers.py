"""What the access log and the metrics get of every answer of an application."""

from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from slb.api.replies import REQUEST_ID, Refusal

_PROBES = frozenset({"/healthz", "/readyz", "/metrics", "/_slb/healthz", "/_slb/readyz"})


class Answered(NamedTuple):
    """One answer. `reason` is empty unless it is a refusal, `method` and `path` where no request could be read;
    `seconds` from the request's head to the answer's end."""

    method: str
    path: str
    status: int
    reason: str
    request_id: str
    client: str
    seconds: float

    @property
    def is_probe(self) -> bool:
        """Whether a load balancer or Prometheus asks for it every few seconds."""
        return self.path in _PROBES and not self.reason and self.method in ("GET", "HEAD")


OnAnswer = Callable[[Answered], None]


def answers_to(on_answer: OnAnswer) -> type[AbstractAccessLogger]:
    """An access logger class for aiohttp, which calls it for each answer, those included that no middleware
    sees."""

    class Answers(AbstractAccessLogger):
        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            reason, named = "", (request.method, request.rel_url.raw_path)
            if isinstance(response, Refusal):
                reason, named = response.name, ("", "") if response.unread else named
            request_id = response.headers.get(REQUEST_ID, "")
            on_answer(Answered(*named, response.status, reason, request_id, request.remote or "", time))

    return Answers
