"""What calls belong together by: the key given with a call, or else the one that the route's `hash_key` names."""

from collections.abc import Callable, Mapping
from http.cookies import Morsel
from typing import Any

from multidict import CIMultiDict
from yarl import URL

from slb.balance.hash_key import cookie, key_finder, parameter
from slb.client.refusals import CallRefused
from slb.client.target import Target
from slb.errors import BAD_REQUEST

LONGEST_KEY = 64 * 1024  # bytes, as of a request's whole head at the proxy: longer is no key but content

Options = Mapping[str, Any]  # what the call was given for aiohttp: headers, params, cookies and so on

Headers = CIMultiDict[str]  # the session's, which every call has


def given(key: str | bytes) -> bytes:
    """The key as bytes. Raises CallRefused where it is too long, TypeError where it is neither str nor bytes."""
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogateescape")
    elif not isinstance(key, bytes):
        raise TypeError(f"key is {type(key).__name__}: give str or bytes")
    if len(key) > LONGEST_KEY:
        raise CallRefused(BAD_REQUEST, f"a key of {len(key)} bytes: at most {LONGEST_KEY} are hashed")
    return key


def _field(name: str, options: Options, headers: Headers) -> str:
    own: Headers = CIMultiDict(options.get("headers") or ())
    return own.get(name, headers.get(name, ""))


def _cookie(name: str, _: Target, options: Options, headers: Headers) -> bytes:
    """The call's `cookies` win over a Cookie header, as in aiohttp."""
    own = dict(options.get("cookies") or ())
    if name not in own:
        return given(cookie(_field("Cookie", options, headers), name))
    value = own[name]
    return given(value.value if isinstance(value, Morsel) else str(value))


def _query(name: str, target: Target, options: Options, _: Headers) -> bytes:
    """The target's own query comes before `params`."""
    params = URL("/").with_query(options.get("params") or {}).raw_query_string
    return given(parameter(f"{target.query[1:]}&{params}".encode(), name))


_READS: Mapping[str, Callable[[str, Target, Options, Headers], bytes]] = {
    "path": lambda _, target, options, headers: target.normal.encode(),
    # The caller is one client, whatever its calls are for: its address would send them all to one upstream.
    "ip": lambda _, target, options, headers: b"",
    "header": lambda name, target, options, headers: given(_field(name, options, headers)),
    "cookie": _cookie,
    "query": _query,
}

key_of = key_finder(_READS)
