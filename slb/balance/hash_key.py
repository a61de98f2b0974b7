"""What requests belong together by: the key that a route's `hash_key` names. The proxy and the library must find
the same key in a request."""

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
    """What returns, for a `hash_key`, how to find its key in a request. `reads`: by kind (`path`, `ip`, `header`,
    `cookie`, `query`) what finds the value of a name there; empty where there is none."""

    @lru_cache(maxsize=256)
    def key_of(hash_key: str) -> Callable[Request, bytes]:
        kind, _, name = hash_key.partition(":")
        return partial(reads[kind], name)

    return key_of


def cookie(header: str, name: str) -> str:
    """The first cookie `name` in the value of a Cookie header, without its quotes; empty where there is none (RFC
    6265, 4.2). `http.cookies` gives up at the first pair that is not as it should be, or raises.

    Three passes over the header, whatever stands in it.
    """
    pairs = _BLANKS.sub(";", f";{header}")
    _, _, found = pairs.partition(f";{name}=")
    return found.partition(";")[0].strip(' \t"')


def parameter(query: bytes, name: str) -> bytes:
    """The first parameter `name` in a query without its `?`, decoded; empty where there is none.

    A few steps for each parameter, and a request line has at most half `max_request_line` of them; what is shorter
    than the name is not decoded, for decoding makes nothing longer.
    """
    wanted = name.encode()
    for pair in query.split(b"&"):
        written, _, value = pair.partition(b"=")
        if len(written) >= len(wanted) and _decoded(written) == wanted:
            return _decoded(value)
    return b""


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))
