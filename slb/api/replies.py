"""Every answer of the API: JSON, with the request's id; every failure as `{"error", "detail", "request_id"}`, with
Retry-After where trying again can help. aiohttp's own refusals have this form too."""

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NamedTuple
from uuid import uuid4

import structlog
from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.typedefs import Handler

from slb import errors
from slb.answers import dumped, usable_id
from slb.api.callers import HOLDER, RENEWS
from slb.errors import InvalidName, Reason, RedisUnavailable, Refused, ScriptFailed

REQUEST_ID = "X-Request-Id"
EXPECTATION = web.RequestKey("slb.expectation", str)
"""Where a request keeps its `Expect` until that is met: aiohttp would meet it before any middleware."""
_OF_STATUS = {each.status: each for each in (errors.NO_ROUTE, errors.METHOD_NOT_ALLOWED, errors.BODY_TOO_LARGE)}
PROBES = frozenset({"/healthz", "/readyz", "/metrics", "/_slb/healthz", "/_slb/readyz"})
_log = structlog.get_logger("slb.api")


def json_reply(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=dumped(data), status=status, content_type="application/json")


class Refusal(web.Response):
    """The answer to a refused request. `content`: its body; `name`: the reason's; `unread`: no request was read."""

    def __init__(self, reason: Reason, detail: str, request_id: str) -> None:
        self.content = dumped({"error": reason.name, "detail": detail, "request_id": request_id})
        super().__init__(body=self.content, status=reason.status, content_type="application/json")
        self.name = reason.name
        self.unread = False
        if reason.retry_after is not None:
            self.headers[hdrs.RETRY_AFTER] = str(reason.retry_after)
        if reason.status == 401:
            self.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="slb"'


def request_id_of(headers: Any) -> str:
    return usable_id(headers.get(REQUEST_ID, "")) or uuid4().hex


def closing_bytes(reply: Refusal) -> bytes:
    """The bytes of a reply on a connection that aiohttp never had, and that ends with it."""
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    lines += [f"Content-Length: {len(reply.content)}", f"Date: {formatdate(usegmt=True)}", "Connection: close"]
    return "\r\n".join([*lines, "\r\n"]).encode() + reply.content


class Answered(NamedTuple):
    """One answer. `reason` is empty unless it is a refusal, `method` and `path` where no request could be read.
    `seconds`: from the request's head to the answer's end. `token`: the name of the caller's; empty where it has
    none, or one that is not known. `renews`: it was a registration that changed nothing."""

    method: str
    path: str
    status: int
    reason: str
    request_id: str
    client: str
    seconds: float
    token: str = ""
    renews: bool = False

    @property
    def is_probe(self) -> bool:
        """Whether a load balancer, Prometheus or an upstream that renews its registration asks for it every few
        seconds."""
        return self.renews or (self.path in PROBES and not self.reason and self.method in ("GET", "HEAD"))


OnAnswer = Callable[[Answered], None]


def answers_to(on_answer: OnAnswer) -> type[AbstractAccessLogger]:
    """An access logger class for aiohttp, which calls it for each answer, with or without middleware."""

    class Answers(AbstractAccessLogger):
        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            reason, named = "", (request.method, request.rel_url.raw_path)
            if isinstance(response, Refusal):
                reason, named = response.name, ("", "") if response.unread else named
            request_id = response.headers.get(REQUEST_ID, "")
            token = request[HOLDER].name if HOLDER in request else ""
            client, renews = request.remote or "", request.get(RENEWS) is True
            on_answer(Answered(*named, response.status, reason, request_id, client, time, token, renews))

    return Answers


@web.middleware
async def in_our_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: sets the request's id on every answer, and makes a Refusal of every failure."""
    request_id = request_id_of(request.headers)
    try:
        if request.version not in ((1, 0), (1, 1)):
            raise Refused(errors.HTTP_VERSION, "slb speaks HTTP/1.0 and HTTP/1.1")
        reply = await handler(request)
    except web.HTTPException as error:
        reply = _in_our_words(error, request, request_id)
    except ConnectionError:
        raise  # the client has left
    except Exception as error:  # noqa: BLE001 -- the last net; what is unexpected is logged with its traceback
        reply = failure(error, request.method, request.path, request_id)
    # Where an expectation was not met, what follows may be its body or the next request. Where a body is broken,
    # its end is not known.
    if EXPECTATION in request or request.content.exception() is not None:
        reply.force_close()
    return reply if reply.prepared else signed(reply, request_id)  # a stream has been signed by its handler


def failure(error: Exception, method: str, path: str, request_id: str) -> Refusal:
    """The Refusal for `error`, which is being handled."""
    if isinstance(error, Refused):
        return Refusal(error.reason, error.detail, request_id)
    if isinstance(error, InvalidName):
        return Refusal(errors.BAD_REQUEST, str(error), request_id)
    if isinstance(error, RedisUnavailable):
        return outage_reply(error, method, request_id)
    if isinstance(error, ScriptFailed):
        return Refusal(errors.SCRIPT_FAILED, str(error), request_id)
    _log.exception("unexpected_exception", method=method, path=path, request_id=request_id)
    return Refusal(errors.INTERNAL, errors.INTERNAL.public, request_id)


def signed(reply: web.StreamResponse, request_id: str) -> web.StreamResponse:
    """`reply` with the headers of every answer: the request's id, and `Server: slb`."""
    reply.headers[REQUEST_ID] = request_id
    reply.headers[hdrs.SERVER] = "slb"
    return reply


@web.middleware
async def continuing(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The innermost middleware: answers `Expect: 100-continue` once the head has passed all checks, so that no body
    is sent for nothing, and refuses every other expectation."""
    expected = request.get(EXPECTATION, "100-continue")
    if expected.lower() != "100-continue":
        raise Refused(errors.BAD_REQUEST, "slb meets no expectation but 100-continue")
    if request.match_info.http_exception is None and request.pop(EXPECTATION, "") and request.version == (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # aiohttp takes what was written for the beginning of the answer
    return await handler(request)


@web.middleware
async def closing(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A middleware: closes connections that the data listener handed over, which cannot go back there."""
    reply = await handler(request)
    reply.force_close()
    return reply


def outage_reply(error: RedisUnavailable, method: str, request_id: str) -> Refusal:
    """The Refusal while Redis is away. It tells whether a change may have been written."""
    detail = str(error).removesuffix(".")
    if method not in (hdrs.METH_GET, hdrs.METH_HEAD):
        may = "it may or may not have been written" if error.reached else "nothing was written"
        detail += f"; {may}, asking again is safe"
    return Refusal(errors.REDIS_DOWN, detail, request_id)


def _in_our_words(error: web.HTTPException, request: web.Request, request_id: str) -> Refusal:
    reason = _OF_STATUS.get(error.status, errors.BAD_REQUEST if error.status < 500 else errors.INTERNAL)
    details = {
        errors.NO_ROUTE: f"there is no endpoint {request.path}",
        errors.METHOD_NOT_ALLOWED: f"{request.path} takes {error.headers.get(hdrs.ALLOW)}, not {request.method}",
        errors.BODY_TOO_LARGE: f"the body is over {request.client_max_size} bytes",
    }
    reply = Refusal(reason, details.get(reason, error.reason), request_id)
    if hdrs.ALLOW in error.headers:
        reply.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
    return reply
