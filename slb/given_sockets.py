"""Bound sockets that this process did not bind: those of the process it follows, and those of systemd."""

import socket
from collections.abc import Iterable
from typing import Literal, NamedTuple

Kind = Literal["tcp", "udp"]


class Place(NamedTuple):
    """Where a socket is bound."""

    kind: Kind
    host: str
    port: int


def place_of(bound: socket.socket) -> Place:
    """Of a bound TCP or UDP socket. Raises OSError where it is closed."""
    host, port = bound.getsockname()[:2]
    return Place("udp" if bound.type == socket.SOCK_DGRAM else "tcp", host, port)


class GivenSockets:
    """Each with its name, if it has one; they are taken one by one. `taken`: those that were."""

    def __init__(self, found: Iterable[tuple[str, socket.socket]] = ()) -> None:
        self._left = list(found)
        self.taken: list[socket.socket] = []

    def called(self, name: str, most: int | None = None) -> list[socket.socket]:
        """Take the TCP sockets of this name, all or the first ones."""
        found = [each for each in self._left if each[0] == name and place_of(each[1]).kind == "tcp"]
        return self._take(found[:most])

    def at(self, place: Place) -> socket.socket | None:
        """Take the one that is bound there."""
        found = self._take([each for each in self._left if place.port and place_of(each[1]) == place][:1])
        return found[0] if found else None

    def add(self, found: Iterable[socket.socket]) -> None:
        """More of them, without a name; they go before those there are."""
        self._left = [*(("", each) for each in found), *self._left]

    def close_the_rest(self) -> list[Place]:
        """Close what nobody took; where those were bound."""
        places = [place_of(each) for _, each in self._left]
        for _, each in self._left:
            each.close()
        self._left.clear()
        return places

    def _take(self, found: list[tuple[str, socket.socket]]) -> list[socket.socket]:
        self._left = [each for each in self._left if each not in found]
        sockets = [each for _, each in found]
        self.taken += sockets
        return sockets
