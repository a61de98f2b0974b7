"""The parts of a Redis URL for redis-py, and a form of it that may be shown."""

import re
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import parse_url

from slb.errors import RedisRefused
from slb.observe.log import MASK

EMBEDDED = "embedded"
_SCHEMES = ("redis", "rediss", "unix")
_SECRET_QUERY = re.compile(r"(?<=[?&])(password|ssl_password|ssl_keyfile)=[^&]*+")
_USER = re.compile(r"[^:@/?]*+")
_DATABASE = re.compile(r"/?[0-9]*+")


def scheme_of(url: str) -> str:
    """`redis`, `rediss`, `unix` or `embedded`. Raises RedisRefused."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in (*_SCHEMES, EMBEDDED):
        wanted = ", ".join(f"{known}://" for known in (*_SCHEMES, EMBEDDED))
        raise RedisRefused(f"redis_url {shown(url)}: it starts with none of {wanted}")
    return scheme


def shown(url: str) -> str:
    """The URL without its secrets. Greedy to the last '@', so that a malformed one hides its password too."""
    return _SECRET_QUERY.sub(rf"\1={MASK}", _without_password(url))


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    info, at, place = rest.rpartition("@")
    password = _USER.sub("", info, count=1)
    user = info[: len(info) - len(password)]
    return url if password in ("", ":") else f"{scheme}{separator}{user}:{MASK}{at}{place}"


def options(url: str) -> dict[str, Any]:
    """The arguments redis-py makes its connections with. Raises RedisRefused where the URL is malformed."""
    try:
        parts = urlsplit(url)
        found: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise RedisRefused(f"redis_url {shown(url)}: {error}") from None
    if parts.scheme == "unix" and not parts.path:
        raise RedisRefused(f"redis_url {shown(url)}: a unix:// URL names a socket, as unix:///run/redis.sock")
    if parts.scheme != "unix" and not parts.hostname:
        raise RedisRefused(f"redis_url {shown(url)}: it names no host")
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        raise RedisRefused(f"redis_url {shown(url)}: what stands after the host is the number of a database")
    return found
