"""Which route a path takes; looked up once for each path and table."""

from typing import NamedTuple

from slb.names import normal_path
from slb.routing.forwarded import forwarded, route_of
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_CACHED_PATHS = 4096
_CACHED_LENGTH = 512
"""Characters; longer paths are parsed each time."""


class Found(NamedTuple):
    """`normal`: the path's normal form; `route`: None where none takes it; `sent`: the path that the upstream is to
    be sent, empty where that is the one that came."""

    normal: str
    route: Route | None
    sent: str


class Routes:
    """By the mirror's current table."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._table = mirror.table
        self._known: dict[str, Found] = {}

    def get(self, path: str) -> Found:
        """`path` without its query. Raises InvalidName."""
        if self._mirror.table is not self._table:
            self._table, self._known = self._mirror.table, {}
        found = self._known.get(path)
        if found is None:
            found = self._find(path)
            if len(path) <= _CACHED_LENGTH:
                if len(self._known) >= _CACHED_PATHS:
                    self._known = {}
                self._known[path] = found
        return found

    def _find(self, path: str) -> Found:
        if path == "*":  # OPTIONS of the server itself
            return Found("/", self._table.match("/"), "")
        normal = normal_path(path, encoded_controls=True)
        route = route_of(self._table, path, normal)
        sent = path if route is None else forwarded(path, route.path, route.settings.strip_prefix)
        return Found(normal, route, "" if sent == path else sent)
