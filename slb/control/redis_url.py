"""The parts of a Redis URL for redis-py, and a form of it that may be shown."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from redis.asyncio.connection import parse_url

from slb.errors import RedisRefused
from slb.observe.log import MASK

EMBEDDED = "embedded"
SENTINEL, CLUSTER = "sentinel", "cluster"
_SCHEMES = (
    *("redis", "rediss", "unix"),
    *(f"{base}+{kind}" for kind in (SENTINEL, CLUSTER) for base in ("redis", "rediss")),
)
_OF_SENTINELS = "sentinel_"
"""How options begin that are for the connections to the Sentinels."""
_SENTINEL_PORT, _NODE_PORT = 26379, 6379
_SECRET_QUERY = re.compile(r"(?<=[?&])((?:sentinel_)?password|ssl_password|ssl_keyfile)=[^&]*+")
_USER = re.compile(r"[^:@/?]*+")
_DATABASE = re.compile(r"/?[0-9]*+")
_SERVICE = re.compile(r"/([A-Za-z0-9._-]++)(/[0-9]*+)?")

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True)
class Parts:
    """`options`: what redis-py makes connections to the data with. `seeds`: whom to ask where the data is, none
    where the URL names the place itself. Behind Sentinels these are asked with `asking` as options, for the master
    named `service`."""

    options: dict[str, Any]
    seeds: tuple[Address, ...] = ()
    asking: dict[str, Any] | None = None
    service: str = ""


def scheme_of(url: str) -> str:
    """`redis`, `rediss`, `unix`, `embedded`, or one of the first two with `+sentinel` or `+cluster`. Raises
    RedisRefused."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in (*_SCHEMES, EMBEDDED):
        wanted = ", ".join(f"{known}://" for known in (*_SCHEMES, EMBEDDED))
        raise RedisRefused(f"redis_url {shown(url)}: it starts with none of {wanted}")
    return scheme


def shown(url: str) -> str:
    """The URL without its secrets. Greedy to the last '@', so that a malformed one hides its password too."""
    return _without_password(_SECRET_QUERY.sub(rf"\1={MASK}", url))


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    info, at, place = rest.rpartition("@")
    password = _USER.sub("", info, count=1)
    user = info[: len(info) - len(password)]
    return url if password in ("", ":") else f"{scheme}{separator}{user}:{MASK}{at}{place}"


def parts(url: str) -> Parts:
    """What the URL says. Raises RedisRefused where it is malformed."""
    try:
        return _parts(url, scheme_of(url))
    except ValueError as error:
        raise RedisRefused(f"redis_url {shown(url)}: {error}") from None


def _parts(url: str, scheme: str) -> Parts:
    base, _, asked = scheme.partition("+")
    if asked == SENTINEL:
        return _behind_sentinels(url, base)
    if asked == CLUSTER:
        return _cluster(url, base)
    split = urlsplit(url)
    if scheme == "unix" and not split.path:
        raise ValueError("a unix:// URL names a socket, as unix:///run/redis.sock")
    if scheme != "unix" and not split.hostname:
        raise ValueError("it names no host")
    if scheme != "unix" and not _DATABASE.fullmatch(split.path):
        raise ValueError("what stands after the host is the number of a database")
    return Parts(dict(parse_url(url)))


def _behind_sentinels(url: str, base: str) -> Parts:
    split = urlsplit(url)
    named = _SERVICE.fullmatch(split.path)
    if named is None:
        raise ValueError("after the Sentinels it names the master, then maybe a database, as in /mymaster/0")
    login, seeds = _seeds(split, base, _SENTINEL_PORT)
    host, port = seeds[0]
    given = parse_url(f"{base}://{login}{_bracketed(host)}:{port}{named[2] or ''}?{split.query}")
    options = {name: value for name, value in given.items() if not name.startswith(_OF_SENTINELS)}
    asking = {name: value for name, value in options.items() if name not in ("username", "password", "db")}
    asking |= {
        name.removeprefix(_OF_SENTINELS): value for name, value in given.items() if name.startswith(_OF_SENTINELS)
    }
    return Parts(options, seeds, asking, named[1])


def _cluster(url: str, base: str) -> Parts:
    split = urlsplit(url)
    if split.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has no database but 0")
    login, seeds = _seeds(split, base, _NODE_PORT)
    host, port = seeds[0]
    options = dict(parse_url(f"{base}://{login}{_bracketed(host)}:{port}?{split.query}"))
    if options.get("db"):
        raise ValueError("a cluster has no database but 0")
    return Parts(options, seeds)


def _seeds(split: SplitResult, base: str, port: int) -> tuple[str, tuple[Address, ...]]:
    """`USER:PASSWORD@`, and the addresses. Raises ValueError."""
    info, at, places = split.netloc.rpartition("@")
    found = [urlsplit(f"{base}://{place}") for place in places.split(",")]
    if not all(each.hostname for each in found):
        raise ValueError("it names no host")
    return info + at, tuple((each.hostname or "", each.port or port) for each in found)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
