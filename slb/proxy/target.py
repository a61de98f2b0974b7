"""The request line: its forms, and which route its target takes."""

import re

from slb.errors import BAD_REQUEST, HTTP_VERSION, METHOD_NOT_ALLOWED, InvalidName, Refused
from slb.names import normal_path
from slb.routing.forwarded import forwarded, route_of
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_ORIGIN_FORM = re.compile(
    rb"(" + _TOKEN + rb") (/[\x21\x22\x24-\x3e\x40-\x7e]*+)(\?[\x21\x22\x24-\x7e]*+)?(?:#[\x21-\x7e]*+)?"
    rb" HTTP/1\.([01])\r\n"
)
"""A fragment is no part of a target (RFC 9112, 3.2); clients that send one get what they meant, without it."""
_OTHER_FORM = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.([01])\r\n")
_ABSOLUTE = re.compile(
    rb"https?://(?:[A-Za-z0-9\-._~!$&'()*+,;=%:]*+@)?([A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]++)(/[^?#]*+)?(\?[^#]*+)?(?:#.*+)?",
    re.IGNORECASE,
)
_OTHER_VERSION = re.compile(rb"(?:" + _TOKEN + rb" )?[^\r\n]*? HTTP/(?!1\.[01]\r)[0-9]++(?:\.[0-9]++)?\r\n")
_NO_VERSION = re.compile(_TOKEN + rb" [\x21-\x7e]++\r?\n")

_MODEL = re.compile(rb"(?<= /models/)[^ ?]++")
_SLASH = re.compile(rb"%2[Ff]")
_CACHED_LINES = 4096
_CACHED_LENGTH = 512
"""Bytes; longer lines are parsed each time."""


class RequestLine:
    """A parsed request line and its route.

    path: as written, without the query. query: with its `?`, or empty. host: the authority of an absolute-form
    target, which replaces Host. normal: the path's normal form. is_plain: it was written so. route: None where none
    takes it.
    """

    __slots__ = ("forwarded_target", "host", "is_plain", "method", "minor", "normal", "path", "query", "route")

    def __init__(self, method: bytes, path: bytes, query: bytes, minor: int, host: bytes | None = None) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.minor = minor
        self.host = host
        text = path.decode()
        self.normal = _normal(text)
        self.is_plain = self.normal is text
        self.route: Route | None = None
        self.forwarded_target = b""

    def leads_to(self, route: Route | None) -> "RequestLine":
        """Set the route, and `forwarded_target`, the target that the upstream is sent."""
        self.route = route
        path = self.path
        if route is not None and not (self.is_plain and not route.settings.strip_prefix):
            path = forwarded(path.decode(), route.path, route.settings.strip_prefix).encode()
        self.forwarded_target = path + self.query
        return self


def parse_line(line: bytes) -> RequestLine:
    """Parse `line` with its CRLF; no route yet. Raises Refused."""
    match = _ORIGIN_FORM.fullmatch(line)
    if match is None:
        return _parse_other(line)
    method, path, query, minor = match.groups(b"")
    _check_method(method)
    return RequestLine(method, path, query, 1 if minor == b"1" else 0)


def judge_for_api(line: bytes) -> None:
    """Raise Refused as `parse_line` does; but a model's id may have encoded slashes, since no upstream reads it."""
    parse_line(_MODEL.sub(lambda found: _SLASH.sub(b"/", found[0]), line, count=1))


def _parse_other(line: bytes) -> RequestLine:
    match = _OTHER_FORM.fullmatch(line)
    if match is None:
        raise _unreadable(line)
    method, target, minor = match.groups()
    _check_method(method)
    if target == b"*" and method == b"OPTIONS":
        return RequestLine(method, b"*", b"", int(minor))
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise Refused(BAD_REQUEST, "the request target is malformed")
    host, path, query = absolute.groups()
    nothing = b"*" if method == b"OPTIONS" and not query else b"/"  # RFC 9112, 3.2.4
    return RequestLine(method, path or nothing, query or b"", int(minor), host)


def _check_method(method: bytes) -> None:
    if method == b"CONNECT":
        raise Refused(METHOD_NOT_ALLOWED, "CONNECT is for forward proxies")


def _unreadable(line: bytes) -> Refused:
    if _OTHER_VERSION.match(line) or _NO_VERSION.match(line):
        return Refused(HTTP_VERSION, "slb speaks HTTP/1.1 and HTTP/1.0")
    return Refused(BAD_REQUEST, "the request line is malformed")


def _normal(path: str) -> str:
    if path == "*":
        return "/"
    try:
        return normal_path(path, encoded_controls=True)
    except InvalidName as error:
        raise Refused(BAD_REQUEST, str(error)) from None


class RequestLines:
    """Request lines, parsed and routed by the mirror's current table, and cached until it is replaced."""

    __slots__ = ("_known", "_mirror", "_table")

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._table = mirror.table
        self._known: dict[bytes, RequestLine] = {}

    def get(self, line: bytes) -> RequestLine:
        """`line` with its CRLF. Raises Refused."""
        if self._mirror.table is not self._table:
            self._table = self._mirror.table
            self._known = {}
        found = self._known.get(line)
        if found is None:
            found = parse_line(line)
            try:
                found.leads_to(route_of(self._table, found.path.decode(), found.normal))
            except InvalidName as error:
                raise Refused(BAD_REQUEST, str(error)) from None
            if len(line) <= _CACHED_LENGTH:
                if len(self._known) >= _CACHED_LINES:
                    self._known = {}
                self._known[line] = found
        return found
