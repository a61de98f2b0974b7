"""What the client's connection, the exchange and the body of its request ask of each other, so that their files
import in one direction. What the upstream's connection asks stands in `slb/upstreams/interfaces.py`.
"""

import asyncio
from typing import Protocol

from slb.admission.entry import Entry, Waiter
from slb.balance.upstream import Handle
from slb.errors import Reason
from slb.proxy.request import Request
from slb.proxy.retry import Tried
from slb.routing.table import Route
from slb.upstreams.flow import Flow


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
