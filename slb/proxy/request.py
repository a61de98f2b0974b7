"""One request as it came: what everything that only reads of a request is given."""

from typing import Final

from slb.proxy.headers import RequestHead
from slb.proxy.peer import Peer
from slb.proxy.target import RequestLine
from slb.routing.table import Route


class Request:
    """`route` is the one that `line` leads to; `id` the client's X-Request-Id, or a new one.

    Nothing of it changes. The type checker holds the code to that: one is made for each request, and a frozen
    dataclass takes more than twice as long to make.
    """

    __slots__ = ("head", "id", "line", "peer", "route")

    def __init__(self, line: RequestLine, head: RequestHead, peer: Peer, route: Route, request_id: bytes) -> None:
        self.line: Final = line
        self.head: Final = head
        self.peer: Final = peer
        self.route: Final = route
        self.id: Final = request_id
