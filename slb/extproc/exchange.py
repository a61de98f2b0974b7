"""One request that passes through Envoy: from its headers to the end of its stream. The slot is released there,
exactly once, whatever ended it: the reply's last byte, a reset, the client's leaving, Envoy's death."""

import math
from collections.abc import Callable, Collection
from uuid import uuid4

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from slb.admission.entry import Entry
from slb.answers import usable_id
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import (
    BAD_REQUEST,
    CLIENT_GAVE_UP,
    CLIENT_GONE,
    ERROR_FRAME,
    METHOD_NOT_ALLOWED,
    NO_ROUTE,
    NO_ROUTE_HERE,
    NO_UPSTREAM,
    UPSTREAM_RESET,
    InvalidName,
    Reason,
    Refused,
    SlbError,
)
from slb.extproc.answers import GOES_ON, goes_to, refused, streamed_on, waits
from slb.extproc.choice import address_of, ask_for_slot, attempts, choose, key_in
from slb.extproc.context import ExtProcContext
from slb.extproc.failures import ATTEMPT
from slb.extproc.outgoing import Outgoing
from slb.extproc.request import Head, Reply, reply_of, subset_of
from slb.extproc.verdict import failed_before, judged, speaks_broken_off
from slb.observe.decisions import NOTHING_FOUND, Snapshot
from slb.routing.table import Route
from slb.routing.witness import ReplyWatch, release_later
from slb.upstreams.frames import ErrorEvents

_MORE = 5.0
"""Seconds beyond the queue's time that an answer may take: as long as Redis may be silent, and a little."""
BROKE_OFF = "broke its answer off"
_NOBODY: frozenset[LiveUpstream] = frozenset()


class NotReady(SlbError):
    """There is no table yet: Envoy's own balancing serves better than a refusal."""


class OutOfOrder(SlbError):
    """What Envoy shows does not begin with a request's headers (`request_header_mode: SKIP`): slb has nothing to
    answer it with."""


class _NoRoute:
    path = ""


class Exchange:
    """Times are those of the context's clock, 0 until then: `started`; `sent_at`, when the pick was answered;
    `first_byte_at`, when the reply began; `_whole_at`, since when all of the request is there, 0 where that is not
    known. `_served`: the upstream whose reply has begun well, and how long that took since when, 0 where it says
    nothing. Bodies count nothing, and are read for `_events` alone, where Envoy shows them. `out`: what goes to
    Envoy."""

    bytes_in = 0
    bytes_out = 0
    sent_at = 0.0
    first_byte_at = 0.0
    status = 0
    route: Route | _NoRoute = _NoRoute()
    _handle: Handle | None = None
    _entry: Entry | None = None
    _snapshot: Snapshot = NOTHING_FOUND
    _head: Head | None = None
    _reason: Reason | None = None
    _detail = ""
    _path = ""
    _key = b""
    request_id = ""
    _is_good = True
    _is_over = False
    _tried: tuple[LiveUpstream, ...] = ()
    _without: frozenset[LiveUpstream] = _NOBODY
    _attempts = 1
    _duplex: Collection[str] = ()
    _whole_at = 0.0
    _served: tuple[LiveUpstream, float, float] | None = None
    _events: ErrorEvents | None = None

    def __init__(self, context: ExtProcContext, send: Callable[[bytes], None]) -> None:
        self._context = context
        self.out = Outgoing(send)
        self.started = context.clock()
        self._watch = ReplyWatch(context.witness, context.clock)

    # -- what Envoy shows

    def take(self, message: bytes) -> bytes:
        """The answer to what Envoy shows; empty where it comes later. Raises NotReady, OutOfOrder, and what
        protobuf raises for what is no message."""
        request = ProcessingRequest.FromString(message)
        kind = request.WhichOneof("request") or ""
        if kind == "request_headers":
            if self._head is None:  # they come once
                self._begin(request)
            return self.out.collect(self._is_late)
        if self._head is None:
            raise OutOfOrder(f"the first message is {kind or 'empty'}, and no request_headers")
        if kind == "request_body" and request.request_body.end_of_stream:
            self._whole_at = self._context.clock()
            self._expect_reply()
        if kind == "response_headers":
            self._replied(reply_of(request))
        if kind == "response_body":
            self._look_for_errors(request.response_body.body, request.response_body.end_of_stream)
        return self.out.next(streamed_on(request, kind) if kind in self._duplex else GOES_ON.get(kind, b""))

    def _begin(self, request: ProcessingRequest) -> None:
        self._head = head = Head(request.request_headers)
        self.request_id = usable_id(head.value("x-request-id")) or uuid4().hex
        self._context.open[self.request_id] = self
        self._duplex = _streamed_both_ways(request)
        if request.request_headers.end_of_stream or head.announces_little:
            self._whole_at = self.started
        try:
            self._seek(self._routed(head), head, subset_of(request))
        except Refused as refusal:
            self.rejected(refusal.reason, refusal.detail)

    def _routed(self, head: Head) -> Route:
        """Raises Refused, NotReady."""
        if head.method == "CONNECT":
            raise Refused(METHOD_NOT_ALLOWED, "CONNECT is for forward proxies")
        try:
            found = self._context.routes.get(head.path)
        except InvalidName as error:
            raise Refused(BAD_REQUEST, str(error)) from None
        if found.route is None:
            if not self._context.mirror.ready:
                raise NotReady("the routes are not known yet")
            raise Refused(NO_ROUTE, NO_ROUTE_HERE)
        self.route = found.route
        self._path = found.sent + head.query if found.sent else ""
        self._key = key_in(found.route, head, found.normal)
        return found.route

    def _seek(self, route: Route, head: Head, subset: frozenset[str] | None) -> None:
        context, outside = self._context, _NOBODY
        failed = _NOBODY
        if head.value(ATTEMPT) not in ("", "1"):
            failed = context.failures.of(self.request_id)
        if subset is not None:
            outside = frozenset(each for each in route.serving if address_of(each) not in subset)
        if self.started >= route.view.snapshot_until:
            context.snapshots.take(route, self._key, self.started)
        self._snapshot = route.view.snapshot
        avoided = route.view.avoiding(failed, failed, outside)
        self._without = never = failed | outside
        if not route.view.left(avoided | outside):
            where = "" if subset is None else " in the subset that may be picked from"
            raise Refused(NO_UPSTREAM, f"{route.path} has no upstream that takes requests{where}")
        if route.is_counted:
            self._entry = ask_for_slot(route, context, self, head, self._key, never, avoided | outside)
        else:
            self.admitted(Handle(choose(route, context, self._key, avoided, outside)))

    def _is_late(self) -> None:
        """It waits for a slot, or for Redis: Envoy shall not take slb for dead."""
        entry = self._entry
        if entry is not None:
            self.out.send(waits(math.ceil((entry.wait.left if entry.turn else 0.0) + _MORE)))

    # -- what the gate says

    def admitted(self, handle: Handle) -> None:
        """It has a slot: tell Envoy where to send it."""
        self._handle = handle
        assert isinstance(self.route, Route)
        self._tried = attempts(self.route, self._context, self._key, handle.upstream, self._without)
        self.sent_at = self._context.clock()
        self._expect_reply()
        self.out.first(goes_to(",".join(map(address_of, self._tried)), self._path, self.route.path))

    @property
    def _owed_since(self) -> float:
        """Since when the upstream has had all of the request; 0 where that is not known, or it has none."""
        return max(self.sent_at, self._whole_at) if self.sent_at and self._whole_at else 0.0

    def _expect_reply(self) -> None:
        handle, route = self._handle, self._judged_by
        if self._owed_since and not self.status and handle is not None and route is not None:
            self._watch.owed(handle.upstream, route, self._owed_since)

    def rejected(self, reason: Reason, detail: str) -> None:
        """It gets none: tell Envoy what to answer."""
        self._reason, self._detail, self.status = reason, detail, reason.status
        self.out.first(refused(reason, detail, self.request_id, self._context.tells_all))

    # -- the reply

    def _replied(self, reply: Reply) -> None:
        handle, context = self._handle, self._context
        if handle is None:
            return
        self.status, self.first_byte_at = reply.status, context.clock()
        self._watch.ends()
        self._attempts = max(1, reply.attempts)
        if reply.served and reply.served != address_of(handle.upstream):
            handle = self._moved(handle, reply)
        verdict, upstream = judged(reply), handle.upstream
        if verdict.is_refused:
            context.witness.refused(upstream)
        if verdict.is_status:
            self._detail = reply.details
            context.failures.note(self.request_id, upstream)
            self._is_good = context.witness.replied(upstream, reply.status, reply.retry_after, self._judged_by)
        elif verdict.why:
            self._detail, self._is_good = reply.details, False
            self._failed_at(upstream, verdict.why)
        elif verdict.is_served:
            upstream.answered_at = upstream.alive_at = self.first_byte_at
            since = self._owed_since if reply.status < 400 and self._attempts == 1 else 0.0
            took = self.first_byte_at - since if since else 0.0
            self._served = upstream, took, since
            self._watch.begins(upstream)
            if reply.is_stream:
                self._events = ErrorEvents()
                handle.lasts()

    def _look_for_errors(self, piece: bytes, ended: bool) -> None:
        """As the proxy does: an engine that fails once its answer has begun can say so only in the stream."""
        if self._events is not None and self._served is not None and self._events.is_in(piece, ended):
            self._spoilt(self._served[0], ERROR_FRAME, "told of an error in its stream")

    def broke_off(self, served: str) -> bool:
        """As `Open` has it."""
        if self._served is None or address_of(self._served[0]) != served:
            return False
        if self._is_good and speaks_broken_off(self.status):
            self._spoilt(self._served[0], UPSTREAM_RESET, BROKE_OFF)
        return True

    def _spoilt(self, upstream: LiveUpstream, reason: Reason, what: str) -> None:
        """A reply that began well has failed."""
        self._events, self._is_good = None, False
        self._reason, self._detail = reason, f"{address_of(upstream)} {what}"
        self._failed_at(upstream, reason.name)

    def _moved(self, handle: Handle, reply: Reply) -> Handle:
        """Envoy has sent it to another upstream: the slot goes there."""
        mirror, failed = self._context.mirror, failed_before(self._tried, reply, address_of)
        for each in failed:
            self._failed_at(each, "retried")
        self._context.metrics.extproc.moved["retry" if failed else "unknown"] += 1
        upstream = mirror.upstream(reply.served) or mirror.upstream(f"https://{reply.served}")
        if upstream is None:
            return handle
        self._handle = handle.moved(upstream)
        self._release(handle, is_good=not failed, completed=False)
        return self._handle

    def _release(self, handle: Handle, is_good: bool, completed: bool) -> None:
        """`is_good`: the request has not failed there."""
        if is_good or not isinstance(self.route, Route):
            handle.release(completed)
        else:
            release_later(self._context.witness, handle, self.route, self.sent_at, self._context.clock())

    def _failed_at(self, upstream: LiveUpstream, why: str) -> None:
        self._context.failures.note(self.request_id, upstream)
        self._context.witness.failed(upstream, why, self._judged_by)

    @property
    def _judged_by(self) -> Route | None:
        return self.route if isinstance(self.route, Route) else None

    def _is_given_up(self) -> bool:
        """Whether the client has waited for the upstream for too long. One whose body may still have been on its
        way has waited for itself."""
        handle, route, since = self._handle, self._judged_by, self._owed_since
        if handle is None or route is None or not since:
            return False
        return self._context.witness.unanswered(handle.upstream, since, route, has_left=True)

    # -- the end

    def end(self, is_cut: bool = False) -> None:
        """The stream has ended: release the slot, count, log. Every call after the first does nothing. `is_cut`:
        slb has ended it, as it stops."""
        if self._is_over:
            return
        self._is_over = True
        self.out.close()
        self._watch.ends()
        if self._entry is not None:
            self._entry.leave()
        if self._head is None:  # nothing was asked
            return
        if self._context.open.get(self.request_id) is self:
            del self._context.open[self.request_id]
        if self._served is not None and self._is_good:
            upstream, took, since = self._served
            self._context.witness.answered(upstream, self._judged_by, took, since)
        context, handle, now = self._context, self._handle, self._context.clock()
        if not self.status:
            self._reason = CLIENT_GAVE_UP if not is_cut and self._is_given_up() else CLIENT_GONE
            self.status = self._reason.status
            context.metrics.extproc.unanswered += handle is None
        member, reason = "", self._reason.name if self._reason is not None else ""
        if handle is not None:
            member = handle.upstream.member
            self._release(handle, self._is_good, completed=not reason and 200 <= self.status < 500)
        context.metrics.traffic.request_ended(self, member, self.status, reason, now)
        queueing = self._entry.queueing() if self._entry is not None else None
        came, snapshot = (self.started, self.sent_at, self.first_byte_at), self._snapshot
        decided = (self.request_id.encode(), self.route.path, member, self.status, *came, now, snapshot.ref)
        context.metrics.decisions.note(decided, snapshot, reason, self._detail, queueing=queueing)
        if context.access_log.wants(self.status, reason, handle is not None):
            self._log(self._head, reason, now)

    def _log(self, head: Head, reason: str, now: float) -> None:
        """One line of the access log, with the fields that the proxy's have."""
        upstream = self._handle.upstream if self._handle is not None else None
        entry, queued = self._entry, {}
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
            attempts=self._attempts,
            first_byte=self.first_byte_at - self.started if self.first_byte_at else None,
            duration=now - self.started,
            request_id=self.request_id,
            **queued,
        )


def _streamed_both_ways(request: ProcessingRequest) -> Collection[str]:
    """Which bodies Envoy passes on only as far as they are sent back."""
    modes = request.protocol_config
    bodies = (("request_body", modes.request_body_mode), ("response_body", modes.response_body_mode))
    return tuple(kind for kind, mode in bodies if mode == ProcessingMode.FULL_DUPLEX_STREAMED)
