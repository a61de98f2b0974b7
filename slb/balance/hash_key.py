"""The key of a request that a route's `hash_key` names. Proxy and library must find the same key."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Concatenate, ParamSpec
from urllib.parse import unquote_to_bytes

_BLANKS = re.compile(r";[ \t]++")

Request = ParamSpec("Request")


def key_finder(
    reads: Mapping[str, Callable[Concatenate[str, Request], bytes]],
) -> Callable[[str], Callable[Request, bytes]]:
    """Returns a function that gives, for a `hash_key`, how to find its key in a request. `reads`: by kind (`path`,
    `ip`, `header`, `cookie`, `query`) what returns the value of a name there, empty where there is none."""

    @lru_cache(maxsize=256)
    def key_of(hash_key: str) -> Callable[Request, bytes]:
        kind, _, name = hash_key.partition(":")
        return partial(reads[kind], name)

    return key_of


def cookie(header: str, name: str) -> str:
    """The first cookie `name` in the value of a Cookie header, without its quotes; empty where there is none (RFC
    6265, 4.2). `http.cookies` gives up at the first malformed pair, or raises. Three passes over the header."""
    pairs = _BLANKS.sub(";", f";{header}")
    _, _, found = pairs.partition(f";{name}=")
    return found.partition(";")[0].strip(' \t"')


def parameter(query: bytes, name: str) -> bytes:
    """The first parameter `name` in a query without its `?`, decoded; empty where there is none. A few steps for
    each parameter."""
    wanted = name.encode()
    for pair in query.split(b"&"):
        written, _, value = pair.partition(b"=")
        if len(written) >= len(wanted) and _decoded(written) == wanted:
            return _decoded(value)
    return b""


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))
