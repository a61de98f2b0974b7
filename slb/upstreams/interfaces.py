"""What an exchange, the upstream's connection that carries it, and the pool of that connection ask of each other.
Each knows the others by these alone, so that their files import in one direction.
"""

from typing import Protocol, TypeVar

from slb.balance.upstream import LiveUpstream
from slb.upstreams.deadlines import Wheel
from slb.upstreams.head_cache import HeadCache
from slb.upstreams.outbox import Outbox
from slb.upstreams.replies import ReplyHead

Lent = TypeVar("Lent")
"""A connection of the pool."""


class Carried(Protocol):
    """An exchange of a request and its reply, to the upstream's connection that carries it."""

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
