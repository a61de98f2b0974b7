"""What requests belong together by: the key that a route's `hash_key` names, out of one request."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from slb.proxy.fields import FIELDS, field_value

if TYPE_CHECKING:
    from slb.proxy.exchange import Exchange

KeyOf = Callable[["Exchange"], bytes]
"""Empty where the request has no such key."""


@lru_cache(maxsize=256)
def key_of(hash_key: str) -> KeyOf:
    """How to find the key that this setting names."""
    kind, _, name = hash_key.partition(":")
    return _KINDS[kind](name)


def _path(_: str) -> KeyOf:
    """The normal form: other spellings of a path mean the same."""
    return lambda exchange: exchange.line.normal.encode()


def _address(_: str) -> KeyOf:
    return lambda exchange: exchange.client.peer.client(exchange.head).encode()


def _header(name: str) -> KeyOf:
    return lambda exchange: field_value(exchange.head.fields, name).encode("latin-1")


def _cookie(name: str) -> KeyOf:
    """RFC 6265, 4.2: pairs, each after a semicolon; quotes around a value are not part of it."""
    pair = re.compile(rb"(?:^|;)[ \t]*%b=([^;]*)" % re.escape(name.encode()))

    def find(exchange: "Exchange") -> bytes:
        for line in exchange.head.fields.split(b"\r\n"):
            if line[:7].lower() == b"cookie:" and (match := pair.search(FIELDS[line][1])):
                return match[1].strip(b' \t"')
        return b""

    return find


def _query(name: str) -> KeyOf:
    wanted = name.encode()

    def find(exchange: "Exchange") -> bytes:
        for pair in exchange.line.query[1:].split(b"&"):
            written, _, value = pair.partition(b"=")
            if _decoded(written) == wanted:
                return _decoded(value)
        return b""

    return find


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


_KINDS: dict[str, Callable[[str], KeyOf]] = {
    "path": _path,
    "ip": _address,
    "header": _header,
    "cookie": _cookie,
    "query": _query,
}
