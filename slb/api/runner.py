"""Serves an application, and refuses what is not HTTP in the same form as everything else.

aiohttp answers bytes it cannot parse before any application sees them: as plain text, with a traceback in the
log. Whoever scans a port would fill that log.
"""

import sys
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from slb.api.replies import refusal, request_id_of, signed
from slb.config import Settings
from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, INTERNAL

_log = structlog.get_logger("slb.api")


_LINGER = 1.0
"""Seconds a refused body is still read before the connection closes, so that its sender sees the answer."""


def make_runner(app: web.Application, settings: Settings, shutdown_timeout: float = 2.0) -> web.AppRunner:
    """The runner of an API application; start it, add sites to it, clean it up as any other of aiohttp's.
    `shutdown_timeout` is how many seconds answers may take to finish at the end."""
    return _Runner(
        app,
        access_log=None,
        lingering_time=_LINGER,
        shutdown_timeout=shutdown_timeout,
        keepalive_timeout=settings.keepalive_timeout,
        max_line_size=settings.max_request_line,
        max_field_size=settings.max_head,
    )


class _Runner(web.AppRunner):
    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(made)


class _Server(web.Server):
    """Another server's handler and options, with our protocol."""

    def __init__(self, made: web.Server) -> None:
        super().__init__(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,
        )

    def __call__(self) -> web.RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Protocol(web.RequestHandler):
    __slots__ = ()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """A body that breaks off or cannot be read has been answered already, or nobody is left to be answered."""
        if isinstance(sys.exception(), web.RequestPayloadError | ConnectionError):
            _log.debug("broken_body", detail=str(sys.exception()))
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what could not be parsed, or broke outside of every middleware; it closes."""
        said: dict[str, Any] = {"peer": request.remote, "detail": (message or "").partition("\n")[0]}
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has already begun")
        reason = HEADERS_TOO_LARGE if isinstance(exc, LineTooLong) else BAD_REQUEST
        if isinstance(exc, ConnectionError):
            _log.debug("client_gone", **said)
        elif status >= 500:
            reason = INTERNAL
            _log.error("unexpected_exception", **said, exc_info=exc)
        else:
            _log.info("malformed_request", **said)
        request_id = request_id_of(request.headers)
        reply = refusal(reason, said["detail"] or "the request is malformed", request_id)
        reply.force_close()
        return signed(reply, request_id)
