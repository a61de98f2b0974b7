"""One request to one destination: what it holds is given back once, and its result is counted and reported."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import structlog
from aiohttp.connector import Connection
from yarl import URL

from slb.backoff import asked_for
from slb.balance.judge import BUSY
from slb.balance.upstream import Handle
from slb.client.choice import Destination, Question
from slb.client.refusals import SessionClosed
from slb.client.retry import SERVER_ERROR, is_failure, is_whole, reason_of
from slb.observe.outbound import NO_ANSWER, OutboundMetrics
from slb.routing.table import Route
from slb.routing.witness import ReplyWatch, Witness, release_later

_EVENT_STREAM = "text/event-stream"  # such an answer may go on for ever: its duration is no measure of its upstream

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Desk:
    """What every request of a session is sent with. `node`: where this process runs; `fallback`: as it is shown;
    `witness`: told what calls say of their upstreams; `middlewares`: the session's own, which a call's replace;
    `reading`: requests with an open body, and their
    connections."""

    http: aiohttp.ClientSession
    metrics: OutboundMetrics
    clock: Callable[[], float]
    node: str
    fallback: str
    witness: Witness
    middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
    reading: "dict[Sending, Connection]" = field(default_factory=dict)


class Sending:
    """`send`, and then one of `until_body_ends` and `drop`. Where `send` raises, all is given back already."""

    __slots__ = (
        *("_attempt", "_content", "_desk", "_destination", "_ended"),
        *("_handle", "_head_after", "_is_good", "_is_timed", "_question", "_started", "_status", "_watch", "_way"),
    )

    def __init__(self, desk: Desk, destination: Destination, question: Question, attempt: int) -> None:
        self._desk = desk
        self._destination = destination
        self._question = question
        self._attempt = attempt
        self._is_good = True
        self._is_timed = is_whole(question.options)
        self._watch = ReplyWatch(desk.witness, desk.clock)
        self._way = desk.metrics.fallback if destination.upstream is None else desk.metrics.ring

    async def send(self, options: dict[str, Any]) -> aiohttp.ClientResponse:
        """The answer, as soon as its head is there. Raises what aiohttp does."""
        upstream = self._destination.upstream
        self._handle = None if upstream is None else Handle(upstream)
        self._started = self._desk.clock()
        if upstream is not None and self._is_timed and (route := self._route) is not None:
            self._watch.owed(upstream, route, self._started)
        try:
            response = await self._desk.http.request(self._question.method, self._destination.url, **options)
        except _Lost as lost:
            self._failed(lost.error)
            raise lost.error from None
        except BaseException as error:
            self._failed(error)
            raise
        self._status = status = response.status
        self._way.requests[status] += 1
        self._head_after = self.took()
        if upstream is not None:
            upstream.alive_at = self._desk.clock()
            self._watch.begins(upstream)
        if status >= SERVER_ERROR or status in BUSY:
            self._answered(status, response.headers.get("Retry-After"))
        return response

    def until_body_ends(self, response: aiohttp.ClientResponse, ended: Callable[[], None]) -> None:
        """Give back what is held, and call `ended`, when the body ends or the response is released or closed."""
        self._ended = ended
        self._content = response.content
        connection = response.connection
        if connection is None:  # a short body has ended with its head
            self._give_back()
        else:
            if self._handle is not None and self._status < SERVER_ERROR and response.content_type == _EVENT_STREAM:
                self._handle.lasts()
            self._desk.reading[self] = connection
            connection.add_callback(self._give_back)

    def drop(self, response: aiohttp.ClientResponse) -> None:
        self._release(False)
        response.release()

    def cut(self, connection: Connection) -> None:
        """The session is closed. Without this, a task that reads the body would wait for ever."""
        self._content.set_exception(closed_meanwhile())
        connection.close()

    def took(self) -> float:
        return self._desk.clock() - self._started

    def _give_back(self) -> None:
        """A callback of aiohttp, called once. What it raises is not seen."""
        self._desk.reading.pop(self, None)
        try:
            self._count(self._content.exception())
        finally:
            self._release(False)
            self._ended()

    def _count(self, error: BaseException | None) -> None:
        way = self._way
        if error is None and self._content.is_eof():
            is_good, upstream = self._status < SERVER_ERROR, self._destination.upstream
            self._release(is_good)
            way.durations.observe(self.took())
            if upstream is not None and is_good and self._status not in BUSY:
                upstream.answered_at = self._desk.clock()
                took = self._head_after if self._status < 400 and self._is_timed else 0.0
                self._desk.witness.answered(upstream, self._route, took, self._started)
            return
        # ClientConnectionError is what aiohttp sets where a body is left unread.
        if error is None or type(error) in (aiohttp.ClientConnectionError, SessionClosed):
            way.abandoned += 1
        else:
            error.add_note(self._where)
            self._blame("body")
            self._log_error("body", _words(error))

    def _failed(self, error: BaseException) -> None:
        try:
            self._tell_of(error)
        finally:
            self._release(False)

    def _tell_of(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError) or self._desk.http.closed:  # hardly the upstream's fault
            self._way.abandoned += 1
            upstream, route = self._destination.upstream, self._route
            if upstream is not None and route is not None and self._is_timed:
                self._desk.witness.unanswered(upstream, self._started, route, has_left=True)
        elif isinstance(error, aiohttp.ClientResponseError) and error.status:  # raise_for_status is on
            error.add_note(self._where)
            self._way.requests[error.status] += 1
            self._answered(error.status, error.headers.get("Retry-After") if error.headers else None)
        elif isinstance(error, aiohttp.ClientError | OSError):
            error.add_note(self._where)
            self._way.requests[NO_ANSWER] += 1
            if is_failure(error):
                self._blame(reason_of(error))
            self._log_error(reason_of(error), _words(error))

    def _answered(self, status: int, retry_after: str | None) -> None:
        upstream = self._destination.upstream
        if upstream is not None and (status in BUSY or status >= SERVER_ERROR):
            seconds = None if retry_after is None else asked_for(retry_after.strip(), time.time())
            self._is_good = self._desk.witness.replied(upstream, status, seconds, self._route)
        if status >= SERVER_ERROR:
            self._log_error("status", f"status {status}")

    def _blame(self, reason: str) -> None:
        if self._destination.upstream is not None:
            self._is_good = False
            self._desk.witness.failed(self._destination.upstream, reason, self._route)

    @property
    def _where(self) -> str:
        """For the error that the caller gets: aiohttp's name a host at best, and many none."""
        upstream, node = self._destination.upstream, self._desk.node
        if upstream is None:
            return f"fallback {self._desk.fallback}, called on node {node}"
        return f"upstream {upstream.member} on node {upstream.spec.node or 'unknown'}, called on node {node}"

    @property
    def _route(self) -> Route | None:
        return None if self._destination.plan is None else self._destination.plan.route

    def _release(self, completed: bool) -> None:
        """Every call after the first does nothing."""
        self._watch.ends()
        handle, self._handle = self._handle, None
        route, desk = self._route, self._desk
        if handle is None:
            return
        if self._is_good or route is None:
            handle.release(completed)
        else:
            release_later(desk.witness, handle, route, self._started, desk.clock())

    def _log_error(self, reason: str, error: str) -> None:
        """With both nodes: errors that have one in common point to the node, not to the upstream."""
        self._way.errors[reason] += 1
        upstream, plan = self._destination.upstream, self._destination.plan
        _log.warning(
            "outbound_error",
            way=self._way.name,
            destination=self._desk.fallback if upstream is None else upstream.member,
            destination_node="" if upstream is None else upstream.spec.node,
            node=self._desk.node,
            route="" if plan is None else plan.route.path,
            method=self._question.method,
            path=self._question.target.normal,
            attempt=self._attempt,
            reason=reason,
            error=error,
        )


def closed_meanwhile() -> SessionClosed:
    """The error of a call that was out or waiting when its session was closed."""
    return SessionClosed("the session was closed while the call was out")


class _Lost(aiohttp.ClientError):
    """The connection was lost; `error` has the cause."""

    def __init__(self, error: aiohttp.ClientError) -> None:
        super().__init__(error)
        self.error = error


async def send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """A middleware against aiohttp's own retries of idempotent requests, which go to the same upstream."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Lost(error) from None


def staying(sent_to: URL, may_lead_to: Callable[[URL], bool]) -> aiohttp.ClientMiddlewareType:
    """A middleware of a call `sent_to` this URL that follows redirects: none to where none `may_lead_to`."""

    async def check(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if request.url.origin() != sent_to.origin() and not may_lead_to(request.url):
            raise aiohttp.InvalidUrlRedirectClientError(request.url, "no redirect leads away from the upstreams")
        return await handler(request)

    return check


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
