"""Header fields: parsed line by line (RFC 9110, 5; no folding), and sorted by what they are to a proxy.

Most lines of a head also stand in other heads (Host, User-Agent, Accept, ...). So each distinct line is matched
once, and looked up from then on.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from slb.names import header_as_read

NEVER_STRIPPED = frozenset(
    b"authorization cache-control content-encoding content-length content-range content-type cookie date forwarded"
    b" host set-cookie via x-forwarded-for x-forwarded-host x-forwarded-proto x-request-id".split()
)
"""A Connection token that names one of these is ignored: it would change what the message means, or hide where it
has been (RFC 9110, 7.6.1)."""
KEPT_TOKENS = frozenset({b"", b"close", b"keep-alive"})
"""Tokens of Connection that name no field."""


# What a field is to a proxy. Most are PLAIN: passed on, not looked at. Plain numbers, not an enumeration: they are
# looked at for every line of every head.
PLAIN: Final = 0
LENGTH: Final = 1
CODING: Final = 2
CONNECTION: Final = 3
HOST: Final = 4
EXPECT: Final = 5
REQUEST_ID: Final = 6
VIA: Final = 7
FORWARDED: Final = 8
HOP: Final = 9
SHADOW: Final = 10
UPGRADE: Final = 11
TE: Final = 12
TRACE: Final = 13
TIMEOUT: Final = 14
TIMING: Final = 15
TRAILER: Final = 16
TRACE_STATE: Final = 17

_KINDS = {
    b"content-length": LENGTH,
    b"transfer-encoding": CODING,
    b"connection": CONNECTION,
    b"host": HOST,
    b"expect": EXPECT,
    b"x-request-id": REQUEST_ID,
    b"via": VIA,
    b"forwarded": FORWARDED,
    b"x-real-ip": FORWARDED,
    b"keep-alive": HOP,
    b"proxy-connection": HOP,
    b"te": TE,
    b"trailer": TRAILER,
    b"http2-settings": HOP,
    b"upgrade": UPGRADE,
    b"traceparent": TRACE,
    b"tracestate": TRACE_STATE,
    b"x-request-timeout": TIMEOUT,
    b"x-slb-timing": TIMING,
    b"proxy-authenticate": HOP,
    b"proxy-authorization": HOP,
}
"""All that slb acts on, sets or keeps from upstreams; X-Forwarded-... too."""


_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):([\t\x20-\x7e\x80-\xff]*+)")
"""Blanks around a value are stripped afterwards: matching them here would take steps in the square of their
number."""
_UNLIKE = frozenset({LENGTH, REQUEST_ID, TRACE})
"""Lines that rarely repeat are not cached."""
_MAX_LINE = 256
_MAX_LINES = 2048
_MAX_NAMES = 1024
_MAX_NAME = 64

Field = tuple[int, bytes, bytes]
"""kind, value without the white space around it, name in lower case."""


class MalformedField(ValueError):
    """A line that is no header field."""


class _Names(dict[bytes, tuple[int, bytes]]):
    """Name as written -> (kind, name in lower case); at most _MAX_NAMES of _MAX_NAME bytes are cached. Names in
    `dropped` that slb does not use itself end at this hop."""

    def __init__(self, dropped: Iterable[str]) -> None:
        super().__init__()
        self._dropped = frozenset(header_as_read(name.lower().encode()) for name in dropped)

    def __missing__(self, name: bytes) -> tuple[int, bytes]:
        lower = name.lower()
        meant = header_as_read(lower)
        kind = _KINDS.get(meant, FORWARDED if meant.startswith(b"x-forwarded-") else PLAIN)
        if kind and meant != lower:
            kind = SHADOW
        elif kind == PLAIN and meant in self._dropped:
            kind = HOP
        if len(name) <= _MAX_NAME:
            if len(self) >= _MAX_NAMES:
                self.clear()
            self[name] = kind, lower
        return kind, lower


class Lines(dict[bytes, Field]):
    """Line without CRLF -> field; at most _MAX_LINES of _MAX_LINE bytes are cached. Raises MalformedField.
    `dropped`: names of headers that end at this hop, in any spelling."""

    def __init__(self, dropped: Iterable[str] = ()) -> None:
        super().__init__()
        self._names = _Names(dropped)

    def __missing__(self, line: bytes) -> Field:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise MalformedField("a line is not a header field")
        kind, name = self._names[match[1]]
        field = kind, match[2].strip(b" \t"), name
        if kind not in _UNLIKE and len(line) <= _MAX_LINE:
            if len(self) >= _MAX_LINES:
                self.clear()
            self[line] = field
        return field


FIELDS = Lines()


def fields_of(lines: Iterable[bytes], known: Lines = FIELDS) -> list[Field]:
    """Raises MalformedField."""
    return [known[line] for line in lines]


def connection_tokens(fields: Iterable[Field]) -> set[bytes]:
    """Everything that Connection names, in lower case. Repeated tokens are read once: a head of 64 KB has 60,000
    tokens, but no more than 20,000 different ones."""
    tokens: set[bytes] = set()
    for kind, value, _ in fields:
        if kind == CONNECTION:
            tokens.update(token.strip(b" \t") for token in set(value.lower().split(b",")))
    return tokens


def field_value(fields: bytes, name: str) -> str:
    """The value of the first field `name` in a block of lines; empty where there is none."""
    wanted = _start_of(name)
    start = (b"\r\n" + fields).lower().find(wanted)
    if start < 0:
        return ""
    line, _, _ = fields[start + len(wanted) - 2 :].partition(b"\r\n")
    return line.strip(b" \t").decode("latin-1")


@lru_cache(maxsize=256)
def _start_of(name: str) -> bytes:
    """For names in settings, which are few."""
    return b"\r\n%b:" % name.lower().encode()
