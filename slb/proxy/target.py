"""The request line: what it may look like, and which route its target takes."""

import re

from slb.errors import BAD_REQUEST, HTTP_VERSION, METHOD_NOT_ALLOWED, InvalidName, Refused
from slb.names import normal_path
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
REQUEST_LINE = re.compile(
    rb"(" + _TOKEN + rb") (/[\x21\x22\x24-\x3e\x40-\x7e]*)(\?[\x21\x22\x24-\x7e]*)? HTTP/1\.([01])\r\n"
)
"""method, path, query with its `?` or None, minor version. Only origin-form: almost every request."""

_OTHER_FORM = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])\r\n")
_ABSOLUTE = re.compile(rb"https?://([A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]+)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)
_OTHER_VERSION = re.compile(rb"(?:" + _TOKEN + rb" )?[^\r\n]*? HTTP/[0-9]+(?:\.[0-9]+)?\r\n")
_NO_VERSION = re.compile(_TOKEN + rb" [\x21-\x7e]+\r?\n")

_CACHED_PATHS = 4096


class RequestLine:
    """A request line taken apart. `host` is the authority of an absolute-form target (it replaces Host)."""

    __slots__ = ("host", "method", "minor", "path", "query")

    def __init__(self, method: bytes, path: bytes, query: bytes, minor: int, host: bytes | None = None) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.minor = minor
        self.host = host

    def stripped(self, prefix: str) -> bytes:
        """The path without the route's prefix. A path that is not written in its normal form is cut from its
        normal form, since the written one need not start with the prefix."""
        raw = prefix.encode()
        if self.path.startswith(raw) and self.path[len(raw) : len(raw) + 1] in (b"/", b""):
            return self.path[len(raw) :] or b"/"
        return normal_path(self.path.decode("ascii")).removeprefix(prefix).encode() or b"/"


def odd_request_line(data: bytes) -> tuple[RequestLine, int]:
    """A request line that REQUEST_LINE does not match, and where it ends. Raises Refused by its name."""
    match = _OTHER_FORM.match(data)
    if match is None:
        raise _unreadable(data)
    method, target, minor = match.groups()
    if method == b"CONNECT":
        raise Refused(METHOD_NOT_ALLOWED, "CONNECT is for forward proxies")
    if target == b"*" and method == b"OPTIONS":
        return RequestLine(method, b"*", b"", int(minor)), match.end()
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise Refused(BAD_REQUEST, "the request target is malformed")
    host, path, query = absolute.groups()
    return RequestLine(method, path or b"/", query or b"", int(minor), host), match.end()


def _unreadable(data: bytes) -> Refused:
    if _OTHER_VERSION.match(data) or _NO_VERSION.match(data):
        return Refused(HTTP_VERSION, "slb speaks HTTP/1.1 and HTTP/1.0")
    return Refused(BAD_REQUEST, "the request line is malformed")


class Finder:
    """Request path -> normal path and route, by the mirror's current table. What it found is remembered until the
    table is replaced: an API has few paths, and normalising one costs more than looking it up."""

    __slots__ = ("_found", "_mirror", "_table")

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._table = mirror.table
        self._found: dict[bytes, tuple[str, Route | None]] = {}

    def find(self, path: bytes) -> tuple[str, Route | None]:
        """`path` as it stands in the request, without its query. Raises Refused."""
        table = self._mirror.table
        if table is not self._table:
            self._table = table
            self._found = {}
        found = self._found.get(path)
        if found is None:
            normal = _normal(path)
            found = normal, table.match(normal)
            if len(self._found) >= _CACHED_PATHS:
                self._found = {}
            self._found[path] = found
        return found


def _normal(path: bytes) -> str:
    if path == b"*":
        return "/"
    try:
        return normal_path(path.decode("ascii"))
    except InvalidName as error:
        raise Refused(BAD_REQUEST, str(error)) from None
