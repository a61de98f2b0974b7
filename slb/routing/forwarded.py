"""Which path an upstream is sent: the path that was matched, in the segments that were written.

An upstream that reads a path in another way than slb would serve what no route exposes. So nothing is forwarded
that servers resolve in different ways, or not at all: dot segments, and empty segments inside the route's own path.
All functions take a path that `normal_path` accepts, and need a few passes over it, for any content.
"""

import re

from slb.errors import InvalidName
from slb.names import normal_path
from slb.routing.table import Route, Table

_HERE = frozenset((".", "%2e", "%2E"))
_UP = frozenset(first + second for first in _HERE for second in _HERE)
_NOTHING = frozenset(("", *_HERE))
_DOT_SEGMENT = re.compile(r"/(?:\.|%2[Ee]){1,2}+(?:/|\Z)")
_SEGMENT = re.compile(r"/++[^/]++")
_SLASHES = re.compile(r"/++")

_PARAMETER = "%3B"
"""A `;` in a normal path."""
_PARAMETERS = re.compile(r";[^/]*+")
"""Parameters as found by servers that split before decoding."""
_PARAMETERS_DECODED = re.compile(r"(?:;|%3[Bb])[^/]*+")
"""Parameters as found by servers that split after decoding."""


def forwarded(path: str, route: str, strip: bool) -> str:
    """The path that the upstream of `route` (its path) is sent; `strip`: without the route's.

    Every segment is as it was written. Dot segments are resolved, and then empty segments dropped: `/p1/x/..` is
    `/p1/`. Elsewhere empty segments are dropped only before the end of the route's path, and the first may never be
    one: software that parses the target as a URL reads `//host/x` as the path /x (RFC 3986, 4.2).
    """
    path = _without_dots(path)
    if not strip and "//" not in path:
        return path
    end = _end_of(route, path)
    target = path[end:] if strip else _SLASHES.sub("/", path[:end]) + path[end:]
    if not target or target.startswith("//"):
        return "/" + target.lstrip("/")
    return target


def route_of(table: Table, path: str, normal: str) -> Route | None:
    """The route that takes `path`, whose normal form is `normal`; None where none does. Raises InvalidName where it
    would take another one without its parameters: servers that drop them (`;a=b`, up to the next slash) would serve
    what that other route is for."""
    route = table.match(normal)
    if route is not None and _PARAMETER in normal:
        _check_parameters(table, route, path)
    return route


def _check_parameters(table: Table, route: Route, path: str) -> None:
    path = _without_dots(path)
    rest = path[_end_of(route.path, path) :]
    own = route.path.rstrip("/")
    for bare in (_PARAMETERS.sub("", rest), _PARAMETERS_DECODED.sub("", rest)):
        reading = normal_path(own + bare, encoded_controls=True)
        if table.match(reading) is not route:
            raise InvalidName(f"path {path!r} takes another route without its parameters")


def _without_dots(path: str) -> str:
    if _DOT_SEGMENT.search(path) is None:
        return path
    segments = path.split("/")
    kept: list[str] = []
    for segment in segments:
        if segment in _UP:
            kept.pop()
        elif segment not in _NOTHING:
            kept.append(segment)
    is_folder = segments[-1] in _NOTHING or segments[-1] in _UP
    return "/" + "/".join(kept) + "/" * (is_folder and bool(kept))


def _end_of(route: str, path: str) -> int:
    """The index in `path` where the route's own segments end."""
    end = 0
    for _ in range(route.count("/") if route != "/" else 0):
        segment = _SEGMENT.match(path, end)
        assert segment is not None, "a route takes only what is under it"
        end = segment.end()
    return end
