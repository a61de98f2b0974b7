"""What requests belong together by: the key that a route's `hash_key` names, out of one request."""

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from slb.cookies import cookie
from slb.proxy.fields import FIELDS, field_value
from slb.proxy.request import Request

KeyOf = Callable[[Request], bytes]
"""Empty where the request has no such key."""


@lru_cache(maxsize=256)
def key_of(hash_key: str) -> KeyOf:
    """How to find the key that this setting names."""
    kind, _, name = hash_key.partition(":")
    return _KINDS[kind](name)


def _path(_: str) -> KeyOf:
    """The normal form: other spellings of a path mean the same."""
    return lambda request: request.line.normal.encode()


def _address(_: str) -> KeyOf:
    return lambda request: request.peer.client(request.head).encode()


def _header(name: str) -> KeyOf:
    return lambda request: field_value(request.head.fields, name).encode("latin-1")


def _cookie(name: str) -> KeyOf:
    """Of all Cookie lines together: RFC 9113, 8.2.3, lets them be split."""

    def find(request: Request) -> bytes:
        lines = request.head.fields.split(b"\r\n")
        values = b";".join(FIELDS[line][1] for line in lines if line[:7].lower() == b"cookie:")
        return cookie(values.decode("latin-1"), name).encode("latin-1")

    return find


def _query(name: str) -> KeyOf:
    """A few steps for each parameter, and a request line has at most half `max_request_line` of them; what is
    shorter than the name is not decoded, for decoding makes nothing longer."""
    wanted = name.encode()

    def find(request: Request) -> bytes:
        for pair in request.line.query[1:].split(b"&"):
            written, _, value = pair.partition(b"=")
            if len(written) >= len(wanted) and _decoded(written) == wanted:
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
