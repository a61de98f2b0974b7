"""One connection of the API: what is checked before aiohttp gets its bytes.

aiohttp answers bytes that it cannot parse as plain text, with a traceback in the log, which a port scan would fill.
It waits without end for a head, takes other protocols for a broken head, and limits neither the number of
connections nor the time in which an answer is read. So the first line is judged here, and these limits are applied
here.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from slb import errors
from slb.api.replies import Answered, OnAnswer, Refusal, closing_bytes, request_id_of, signed
from slb.api.shortcut import Asked, Shortcut
from slb.api.turns import LINGER, SLICE, InTurns, Turns
from slb.config import Settings
from slb.errors import Refused
from slb.observe.throttle import Seldom, Throttle
from slb.places import Places

_log = structlog.get_logger("slb.api")

LineJudge = Callable[[bytes], object]  # takes a request line with its line end. Raises Refused

_MOST_BEHIND = 65_536  # bytes a client may send ahead of the answer it waits for

_EVENT = 160  # bytes of an event's line besides its detail, about

_LOG_EVERY = 10.0  # seconds between two lines of the log about connections that were refused

_NO_HTTP = b"\0\r\n\0\r\n\r\n"  # invalid at any place of a head: it makes aiohttp answer the refusal

_FIRST_OF_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]")
_VERSION_FAULT = re.compile("HTTP version|Expected (?:dot|HTTP/)|PRI/Upgrade")


def _log_refused(count: int, last: tuple[str, int]) -> None:
    _log.warning("api_connections_refused", count=count, peer=last[0], open=last[1])


@dataclass(frozen=True, slots=True)
class Rules:
    """What all connections of one listener share. `judge` sees the first line of each; `on_answer` is called with
    every answer; `shortcut` answers what it can before aiohttp sees it; `places`: None where another listener
    counts the connections; `throttle` bounds what is logged of requests that cannot be read."""

    settings: Settings
    judge: LineJudge = lambda line: None
    on_answer: OnAnswer = lambda answer: None
    shortcut: Shortcut | None = None
    places: Places[Any] | None = None
    throttle: Throttle = field(default_factory=Throttle)
    turns: Turns = field(default_factory=Turns)
    refusals: Seldom[tuple[str, int]] = field(default_factory=lambda: Seldom(_LOG_EVERY, _log_refused))


class ApiConnection(InTurns):
    """One of aiohttp's. Its first line is judged first; the shortcut is tried until a request goes to aiohttp."""

    __slots__ = ("_asked", "_behind", "_head_timer", "_line", "_refused", "_rules", "_short", "_stall_timer")

    def __init__(self, server: web.Server, rules: Rules, **options: Any) -> None:
        super().__init__(rules.turns, server, **options)
        self._rules = rules
        self._line: bytes | None = b""  # what came of the first line; None once it is with aiohttp
        self._refused: Refused | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._short = rules.shortcut  # None once a request has gone to aiohttp: those after it go there too
        self._asked: asyncio.Task[None] | None = None
        self._behind = bytearray()  # grows in place: it may come byte by byte

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        places = self._rules.places
        if places is not None and not places.take(self, _address(transport)):
            self._turn_away(places, cast("asyncio.Transport", transport))
            return
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(self._rules.settings.head_timeout, self._head_is_late)

    def _turn_away(self, places: Places[Any], transport: asyncio.Transport) -> None:
        """Answer 503 and leave time to read that. aiohttp never gets this connection, and makes no tasks."""
        self._refused = Refused(errors.OVERLOADED, "too many connections")
        request_id = uuid4().hex
        reply = Refusal(errors.OVERLOADED, self._refused.detail, request_id)
        signed(reply, request_id)
        transport.write(closing_bytes(reply))
        if transport.can_write_eof():
            transport.write_eof()
        else:  # TLS has no end of one direction
            transport.close()
        if places.turn_away(self):
            self._head_timer = self._loop.call_later(LINGER, transport.abort)
        else:
            transport.abort()
        client = _address(transport)
        self._rules.on_answer(Answered("", "", reply.status, reply.name, request_id, client, 0.0))
        self._rules.refusals.count((client, len(places.taken)))

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._rules.places is not None:
            self._rules.places.leave(self)
        self._end_head_timer()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """A client that does not read its answer has `keepalive_timeout`, as between two requests."""
        super().pause_writing()
        if self.transport is not None:
            timeout = self._rules.settings.keepalive_timeout
            self._stall_timer = self._loop.call_later(timeout, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """The bytes of the first line are kept until all of it is there."""
        if self._refused is not None or self._answered or self._is_answered_shortly(data):
            return
        if self._line is not None:
            # Empty lines before a request are ignored (RFC 9112, 2.2), and not kept: they could go on for ever.
            # What is kept is at most max_request_line bytes.
            data = self._line = (self._line + data).lstrip(b"\r\n")
            try:
                if not has_first_line(data, self._rules.settings.max_request_line, self._rules.judge):
                    return
            except Refused as refused:
                self._refuse(refused)
                return
            self._line = None
        if len(data) > SLICE or self._rest:
            self._feed_in_turns(data)
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        super().data_received(data)
        if self._request_count:
            self._end_head_timer()

    def _is_answered_shortly(self, data: bytes) -> bool:
        """Whether the shortcut answers it. What arrives before that answer is kept until it is written."""
        if self._asked is not None:
            self._behind += data
            if len(self._behind) > _MOST_BEHIND and self.transport is not None:
                self.transport.pause_reading()
            return True
        if self._short is None or self.transport is None:
            return False
        remote = _address(self.transport)
        asked = self._short.read(data, remote) if remote and not self._force_close else None
        if asked is None:
            if self._head_timer is None:  # as for a connection's first request
                self._head_timer = self._loop.call_later(self._rules.settings.head_timeout, self._head_is_late)
            self._short = None
            return False
        self._end_head_timer()
        self._keepalive = True  # aiohttp closes what has been idle for long
        self._asked = self._loop.create_task(self._answer_shortly(self._short, asked, remote))
        return True

    async def _answer_shortly(self, short: Shortcut, asked: Asked, remote: str) -> None:
        reply = await short.answer(asked, remote)
        self._asked = None
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(reply)
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if behind := bytes(self._behind):
            self._behind.clear()
            if len(behind) > _MOST_BEHIND:
                transport.resume_reading()
            self.data_received(behind)

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Waits for the request that the shortcut has."""
        if self._asked is not None:
            await asyncio.wait([self._asked], timeout=timeout)
        await super().shutdown(timeout)

    def _head_is_late(self) -> None:
        timeout = self._rules.settings.head_timeout
        if self._refused is None:
            self._refuse(Refused(errors.REQUEST_TIMEOUT, f"the head did not come within {timeout:g}s"))

    def _refuse(self, refused: Refused) -> None:
        self._refused = refused
        self._rest.clear()
        self._end_head_timer()
        super().data_received(_NO_HTTP)

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Does nothing for a broken body, which has been answered, or whose client is gone."""
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
        """The answer, which closes, to what could not be parsed, or failed outside of every middleware."""
        refused = self._refused or _parsing_refused(status, exc, message or "")
        about: dict[str, Any] = {"peer": request.remote, "detail": refused.detail}
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has already begun")
        if isinstance(exc, ConnectionError):
            _log.debug("client_gone", **about)
        elif status >= 500:
            _log.error("unexpected_exception", **about, exc_info=exc)
        elif self._rules.throttle.allows():
            self._rules.throttle.spend(_EVENT + len(refused.detail))
            _log.info("malformed_request", **about)
        request_id = request_id_of(request.headers)
        reply = Refusal(refused.reason, refused.detail, request_id)
        reply.unread = status < 500
        reply.force_close()
        return signed(reply, request_id)


def has_first_line(data: bytes, longest: int, judge: LineJudge) -> bool:
    """Whether `data`, the beginning of a request, has its first line whole. Raises Refused where `judge` does, and
    at once where the line is longer than `longest` bytes or cannot be one."""
    line, newline, _ = data.partition(b"\n")
    if data and not _FIRST_OF_TOKEN.match(data):
        raise Refused(errors.BAD_REQUEST, "the request line is malformed")
    if len(line) > longest:
        raise Refused(errors.URI_TOO_LONG, f"the request line is over {longest} bytes")
    if newline:
        judge(line + newline)
    return bool(newline)


def _address(transport: asyncio.BaseTransport) -> str:
    """The peer's address; empty for a unix socket."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _parsing_refused(status: int, exc: BaseException | None, message: str) -> Refused:
    """aiohttp's error about a request it could not parse, as one of ours."""
    detail = message.partition("\n")[0] or "the request is malformed"
    if status >= 500 and not isinstance(exc, ConnectionError):
        return Refused(errors.INTERNAL, detail)
    if _VERSION_FAULT.search(message):  # behind the first request of a connection
        return Refused(errors.HTTP_VERSION, "slb speaks HTTP/1.1 and HTTP/1.0")
    return Refused(errors.HEADERS_TOO_LARGE if isinstance(exc, LineTooLong) else errors.BAD_REQUEST, detail)
