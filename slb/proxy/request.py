"""One request as it came."""

from typing import Final

from slb.proxy.headers import RequestHead
from slb.proxy.peer import Peer
from slb.proxy.target import RequestLine
from slb.routing.table import Route


class Request:
    """`route`: the one that `line` leads to; `id`: the client's X-Request-Id, or a new one. Never changed; the type
    checker enforces it, since a frozen dataclass takes more than twice as long to make."""

    __slots__ = ("head", "id", "line", "peer", "route")

    def __init__(self, line: RequestLine, head: RequestHead, peer: Peer, route: Route, request_id: bytes) -> None:
        self.line: Final = line
        self.head: Final = head
        self.peer: Final = peer
        self.route: Final = route
        self.id: Final = request_id
