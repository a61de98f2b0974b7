"""Serves an application: aiohttp's runner and server, with our connections and our status line."""

import logging
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http import RawRequestMessage, StreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from slb.api.connection import ApiConnection, Rules
from slb.api.replies import EXPECTATION, answers_to
from slb.api.turns import LINGER

_BUFFER = 16 << 10
"""Bytes of a body that a connection holds while nobody reads it, and twice as many at most. With the default of
aiohttp 300 that wait for room (`body_room.py`) hold 150 MiB. What one read brings, 256 KiB at most, is besides."""


def make_runner(app: web.Application, rules: Rules, shutdown_timeout: float = 2.0) -> web.AppRunner:
    """A runner of an API application, used as any other of aiohttp's. `shutdown_timeout`: for the last answers."""
    return _Runner(
        app,
        rules,
        access_log=logging.getLogger("slb.api"),
        access_log_class=answers_to(rules.on_answer),
        lingering_time=LINGER,
        read_bufsize=_BUFFER,
        shutdown_timeout=shutdown_timeout,
        keepalive_timeout=rules.settings.keepalive_timeout,
        max_line_size=rules.settings.max_request_line,
        max_field_size=rules.settings.max_head,
    )


class _Runner(web.AppRunner):
    def __init__(self, app: web.Application, rules: Rules, **options: Any) -> None:
        super().__init__(app, **options)
        self._rules = rules

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._rules)


class _Server(web.Server):
    """A server with the handler and options of another one, and ApiConnection as its protocol."""

    def __init__(self, made: web.Server, rules: Rules) -> None:
        make_request = made.request_factory

        def request_factory(message: Any, payload: Any, protocol: Any, _: Any, task: Any) -> web.BaseRequest:
            expected = message.headers.get(hdrs.EXPECT)
            if expected:
                message = _without_expectation(message)
            request = make_request(message, payload, protocol, _Writer(protocol, protocol._loop), task)
            if expected:
                request[EXPECTATION] = expected
            return request

        super().__init__(
            made.request_handler,
            request_factory=request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,
        )
        self._rules = rules

    def __call__(self) -> web.RequestHandler:
        return ApiConnection(self, self._rules, loop=self._loop, **self._kwargs)


def _without_expectation(message: RawRequestMessage) -> RawRequestMessage:
    """`message` without `Expect`, to which aiohttp would answer `100 Continue` before any check."""
    headers = CIMultiDict(message.headers)
    headers.popall(hdrs.EXPECT)
    return message._replace(headers=CIMultiDictProxy(headers))


class _Writer(StreamWriter):
    """Answers as HTTP/1.1 always (RFC 9110, 2.5): to an unreadable request aiohttp would answer as HTTP/1.0."""

    async def write_headers(self, status_line: str, headers: "CIMultiDict[str]") -> None:
        version, _, rest = status_line.partition(" ")
        if version != "HTTP/1.1" and hdrs.CONNECTION not in headers:
            headers[hdrs.CONNECTION] = "close"  # in the form of HTTP/1.1 (RFC 9112, 9.6)
        await super().write_headers(f"HTTP/1.1 {rest}", headers)
