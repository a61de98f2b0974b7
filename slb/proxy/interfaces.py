"""What the live objects of a request ask of each other: the client's connection, the exchange, the upstream's
connection and its pool. Each knows the others by these alone, so that their files import in one direction.
"""

import asyncio
from typing import Protocol, TypeVar

from slb.admission.entry import Entry, Waiter
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import Reason
from slb.proxy.deadlines import Wheel
from slb.proxy.flow import Flow
from slb.proxy.head_cache import HeadCache
from slb.proxy.outbox import Outbox
from slb.proxy.replies import ReplyHead
from slb.proxy.request import Request
from slb.proxy.retry import Tried
from slb.routing.table import Route

Lent = TypeVar("Lent")
"""A connection of the pool."""


class Client(Protocol):
    """The client's connection, to the exchange that it carries."""

    transport: asyncio.Transport

    @property
    def is_last(self) -> bool:
        """Whether this connection takes no request after this one."""

    @property
    def is_stalled(self) -> bool:
        """Whether the client takes no more of its reply for now."""

    @property
    def upload_is_held(self) -> bool:
        """Whether the request's body waits for the upstream."""

    def hold_upload(self) -> None:
        """Read no more of the request's body for now."""

    def upload_may_go_on(self) -> None:
        """Read on."""

    def exchange_ended(self, exchange: object, keep: bool, request_ended: bool, now: float) -> None:
        """The reply is written. `keep`: the connection may carry another request."""

    def refuse(self, request: Request, reason: Reason, detail: str, request_ended: bool) -> None:
        """Answer in slb's own name."""

    def reply_broken(self) -> None:
        """The reply cannot be completed."""

    def becomes_tunnel(self) -> bytes:
        """Give the transport away; returns the bytes that have come behind the request."""

    def tunnel_ended(self) -> None:
        """Both connections of the tunnel have ended."""


class Seeking(Waiter, Protocol):
    """An exchange, to what chooses its upstream."""

    @property
    def request(self) -> Request: ...
    @property
    def route(self) -> Route: ...
    @property
    def tried(self) -> Tried:
        """What it has behind it."""

    @property
    def entry(self) -> Entry | None:
        """That of its last attempt, where the gate decided."""


class Uploading(Protocol):
    """An exchange, to the body of its request."""

    bytes_in: int

    @property
    def request(self) -> Request: ...
    @property
    def client(self) -> Client: ...
    @property
    def connection(self) -> Flow | None:
        """The upstream's connection; None while there is none."""

    @property
    def handle(self) -> Handle | None: ...
    @property
    def status(self) -> int:
        """0 until the reply has begun."""


class Carried(Protocol):
    """An exchange, to the upstream's connection that carries it."""

    @property
    def request(self) -> Request: ...

    def interim(self, head: ReplyHead) -> bool:
        """A 1xx reply has come. False where it is one too many."""

    def switches(self, head: ReplyHead, rest: bytes) -> bool:
        """101 has come, and `rest` behind it. False where the client has not asked for that."""

    def reply_begins(self, head: ReplyHead, payload: bytes, ended: bool) -> None:
        """The final head has come, with what there is of the body; `ended`: that is all of it."""

    def reply_continues(self, payload: bytes, ended: bool) -> None:
        """More of the body has come."""

    def reply_malformed(self, why: str, blame: bool = True) -> None:
        """What came is not HTTP/1.1, or (`blame` False) more than slb takes."""

    def reply_late(self) -> None:
        """Nothing has come in time."""

    def upstream_lost(self, clean: bool, partial: bool) -> None:
        """The connection has ended. `clean`: the upstream closed it; `partial`: part of a reply's head had come."""

    def client_holds_back(self) -> None:
        """The client takes no more of the reply for now."""

    def upload_is_held_back(self, held: bool) -> None:
        """The connection takes no more of the request's body for now; or (`held` False) more again."""


class ReplyParts(Protocol):
    """What the connections to one upstream share."""

    wheel: Wheel
    outbox: Outbox
    reply_heads: HeadCache[ReplyHead]
    upstream: LiveUpstream
    max_head: int


class Lender(ReplyParts, Protocol[Lent]):
    """The pool that a connection to an upstream belongs to."""

    @property
    def is_full(self) -> bool:
        """Whether the upstream has all the connections it may have."""

    def reserve(self) -> None:
        """Count a connection that `connect` is to make."""

    async def connect(self, timeout: float) -> Lent:
        """A new connection, within `timeout` seconds. Raises ConnectFailed."""

    def put(self, connection: Lent, now: float) -> None:
        """Keep it for the next request, or close it."""

    def discard(self, connection: Lent) -> None:
        """It is ending: lend it no more."""

    def ended(self, connection: Lent) -> None:
        """It has ended."""
