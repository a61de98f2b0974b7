"""What an exchange has, and its end, which comes exactly once."""

from slb.admission.entry import Entry
from slb.balance.upstream import Handle
from slb.errors import CLIENT_GAVE_UP, CLIENT_GONE, REQUEST_TIMEOUT, UPSTREAM_TIMEOUT, Reason
from slb.observe.decisions import NOTHING_FOUND, Snapshot
from slb.observe.trace import Attempt, Place
from slb.proxy.context import ProxyContext
from slb.proxy.interfaces import Client
from slb.proxy.request import Request
from slb.proxy.retry import NOTHING, Tried
from slb.proxy.states import EXCHANGE, ExchangeEvent, ExchangeState
from slb.proxy.upload import Upload
from slb.routing.witness import hangs, release_later
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.deadlines import NEVER, Timed

_SEEKING, ENDED = ExchangeState.SEEKING, ExchangeState.ENDED
_END = ExchangeEvent.END
_FLOWS_WITHIN = 5.0
"""Seconds since the last byte for which a reply without an end is one that goes well."""


class ExchangeBase(Timed):
    """`client`: the connection the request came on. In seconds, 0 until then: `started`, when its head had come;
    `connecting_at`, when a new connection to its last upstream was begun; `sent_at`, when all of it was sent there,
    or its head, as long as the body comes; `first_byte_at`, when the reply's body began, or its head, as long as
    there is none. `tried`: earlier attempts; `attempted`: what a trace has of them; `entry`: that of the gate;
    `snapshot`: what it found of its route; `status`: of the reply, 0 until it has begun; `detail`: what the log
    says of the last attempt; `keep_client`: the client's connection stays open; `chunks_reply`: the reply's body is
    chunked for the client; `place`: in its trace, where it has one. `is_timed`: all of the request was sent at
    `sent_at`, so that the time to the first byte is the upstream's; `is_good`: nothing of the reply speaks against
    it. `owes_body`: its head has come without any of its body; `may_be_silent`: there may be nothing to tell in it
    for as long as it lasts; `silence`: how many bytes of its body had come, and since when there were no more, when
    it was last asked for. Class attributes are defaults that few exchanges change."""

    connection: UpstreamConnection | None = None
    handle: Handle | None = None
    upload: Upload | None
    entry: Entry | None
    snapshot: Snapshot = NOTHING_FOUND
    tried: Tried
    attempted: tuple[Attempt, ...] = ()
    status = 0
    is_timed = True
    is_good = True
    owes_body = False
    may_be_silent = False
    silence: tuple[int, float] | None = None
    bytes_in: int
    bytes_out: int
    keep_client: bool
    chunks_reply: bool
    detail: str
    connecting_at = 0.0
    sent_at = 0.0
    first_byte_at = 0.0
    _slot = -1
    _looked_at = NEVER
    place: Place | None = None

    def __init__(self, context: ProxyContext, client: Client, request: Request, started: float) -> None:
        self._context = context
        self.client = client
        self.request = request
        self.route = request.route
        self.started = started
        self.state = _SEEKING
        # What every exchange reads: an object's own are read ten times as fast as its class's.
        self.tried = NOTHING
        self.upload = self.entry = None
        self.bytes_in = self.bytes_out = 0
        self.keep_client, self.chunks_reply = True, False
        self.detail = ""

    @property
    def request_ended(self) -> bool:
        """Whether all of the request has come."""
        return self.upload is None or self.upload.ended

    def rejected(self, reason: Reason, detail: str) -> None:
        """Refuse it: there is no slot for it, or no upstream."""
        if self.state is ENDED:
            return
        self._drop_connection()
        request_ended = self.request_ended
        self._end(reason.status, reason, detail, self._context.clock())
        self.client.refuse(self.request, reason, detail, request_ended)

    def fail(self, reason: Reason, detail: str) -> None:
        """Answer with `reason`; where the reply has begun, break it off."""
        if self.status and self.state is not ENDED:
            self._had_no_body()
            self._end(self.status, reason, detail, self._context.clock())
            self._drop_connection()
            self.client.reply_broken()
        else:
            self.rejected(reason, detail)

    def client_lost(self) -> None:
        """The client has left: end the upstream's work too."""
        context, now = self._context, self._context.clock()
        context.metrics.clients.disconnects += 1
        reason = CLIENT_GAVE_UP if self._is_given_up(now) else CLIENT_GONE
        self._had_no_body()
        self._end(reason.status, reason, "", now)
        self._drop_connection()

    @property
    def _owes_first_byte(self) -> bool:
        return not self.status or self.owes_body

    @property
    def owed_since(self) -> float:
        """Since when the upstream owes what comes next; 0 where it owes nothing, or that is not known."""
        if not self.is_timed or self.may_be_silent:
            return 0.0
        if self._owes_first_byte:
            return self.sent_at
        return self.silence[1] if self.silence is not None and self.silence[0] == self.bytes_out else 0.0

    def _is_given_up(self, now: float) -> bool:
        """Whether a client that leaves has waited for its upstream for too long. One that leaves in the middle
        of an answer may have all that it wanted."""
        connection, witness, handle = self.connection, self._context.witness, self.handle
        if connection is None and handle is not None and not self.status:  # one is being made
            return hangs(handle.upstream, now - self.connecting_at)
        if connection is None or not self.is_timed:
            return False
        upstream = connection.pool.upstream
        if since := self.owed_since:
            return witness.unanswered(upstream, since, self.route, True, self.bytes_out > 0)
        if self.is_good and now - upstream.alive_at < _FLOWS_WITHIN:
            witness.answered(upstream, self.route)
        return False

    def _had_no_body(self) -> None:
        """The head of a reply that has come to nothing is no first byte."""
        if self.owes_body:
            self.first_byte_at = 0.0

    def client_late(self) -> None:
        """The client did not send its body, or did not read its reply, in time."""
        what = "the client did not read its reply" if self.client.is_stalled else "the request's body did not come"
        self.fail(REQUEST_TIMEOUT, f"{what} in time")

    def expired(self) -> None:
        """The request took longer than it may. Blame the upstream if the limit is the route's, not the caller's
        own, and the upstream had all of the request for half of that time and has not answered: the rest may have
        passed in slb's queue, or while the body came."""
        detail, connection = "the whole request took longer than its time", self.connection
        if connection is not None:
            detail += f", {'answered' if self.status else 'not answered'} by {connection.destination}"
            had = self._context.clock() - self.sent_at if self.is_timed and self._owes_first_byte else 0.0
            if had >= self.route.settings.request_timeout / 2 and not self.request.head.timeout:
                self._context.witness.failed(connection.pool.upstream, UPSTREAM_TIMEOUT.name, self.route)
        self.fail(UPSTREAM_TIMEOUT, detail)

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()

    def _end(self, status: int, reason: Reason | None, detail: str, now: float) -> None:
        """Release the slot, count, log; once."""
        if self.state is ENDED:
            return
        self.state = EXCHANGE[self.state][_END]
        self.upload = None  # which has this one: together they would stay until the next garbage collection
        context, handle = self._context, self.handle
        if self._slot >= 0:
            context.wheel.forget(self)
        else:
            self.due = NEVER  # the wheel may be about to expire it, with others of its slot
        if (entry := self.entry) is not None:
            entry.leave()
        member = ""
        if handle is not None:
            member = handle.upstream.member
            if self.is_good:
                handle.release(reason is None and 200 <= status < 500)  # a tunnel lasts as long as it likes
            else:
                self._release_later(handle, now)
        name = reason.name if reason is not None else ""
        metrics, request, failures = context.metrics, self.request, self.tried.failures
        metrics.traffic.request_ended(self, member, status, name, now)
        snapshot, started = self.snapshot, self.started
        decided = (
            request.id,
            request.route.path,
            member,
            status,
            started,
            self.sent_at,
            self.first_byte_at,
            now,
            snapshot.ref,
        )
        if entry is None and not name and not failures and status < 500 and now - started <= snapshot.slow:
            metrics.decisions.plain.append(decided)
        else:
            queueing = entry.queueing() if entry is not None else None
            tried = tuple(each.member for each in self.tried.upstreams)
            metrics.decisions.note(decided, snapshot, name, detail, failures, tried, queueing)
        if context.access_log.wants(status, name or (failures[0] if failures else ""), handle is not None):
            self._log(status, name, detail, now)
        if context.on_end is not None and (self.place is not None or status >= 500 or name or self.attempted):
            context.on_end(self, status, name, detail, now)

    def _release_later(self, handle: Handle, now: float) -> None:
        """An attempt has failed there."""
        release_later(self._context.witness, handle, self.route, self.sent_at, now)

    def attempt_until(self, now: float, status: int, error: str) -> Attempt:
        """What a trace has of the attempt under way, which ends `now`: with the reply's `status`, 0 where none
        began, and the name of an `error`."""
        spec = self.handle.upstream.spec if self.handle is not None else None
        wait = self.entry.wait if self.entry is not None else None
        return Attempt(
            *((spec.member, spec.scheme, spec.host, spec.port) if spec is not None else ("", "", "", 0)),
            *((wait.arrived, wait.waited, wait.position) if wait is not None else (0.0, 0.0, None)),
            self.entry.turn.priority if self.entry is not None and self.entry.turn is not None else "",
            self.connecting_at,
            self.sent_at,
            self.first_byte_at,
            now,
            status,
            error,
        )

    def _log(self, status: int, reason: str, detail: str, now: float) -> None:
        """One line of the access log."""
        request, connection, failures = self.request, self.connection, self.tried.failures
        upstream = self.handle.upstream if self.handle is not None else None
        self._context.access_log.write(
            reached=upstream is not None,
            method=request.line.method.decode(),
            path=request.line.path.decode(),
            status=status,
            reason=reason,
            detail=detail,
            route=request.route.path,
            upstream=upstream.member if upstream is not None else "",
            node=upstream.spec.node if upstream is not None else "",
            attempts=len(self.tried.upstreams) + 1,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            owed=connection.owed if connection is not None else 0,
            first_byte=self.first_byte_at - self.started if self.first_byte_at else None,
            duration=now - self.started,
            client=request.peer.address,
            request_id=request.id.decode(),
            **_queueing(self.entry),
            **({"failed": failures} if failures else {}),
        )


def _queueing(entry: Entry | None) -> dict[str, float]:
    if entry is None or entry.wait.position is None:
        return {}
    return {"queued": entry.wait.waited, "position": entry.wait.position}
