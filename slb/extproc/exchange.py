"""One request that passes through Envoy: from its headers to the end of its stream. The slot is released there,
exactly once, whatever ended it: the reply's last byte, a reset, the client's leaving, Envoy's death."""

import asyncio
import math
from collections.abc import Callable
from uuid import uuid4

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from slb.admission.entry import Entry
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import (
    BAD_REQUEST,
    CLIENT_GONE,
    METHOD_NOT_ALLOWED,
    NO_ROUTE,
    NO_ROUTE_HERE,
    NO_UPSTREAM,
    InvalidName,
    Reason,
    SlbError,
)
from slb.extproc.answers import GOES_ON, goes_to, refused, streamed_on, waits
from slb.extproc.choice import address_of, ask_for_slot, attempts, choose, key_in
from slb.extproc.context import ExtProcContext
from slb.extproc.request import Head, Reply, reply_of, subset_of
from slb.extproc.verdict import failed_before, judged
from slb.routing.table import Route

_LATE = 0.25
"""Seconds after which Envoy is told that an answer takes longer. Its default `message_timeout` is 0.2 s, and none
should be set that is below a second: a garbage collection or a Redis that fails over takes as long."""
_MORE = 5.0
"""Seconds beyond the queue's time that an answer may take: as long as Redis may be silent, and a little."""

_NOBODY: frozenset[LiveUpstream] = frozenset()
_STREAMED = ProcessingMode.FULL_DUPLEX_STREAMED


class NotReady(SlbError):
    """There is no table yet: Envoy's own balancing serves better than a refusal."""


class _NoRoute:
    path = ""


class Exchange:
    """`send`: what an answer goes to that was not there at once. Times are those of the context's clock, 0 until
    then: `started`; `sent_at`, when the pick was answered; `first_byte_at`, when the reply began. Bodies are not
    seen, and count nothing."""

    bytes_in = 0
    bytes_out = 0
    sent_at = 0.0
    first_byte_at = 0.0
    status = 0
    _handle: Handle | None = None
    _entry: Entry | None = None
    _head: Head | None = None
    _reason: Reason | None = None
    _detail = ""
    _path = ""
    _key = b""
    _request_id = ""
    _is_over = False
    _is_counted = False
    _now_answer: bytes | None = None
    _is_asking = False
    _late: asyncio.TimerHandle | None = None
    _tried: tuple[LiveUpstream, ...] = ()
    _outside: frozenset[LiveUpstream] = _NOBODY

    def __init__(self, context: ExtProcContext, send: Callable[[bytes], None]) -> None:
        self._context = context
        self._send = send
        self.started = context.clock()
        self.route: Route | _NoRoute = _NoRoute()

    # -- what Envoy shows

    def take(self, message: bytes) -> bytes:
        """The answer to what Envoy shows; empty where it comes later, through `send`. Raises NotReady, and what
        protobuf raises for what is no message."""
        request = ProcessingRequest.FromString(message)
        kind = request.WhichOneof("request")
        if kind == "request_headers":
            return self._begin(request)
        if kind == "response_headers":
            self._replied(reply_of(request))
        elif kind in ("request_body", "response_body"):
            return streamed_on(request, kind)
        return GOES_ON.get(kind or "", b"")

    def _begin(self, request: ProcessingRequest) -> bytes:
        context = self._context
        self._head = head = Head(request.request_headers)
        self._request_id = head.value("x-request-id") or uuid4().hex
        self._is_asking = True
        if head.method == "CONNECT":
            self.rejected(METHOD_NOT_ALLOWED, "CONNECT is for forward proxies")
        else:
            try:
                found = context.routes.get(head.path)
            except InvalidName as error:
                self.rejected(BAD_REQUEST, str(error))
            else:
                if found.route is None:
                    self._has_no_route()
                else:
                    self.route = found.route
                    self._path = found.sent + head.query if found.sent else ""
                    self._key = key_in(found.route, head, found.normal)
                    self._seek(found.route, head, subset_of(request))
        self._is_asking = False
        answer, self._now_answer = self._now_answer, None
        if answer is None:
            self._late = asyncio.get_running_loop().call_later(_LATE, self._is_late)
            return b""
        return answer

    def _is_late(self) -> None:
        """It waits for a slot, or for Redis: Envoy shall not take slb for dead."""
        self._late, entry = None, self._entry
        if entry is not None and not self._is_over:
            self._send(waits(math.ceil((entry.wait.left if entry.turn else 0.0) + _MORE)))

    def _has_no_route(self) -> None:
        if not self._context.mirror.ready:
            raise NotReady("the routes are not known yet")
        self.rejected(NO_ROUTE, NO_ROUTE_HERE)

    def _seek(self, route: Route, head: Head, subset: frozenset[str] | None) -> None:
        context, failed = self._context, _NOBODY
        if subset is not None:
            self._outside = frozenset(each for each in route.serving if address_of(each) not in subset)
        without = route.view.avoiding(failed)
        if not route.view.left(without | self._outside):
            where = "" if subset is None else " in the subset that may be picked from"
            self.rejected(NO_UPSTREAM, f"{route.path} has no upstream that takes requests{where}")
        elif route.is_counted:
            never = failed | self._outside
            self._entry = ask_for_slot(
                route, context, self, head, self._key, never, without | never if failed else _NOBODY
            )
        else:
            self.admitted(Handle(choose(route, context, self._key, without, self._outside)))

    # -- what the gate says

    def admitted(self, handle: Handle) -> None:
        """It has a slot: tell Envoy where to send it."""
        self._handle = handle
        route = self.route
        assert isinstance(route, Route)
        self._tried = attempts(route, self._context, self._key, handle.upstream, self._outside)
        self.sent_at = self._context.clock()
        self._answer(goes_to(",".join(map(address_of, self._tried)), self._path))

    def rejected(self, reason: Reason, detail: str) -> None:
        self._reason, self._detail, self.status = reason, detail, reason.status
        self._answer(refused(reason, detail, self._request_id, self._context.tells_all))

    def _answer(self, answer: bytes) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._is_over:
            return
        if self._is_asking:
            self._now_answer = answer
        else:
            self._send(answer)

    # -- the reply

    def _replied(self, reply: Reply) -> None:
        handle, context = self._handle, self._context
        if handle is None or self._is_over:
            return
        self.status, self.first_byte_at = reply.status, context.clock()
        if reply.served and reply.served != address_of(handle.upstream):
            handle = self._moved(handle, reply)
        verdict = judged(reply)
        upstream = handle.upstream
        if verdict.is_refused:
            context.on_refusal(upstream)
        if verdict.why:
            self._detail = reply.details
            context.on_failure(upstream, verdict.why)
        elif verdict.is_served:
            upstream.answered_at, upstream.failures = self.first_byte_at, 0
            if reply.is_stream and upstream.load_stats is not None:
                handle.lasts()

    def _moved(self, handle: Handle, reply: Reply) -> Handle:
        """Envoy has sent it to another upstream: the slot goes there."""
        for each in failed_before(self._tried, reply, address_of):
            self._context.on_failure(each, "retried")
        mirror = self._context.mirror
        upstream = mirror.upstream(reply.served) or mirror.upstream(f"https://{reply.served}")
        if upstream is not None:
            self._handle = handle = handle.moved(upstream)
        return handle

    # -- the end

    def end(self) -> None:
        """The stream has ended: release the slot, count, log. Every call after the first does nothing."""
        if self._is_over:
            return
        self._is_over = True
        context, handle, now = self._context, self._handle, self._context.clock()
        if self._late is not None:
            self._late.cancel()
        if self._entry is not None:
            self._entry.leave()
        if self._head is None:  # nothing was asked
            return
        if not self.status:
            self._reason, self.status = CLIENT_GONE, CLIENT_GONE.status
        member, reason = "", self._reason.name if self._reason is not None else ""
        if handle is not None:
            member = handle.upstream.member
            handle.release(not reason and 200 <= self.status < 500)
        context.metrics.traffic.request_ended(self, member, self.status, reason, now)
        if context.access_log.wants(self.status, reason, handle is not None):
            self._log(self._head, reason, now)

    def _log(self, head: Head, reason: str, now: float) -> None:
        """One line of the access log, with the fields that the proxy's have."""
        upstream = self._handle.upstream if self._handle is not None else None
        entry = self._entry
        queued = {}
        if entry is not None and entry.wait.position is not None:
            queued = {"queued": entry.wait.waited, "position": entry.wait.position}
        self._context.access_log.write(
            reached=upstream is not None,
            method=head.method,
            path=head.path,
            status=self.status,
            reason=reason,
            detail=self._detail,
            route=self.route.path,
            upstream=upstream.member if upstream is not None else "",
            node=upstream.spec.node if upstream is not None else "",
            first_byte=self.first_byte_at - self.started if self.first_byte_at else None,
            duration=now - self.started,
            request_id=self._request_id,
            **queued,
        )
