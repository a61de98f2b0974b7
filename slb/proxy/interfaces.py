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
    """The client's connection, as the exchange sees it. The methods are explained in client_connection.py."""

    transport: asyncio.Transport

    @property
    def is_last(self) -> bool: ...

    @property
    def is_stalled(self) -> bool: ...

    @property
    def upload_is_held(self) -> bool: ...

    def hold_upload(self) -> None: ...

    def upload_may_go_on(self) -> None: ...

    def exchange_ended(self, exchange: object, keep: bool, request_ended: bool, now: float) -> None: ...

    def refuse(self, request: Request, reason: Reason, detail: str, request_ended: bool) -> None: ...

    def reply_broken(self) -> None: ...

    def becomes_tunnel(self) -> bytes: ...

    def tunnel_ended(self) -> None: ...


class Seeking(Waiter, Protocol):
    """An exchange, as the choice of its upstream sees it. `entry`: that of its last attempt at the gate."""

    @property
    def request(self) -> Request: ...
    @property
    def route(self) -> Route: ...
    @property
    def tried(self) -> Tried: ...

    @property
    def entry(self) -> Entry | None: ...


class Uploading(Protocol):
    """An exchange, as the body of its request sees it. `status`: 0 until the reply has begun."""

    bytes_in: int

    def body_is_sent(self) -> None: ...

    @property
    def request(self) -> Request: ...
    @property
    def client(self) -> Client: ...
    @property
    def connection(self) -> Flow | None: ...

    @property
    def handle(self) -> Handle | None: ...
    @property
    def status(self) -> int: ...
