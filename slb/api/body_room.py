"""How many bytes of bodies this process holds at once, of all requests to its API together. A request has its room
before its body is read, and until its handler is done with it: parsed and written, a body takes several times its
length. Only callers that may call at all get here (`auth.py`), and a body that does not come gives its room back
after `head_timeout`."""

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slb.errors import OVERLOADED, Refused

MOST = 32 << 20
"""Bytes of all bodies. A longer one, or one that grows beyond it, is read while there is no other."""
_SHARE = MOST // 2
"""Of these, those of one address, unless it is one body: so one caller leaves room for the others."""
UNCOUNTED = 64 << 10
"""A body up to so many bytes needs no room: aiohttp's buffers hold as much of each connection anyway, and these are
limited in number. So registrations do not wait behind jobs. Longer ones take room in steps of it."""
_MOST_WAITING = 1_000
"""Each time that room is given back, all that wait are looked at."""


class _Wanted:
    def __init__(self, peer: str, count: int, own: int) -> None:
        self.peer, self.count, self.own = peer, count, own
        self.granted = asyncio.get_running_loop().create_future()


class BodyRoom:
    """What does not fit waits in the order it came; one whose address has its share is passed by others, and
    all are by those that have begun and grow."""

    def __init__(self, most: int = MOST, share: int = _SHARE, most_waiting: int = _MOST_WAITING) -> None:
        self._most = most
        self._share = share
        self._most_waiting = most_waiting
        self._taken = 0
        self._taken_by: dict[str, int] = {}
        self._waiting: dict[_Wanted, None] = {}

    @property
    def taken(self) -> int:
        """Bytes."""
        return self._taken

    @property
    def waiting(self) -> int:
        """How many bodies wait."""
        return len(self._waiting)

    async def take(self, peer: str, count: int, own: int, patience: float) -> None:
        """Take `count` bytes for a body that has `own` already; `patience` in seconds. Raises Refused."""
        wanted = _Wanted(peer, count, own)
        if len(self._waiting) >= self._most_waiting:
            raise Refused(OVERLOADED, f"{self._most_waiting} bodies wait to be read, and no more may")
        self._waiting[wanted] = None
        self._grant()
        try:
            if not wanted.granted.done():
                await asyncio.wait((wanted.granted,), timeout=patience)
        except asyncio.CancelledError:
            if wanted.granted.done():
                self.give_back(peer, count)
            raise
        finally:
            if not wanted.granted.done():
                del self._waiting[wanted]
                self._grant()  # it may have been in the way of smaller ones
        if not wanted.granted.done():
            raise Refused(OVERLOADED, f"the bodies of other requests left no room for this one for {patience:g}s")

    def give_back(self, peer: str, count: int) -> None:
        self._taken -= count
        self._taken_by[peer] -= count
        if not self._taken_by[peer]:
            del self._taken_by[peer]
        self._grant()

    def _grant(self) -> None:
        is_blocked = False
        for each in list(self._waiting):
            its = self._taken_by.get(each.peer, 0)
            if its > each.own and its + each.count > self._share:
                continue
            if is_blocked and not each.own:
                continue  # a long one is not passed for ever: only by bodies that have begun, and those end
            if self._taken > each.own and self._taken + each.count > self._most:
                is_blocked = True
                continue
            del self._waiting[each]
            self._taken += each.count
            self._taken_by[each.peer] = its + each.count
            each.granted.set_result(None)


class Held:
    """What one request has of the room."""

    def __init__(self, room: BodyRoom, peer: str) -> None:
        self._room = room
        self._peer = peer
        self._count = 0

    async def cover(self, length: int, patience: float) -> None:
        """Have room for so many bytes in all. Raises Refused where there was none for `patience` seconds."""
        more = -(-length // UNCOUNTED) * UNCOUNTED - self._count
        if length > UNCOUNTED and more > 0:
            await self._room.take(self._peer, more, self._count, patience)
            self._count += more

    def give_back(self) -> None:
        """The body is not needed any more."""
        if self._count:
            count, self._count = self._count, 0
            self._room.give_back(self._peer, count)


HELD = web.RequestKey("slb.body_room", Held)


def bounded(room: BodyRoom) -> Middleware:
    """A middleware: what requests have of the room is given back at their end at the latest."""

    @web.middleware
    async def in_room(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[HELD] = held = Held(room, request.remote or "")
        try:
            return await handler(request)
        finally:
            held.give_back()

    return in_room
