"""The connections to a listener: how many there may be in all, and from one address."""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class Places(Generic[Connection]):
    """`limit`: connections that may be served; `per_peer`: of them, from one address; `lingering`: that may stay
    for a moment after they were refused. 0 for no limit.

    Each connection holds a descriptor, so there are at most `limit` and `lingering` of them, whatever comes.
    """

    def __init__(self, limit: int = 0, per_peer: int = 0, lingering: int = 0) -> None:
        self.set_limits(limit, per_peer, lingering)
        self.taken: dict[Connection, str] = {}
        """By connection, from where it came."""
        self.rejected: set[Connection] = set()
        self._peers: Counter[str] = Counter()

    def set_limits(self, limit: int, per_peer: int, lingering: int) -> None:
        """Apply these limits to connections that come from now on."""
        self.limit, self.per_peer, self.lingering = limit, per_peer, lingering

    def take(self, connection: Connection, address: str) -> bool:
        """Whether there is a place for one more from `address`; it has one from now on either way."""
        self.taken[connection] = address
        peers = self._peers
        peers[address] += 1
        if 0 < self.per_peer < peers[address]:
            return False
        return not 0 < self.limit < len(self.taken)

    def turn_away(self, connection: Connection) -> bool:
        """It was refused, and while it lingers it takes no place. False where too many linger: it has to end now,
        or refused connections would take all descriptors."""
        self.leave(connection)
        if 0 < self.lingering <= len(self.rejected):
            return False
        self.rejected.add(connection)
        return True

    def leave(self, connection: Connection) -> bool:
        """It has ended; further calls do nothing. Whether it gave back a place."""
        self.rejected.discard(connection)
        address = self.taken.pop(connection, None)
        if address is None:
            return False
        self._peers[address] -= 1
        if not self._peers[address]:
            del self._peers[address]
        return True
