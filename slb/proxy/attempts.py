"""A request on its way to an upstream: the choice, the slot, the connection; and again, where an attempt failed and
the request may be sent again.

All waiting is in callbacks; on the way without a new connection nothing awaits.
"""

import asyncio

import structlog

from slb.balance.retry import may_repeat
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import INTERNAL, NO_UPSTREAM, OVERLOADED, UPSTREAM_CONNECT, UPSTREAM_UNREACHED, Reason
from slb.proxy.choice import ask_for_slot, choose, take_snapshot
from slb.proxy.exchange_base import ENDED, ExchangeBase
from slb.proxy.retry import Tried, on_fresh_connection, past_full
from slb.proxy.states import EXCHANGE, ExchangeEvent
from slb.proxy.upload import Upload
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.interfaces import Lender
from slb.upstreams.pool import ConnectFailed

_log = structlog.get_logger("slb.proxy")

_LEAVE = ExchangeEvent.LEAVE


class Attempts(ExchangeBase):
    _waiting: asyncio.Task[None] | asyncio.TimerHandle | None = None

    def _send(self, connection: UpstreamConnection) -> None:
        """Send the request on `connection`, and expect its reply."""
        raise NotImplementedError

    def body_is_sent(self) -> None:
        """The rest of the request's body has been written."""
        raise NotImplementedError

    # -- one attempt

    def begin(self, payload: bytes, ended: bool) -> None:
        """Send the request. `payload`: what has come of its body; `ended`: that is all of it."""
        head = self.request.head
        limit = head.timeout or self.route.settings.request_timeout
        if limit:
            self._context.wheel.arm(self, self.started + limit)
        if head.length:
            context = self._context
            self.upload = Upload(self, context.wheel, context.outbox, payload, ended)
        self._attempt(self.started)

    def _attempt(self, now: float) -> None:
        route = self.route
        view = route.view
        if now >= view.snapshot_until:
            take_snapshot(self, self._context, now)
        self.snapshot = view.snapshot
        without, left = self.tried.avoided, view.upstreams
        if without:
            without = view.avoiding(without, self.tried.upstreams)
            left = view.left(without)
        if not left:
            self.rejected(NO_UPSTREAM, f"{route.path} has no upstream that takes requests")
        elif route.is_counted:
            self.entry = ask_for_slot(self, self._context, without)
        else:
            self.admitted(Handle(choose(self, self._context, without)))

    def admitted(self, handle: Handle) -> None:
        """It has a slot: connect to the upstream."""
        self.handle = handle
        try:
            pool = self._context.pools.of(handle.upstream)
            connection = pool.take()
            if connection is not None:
                self._send(connection)
            else:
                self._connect(pool)
        except Exception:  # noqa: BLE001 -- the gate that called has no use for it
            self._broke()

    def _connect(self, pool: Lender[UpstreamConnection]) -> None:
        if pool.is_full:
            full = (pool.upstream, *self._context.pools.full(self.route.serving))
            if (tried := past_full(self.route, self.tried, full)) is not None:
                # Not at once: the gate that gave the slot, which is given back here, has not returned yet.
                self._go_elsewhere(tried, 0.0)
            else:
                self.rejected(OVERLOADED, f"{pool.upstream.member} has all the connections it may have")
        else:
            pool.reserve()
            self.connecting_at = self._context.clock()
            self._waiting = asyncio.get_running_loop().create_task(self._connected(pool))

    async def _connected(self, pool: Lender[UpstreamConnection]) -> None:
        try:
            connection = await pool.connect(self.route.settings.connect_timeout)
            if self.state is ENDED:
                pool.put(connection, self._context.clock())
            else:
                self._send(connection)
        except ConnectFailed as error:
            if error.refused:
                self._context.witness.refused(pool.upstream)
            if self.state is ENDED:
                return
            if error.ours is not None:
                self.rejected(error.ours, str(error))
            else:
                reason = UPSTREAM_UNREACHED if error.untried else UPSTREAM_CONNECT
                self._failed_at(pool.upstream, reason, str(error), again=True)
        except Exception:  # noqa: BLE001 -- nothing waits for this task
            self._broke()

    # -- and the next

    @property
    def _is_whole(self) -> bool:
        """Whether all that was sent of the request is still here."""
        return self.upload is None or self.upload.held is not None

    def _may_repeat(self, is_sent: bool = True) -> bool:
        """Whether the request may be sent once more. `is_sent`: some of it was written."""
        return may_repeat(self.request.line.method.decode(), is_sent, self._is_whole)

    def _failed_at(
        self, upstream: LiveUpstream, reason: Reason, detail: str, again: bool, blame: bool = True
    ) -> None:
        """An attempt failed: try another upstream, where the request may be sent `again`, else end. `blame`: count
        it against the upstream."""
        if blame:
            self.is_good = False
            self._context.witness.failed(upstream, reason.name, self.route)
        self.detail = detail
        if not again or not self._leaves(upstream, reason.name):
            self.fail(reason, self.detail)

    def _leaves(self, upstream: LiveUpstream, why: str) -> bool:
        """Whether the request goes on to another than `upstream`, where it failed for `why`."""
        context = self._context
        decision = context.retries.after_failure(self.route, self.tried, upstream, why, self.detail)
        if decision.refused:
            context.metrics.retries_refused[why, self.route.path] += 1
            self.detail += "; no other is tried: the retry budget is spent"
        if decision.tried is None:
            return False
        context.metrics.retries[why] += 1
        status = int(why) if why.isdigit() else 0
        self.attempted += (self.attempt_until(context.clock(), status, "" if status else why),)
        self._go_elsewhere(decision.tried, decision.delay)
        return True

    def _go_elsewhere(self, tried: Tried, delay: float) -> None:
        """Make another attempt in `delay` seconds."""
        self.state = EXCHANGE[self.state][_LEAVE]
        self.tried = tried
        self._drop_connection()
        if self.handle is not None:
            self._release_later(self.handle, self._context.clock())
            self.handle = None
        self.detail = ""
        self.connecting_at = self.sent_at = 0.0
        self._waiting = asyncio.get_running_loop().call_later(delay, self._attempt_again)

    def _is_replaced(self, connection: UpstreamConnection) -> bool:
        """Whether the request is sent on a fresh connection to the same upstream: `connection` was pooled, and has
        ended before its reply."""
        unsent = connection.unsent
        tried = on_fresh_connection(self.tried, unsent, self._may_repeat(is_sent=not unsent))
        if tried is None:
            return False
        self.state = EXCHANGE[self.state][_LEAVE]
        self.tried, self.connection = tried, None
        self._connect(connection.pool)
        return True

    def _attempt_again(self) -> None:
        if self.state is ENDED:
            return
        try:
            self._attempt(self._context.clock())
        except Exception:  # noqa: BLE001 -- a timer has called
            self._broke()

    def _broke(self) -> None:
        """A fault of slb itself: log it and answer 500. To be called where the exception is handled."""
        _log.exception("request_broke", request_id=self.request.id.decode())
        if self.state is not ENDED:
            self.fail(INTERNAL, "slb failed on the way to an upstream")
