"""What calls belong together by: the key given with a call, or else the one that the route's `hash_key` names."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from http.cookies import Morsel
from typing import Any

from multidict import CIMultiDict
from yarl import URL

from slb.client.refusals import CallRefused
from slb.client.target import Target
from slb.cookies import cookie
from slb.errors import BAD_REQUEST

LONGEST_KEY = 64 * 1024
"""Bytes, as long as a request's whole head may be at the proxy: what is longer is no key but content."""

Options = Mapping[str, Any]
"""What the call was given for aiohttp: headers, params, cookies, ..."""

Headers = CIMultiDict[str]

KeyOf = Callable[[Target, Options, Headers], str]


def given(key: str | bytes) -> bytes:
    """The key as bytes. Raises CallRefused by name where it is too long, TypeError where it is neither."""
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogateescape")
    elif not isinstance(key, bytes):
        raise TypeError(f"key is {type(key).__name__}: give str or bytes")
    if len(key) > LONGEST_KEY:
        raise CallRefused(BAD_REQUEST, f"a key of {len(key)} bytes: at most {LONGEST_KEY} are hashed")
    return key


def found(hash_key: str, target: Target, options: Options, headers: Headers) -> bytes:
    """The key that this setting names; empty where the call has no such thing. `headers`: the session's, which a
    call's own go before."""
    if hash_key == "path":
        return target.normal.encode()
    return given(_finder(hash_key)(target, options, headers))


@lru_cache(maxsize=256)
def _finder(hash_key: str) -> KeyOf:
    kind, _, name = hash_key.partition(":")
    return _KINDS[kind](name)


def _header(name: str) -> KeyOf:
    def find(_: Target, options: Options, headers: Headers) -> str:
        own: Headers = CIMultiDict(options.get("headers") or ())
        return own.get(name, headers.get(name, ""))

    return find


def _cookie(name: str) -> KeyOf:
    """A call's `cookies` go before those of a header written by hand, as aiohttp has it."""

    def find(_: Target, options: Options, headers: Headers) -> str:
        given_here = dict(options.get("cookies") or ())
        if name in given_here:
            value = given_here[name]
            return value.value if isinstance(value, Morsel) else str(value)
        own: Headers = CIMultiDict(options.get("headers") or ())
        return cookie(own.get("Cookie", headers.get("Cookie", "")), name)

    return find


def _query(name: str) -> KeyOf:
    """The first of that name: the target's own stand before `params`."""

    def find(target: Target, options: Options, __: Headers) -> str:
        written = URL(f"/{target.query}").query
        if name in written:
            return written[name]
        return URL("/").with_query(options.get("params") or {}).query.get(name, "")

    return find


def _address(_: str) -> KeyOf:
    """The caller is one client, whatever its calls are for: its address would send them all to one upstream."""
    return lambda target, options, headers: ""


_KINDS: dict[str, Callable[[str], KeyOf]] = {
    "ip": _address,
    "header": _header,
    "cookie": _cookie,
    "query": _query,
}
