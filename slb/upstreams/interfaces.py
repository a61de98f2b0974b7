"""What an exchange, the upstream's connection that carries it, and the pool ask of each other, so that their files
import in one direction. The methods are explained where they are implemented."""

from typing import Protocol, TypeVar

from slb.balance.upstream import LiveUpstream
from slb.upstreams.deadlines import Wheel
from slb.upstreams.head_cache import HeadCache
from slb.upstreams.outbox import Outbox
from slb.upstreams.replies import ReplyHead

Lent = TypeVar("Lent")


class Carried(Protocol):
    """An exchange, as its upstream's connection sees it."""

    def interim(self, head: ReplyHead) -> bool: ...

    def switches(self, head: ReplyHead, rest: bytes) -> bool: ...

    def reply_begins(self, head: ReplyHead, payload: bytes, ended: bool) -> None: ...

    def reply_continues(self, payload: bytes, ended: bool) -> None: ...

    def reply_malformed(self, why: str, blame: bool = True) -> None: ...

    def reply_late(self) -> None: ...

    def upstream_lost(self, clean: bool, partial: bool) -> None:
        """`clean`: the upstream closed it; `partial`: part of a reply's head had come."""

    def client_holds_back(self) -> None: ...

    def upload_is_held_back(self, held: bool) -> None:
        """`held`: the connection takes no more of the request's body for now; else more again."""


class ReplyParts(Protocol):
    """What the connections to one upstream share."""

    wheel: Wheel
    outbox: Outbox
    reply_heads: HeadCache[ReplyHead]
    upstream: LiveUpstream
    max_head: int


class Lender(ReplyParts, Protocol[Lent]):
    """The pool of a connection."""

    @property
    def is_full(self) -> bool: ...

    def reserve(self) -> None: ...

    async def connect(self, timeout: float) -> Lent: ...

    def put(self, connection: Lent, now: float) -> None: ...

    def discard(self, connection: Lent) -> None: ...

    def ended(self, connection: Lent) -> None: ...
