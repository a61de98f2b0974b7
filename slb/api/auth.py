"""Who may call the API: holders of tokens, each what its rights allow, or, where no token is set, programs of this
machine. On the data listener only holders of tokens may register.

A loopback peer alone proves little: a browser's page and a proxy in front of slb connect from loopback too. So the
Host (a page that rebinds DNS sends its own name), the Origin (a page that posts to 127.0.0.1) and the headers that
proxies add are checked. That cannot guard the data listener, which stands behind proxies: nginx's plain
`proxy_pass` comes from loopback with a literal Host, adds nothing, and passes on what its clients send.
"""

import ipaddress
import socket
from collections.abc import Callable, Collection, Container
from functools import lru_cache

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDictProxy

from slb.api.callers import HOLDER
from slb.config import BELIEVED_HEADERS, Settings
from slb.errors import FORBIDDEN, UNAUTHORIZED, Refused
from slb.tokens import NOBODY, Holder, Keyring

_SETTING = "set api_token (SLB_API_TOKEN) to open the API to others"
_NOT_HERE = (
    "without a token only the API listener takes registrations, since a proxy may send any client's here; "
    "ask there, or set api_token (SLB_API_TOKEN)"
)
_FETCH_SITE = "Sec-Fetch-Site"  # of browsers: which site's page sends the request, also without an Origin
_FORWARDING = frozenset(
    {
        *("forwarded", "forwarded-for", "via", "cdn-loop", "x-real-ip", "x-appengine-user-ip", "x-azure-clientip"),
        *(name.lower() for name in BELIEVED_HEADERS),
    }
)
_FORWARDING_FAMILIES = ("x-forwarded", "x-envoy-", "cf-")
"""What proxies and CDNs add to name the client or the host, by default or as their manuals show it. Not what
programs set too: `X-Request-Id`, `X-Amzn-Trace-Id`, `traceparent`."""
_REMEMBERED = 256  # addresses and Hosts already parsed: callers of the quota router ask thousands of times a second


Rule = Callable[[web.Request, Keyring], Holder]
"""Takes a request for a guarded path, and the tokens; gives whose token it has. Raises Refused."""
Needed = Callable[[web.Request], Collection[str] | None]
"""The rights of which a request needs one; None where there is no endpoint for it."""


def keyring_of(settings: Callable[[], Settings]) -> Callable[[], Keyring]:
    """The keyring of the settings that hold at the time of each call."""
    made: list[tuple[Settings, Keyring]] = []

    def current() -> Keyring:
        now = settings()
        if not made or made[0][0] is not now:
            made[:] = [(now, Keyring(now.api_token.get_secret_value() if now.api_token else "", now.tokens))]
        return made[0][1]

    return current


def guard(rule: Rule, keyring: Callable[[], Keyring], open_paths: Container[str], needed: Needed) -> Middleware:
    """A middleware: requests for `open_paths` pass, others where `rule` knows whose they are, and that holder has
    one of the rights that are needed."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in open_paths:
            holder = request[HOLDER] = rule(request, keyring())
            if (rights := needed(request)) is not None:
                check_rights(holder, rights)
        return await handler(request)

    return check


def check_rights(holder: Holder, rights: Collection[str]) -> None:
    """Raises Refused where `holder` has none of `rights`."""
    if not holder.has_any(rights):
        raise Refused(FORBIDDEN, f"the token {holder.name} lacks the right {' or '.join(rights)}")


def api_rule(request: web.Request, keyring: Keyring) -> Holder:
    """The rule of the API listener. A worker's is a unix socket that only its supervisor can open."""
    return NOBODY if _is_unix(request) else check_caller(request.remote or "", request.headers, keyring)


def check_caller(remote: str, headers: CIMultiDictProxy[str], keyring: Keyring) -> Holder:
    """`api_rule` for a request that came from `remote` by TCP."""
    if keyring:
        return _holder(headers, keyring)
    if not is_loopback(remote):
        raise Refused(FORBIDDEN, f"without a token only this machine may call the API; {_SETTING}")
    if fault := _header_fault(headers):
        raise Refused(FORBIDDEN, f"{fault}; {_SETTING}")
    return NOBODY


def traffic_rule(request: web.Request, keyring: Keyring) -> Holder:
    """The rule of the data listener: tokens alone. Pages that come through slb have its own origin, so requests of
    browsers are refused, with a token too. Raises Refused."""
    if request.match_info.http_exception is not None:
        return NOBODY  # there is nothing for it
    if hdrs.ORIGIN in request.headers or _FETCH_SITE in request.headers:
        raise Refused(FORBIDDEN, "no page may register upstreams")
    if not keyring:
        raise Refused(FORBIDDEN, _NOT_HERE)
    return _holder(request.headers, keyring)


def _holder(headers: CIMultiDictProxy[str], keyring: Keyring) -> Holder:
    scheme, _, given = headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() != "bearer":
        raise Refused(UNAUTHORIZED, "send a token as 'Authorization: Bearer TOKEN'")
    holder = keyring.holder(given.strip())
    if holder is None:
        raise Refused(UNAUTHORIZED, "the token that was sent is none that is known here")
    return holder


def _is_unix(request: web.Request) -> bool:
    """Whether the peer came over a unix socket, which its file's permissions guard."""
    transport = request.transport
    peer = transport.get_extra_info("socket") if transport else None
    return peer is not None and peer.family == socket.AF_UNIX


def _header_fault(headers: CIMultiDictProxy[str]) -> str | None:
    hosts = headers.getall(hdrs.HOST, [""])
    host = hosts[0]
    if len(hosts) > 1 or not is_literal_host(host):
        return f"without a token the Host has to be localhost or an address, not {', '.join(hosts)!r}"
    for name in headers:
        lower = name.lower()
        if lower in _FORWARDING or lower.startswith(_FORWARDING_FAMILIES):
            return f"without a token no request may come through a proxy (it has {name})"
    origins = headers.getall(hdrs.ORIGIN, ())
    foreign = any(each.partition("://")[2].lower() != host.lower() for each in origins)
    sites = headers.getall(_FETCH_SITE, ())
    if foreign or any(each.lower() not in ("none", "same-origin") for each in sites):
        return "without a token no other site's page may call the API"
    return None


@lru_cache(maxsize=_REMEMBERED)
def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1, and the former as an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


@lru_cache(maxsize=_REMEMBERED)
def is_literal_host(host: str) -> bool:
    """Whether a Host header is `localhost` or an address, with or without a port."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return False
    else:
        name = host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name) is not None
    except ValueError:
        return False
