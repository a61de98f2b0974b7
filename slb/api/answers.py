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
    """What aiohttp calls for each answer, those included that no middleware sees. It wants a class."""

    class Answers(AbstractAccessLogger):
        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            on_answer(_answered(request, response, time))

    return Answers


def _answered(request: web.BaseRequest, response: web.StreamResponse, seconds: float) -> Answered:
    reason, read = "", True
    if isinstance(response, Refusal):
        reason, read = response.name, not response.unread
    return Answered(
        method=request.method if read else "",
        path=request.rel_url.raw_path if read else "",
        status=response.status,
        reason=reason,
        request_id=response.headers.get(REQUEST_ID, ""),
        client=request.remote or "",
        seconds=seconds,
    )
