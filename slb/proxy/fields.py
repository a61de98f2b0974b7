"""Header fields: read from bytes by httptools (llhttp, strict), and sorted by what they are to a proxy."""

from collections.abc import Callable, Sequence
from enum import IntEnum

import httptools

Fields = Sequence[tuple[bytes, bytes]]
"""(name, value) of each field as written, in order; values may end in white space."""

NEVER_STRIPPED = frozenset(
    b"authorization cache-control content-encoding content-length content-range content-type cookie date forwarded"
    b" host set-cookie via x-forwarded-for x-forwarded-host x-forwarded-proto x-request-id".split()
)
"""A Connection token naming one of these would change what the message means, or hide where it has been; it is
ignored (RFC 9110, 7.6.1)."""
KEPT_TOKENS = frozenset({b"", b"close", b"keep-alive"})
"""Tokens of Connection that name no field."""


class Kind(IntEnum):
    """What a field is to a proxy. Most are PLAIN: passed on, not looked at."""

    PLAIN = 0
    LENGTH = 1
    CODING = 2
    CONNECTION = 3
    HOST = 4
    EXPECT = 5
    REQUEST_ID = 6
    VIA = 7
    FORWARDED = 8
    HOP = 9
    SHADOW = 10
    UPGRADE = 11
    TE = 12
    TRACE = 13
    TIMEOUT = 14
    TIMING = 15
    TRAILER = 16


_NAMES = {
    b"content-length": Kind.LENGTH,
    b"transfer-encoding": Kind.CODING,
    b"connection": Kind.CONNECTION,
    b"host": Kind.HOST,
    b"expect": Kind.EXPECT,
    b"x-request-id": Kind.REQUEST_ID,
    b"via": Kind.VIA,
    b"forwarded": Kind.FORWARDED,
    b"x-real-ip": Kind.FORWARDED,
    b"keep-alive": Kind.HOP,
    b"proxy-connection": Kind.HOP,
    b"te": Kind.TE,
    b"trailer": Kind.TRAILER,
    b"http2-settings": Kind.HOP,
    b"upgrade": Kind.UPGRADE,
    b"traceparent": Kind.TRACE,
    b"x-request-timeout": Kind.TIMEOUT,
    b"x-slb-timing": Kind.TIMING,
    b"proxy-authenticate": Kind.HOP,
    b"proxy-authorization": Kind.HOP,
    # Many upstreams cannot tell these from the names with hyphens (CGI, WSGI).
    b"content_length": Kind.SHADOW,
    b"transfer_encoding": Kind.SHADOW,
}


class KindOf(dict[bytes, Kind]):
    """Name in whatever case -> kind; remembers the spellings it has seen, up to a bound."""

    def __missing__(self, name: bytes) -> Kind:
        lower = name.lower()
        kind = _NAMES.get(lower, Kind.PLAIN)
        if lower.replace(b"_", b"-").startswith(b"x-forwarded-"):
            kind = Kind.FORWARDED if b"_" not in lower else Kind.SHADOW
        if len(self) < 1024:
            self[name] = kind
        return kind


KINDS = KindOf()


class _Collector:
    """What httptools calls back."""

    __slots__ = ("on_header",)

    def __init__(self, on_header: Callable[[bytes, bytes], object]) -> None:
        self.on_header = on_header


Parser = type[httptools.HttpRequestParser] | type[httptools.HttpResponseParser]


def read_fields(parser: Parser, head: bytes) -> Fields:
    """The fields of a whole head. Raises HttpParserError.

    First into a dict, whose `setdefault` is called without a line of Python in between; only a head in which one
    name stands twice is read again into a list.
    """
    unique: dict[bytes, bytes] = {}
    _feed(parser(_Collector(unique.setdefault)), head)
    if len(unique) == head.count(b"\n") - 2:
        return tuple(unique.items())
    fields: list[tuple[bytes, bytes]] = []
    _feed(parser(_Collector(lambda name, value: fields.append((name, value)))), head)
    return fields


def _feed(parser: httptools.HttpRequestParser | httptools.HttpResponseParser, head: bytes) -> None:
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        return  # an Upgrade is read to its end like any other head


def connection_tokens(fields: Fields) -> set[bytes]:
    tokens: set[bytes] = set()
    for name, value in fields:
        if KINDS[name] is Kind.CONNECTION:
            tokens.update(token.strip(b" \t").lower() for token in value.split(b","))
    return tokens
